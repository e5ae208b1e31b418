"""Likely causes by software: which setting of a recognised server is known to do what was found.

Defaults were read in each project's source in November 2026; versions move, so a cause is "likely", never certain.
"""

from __future__ import annotations

from collections.abc import Mapping

from zerolayer.check.findings import Kind

# How software is recognised: (header or `owned_by` value, part of it) -> name.
SERVER_HEADERS = (
    ("zerolayer", "zerolayer"),
    ("istio-envoy", "istio"),
    ("envoy", "envoy"),
    ("apisix", "apisix"),
    ("nginx", "nginx"),
    ("openresty", "nginx"),
    ("gunicorn", "gunicorn"),
    ("hypercorn", "hypercorn"),
    ("granian", "granian"),
    ("llama.cpp", "llama.cpp"),
    ("mosec", "mosec"),
    ("tornado", "tornado"),
    ("apache", "apache"),
    ("uvicorn", "uvicorn"),
)
OWNERS = (
    ("zerolayer", "zerolayer"),
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("llamacpp", "llama.cpp"),
    ("library", "ollama"),
    ("lmdeploy", "lmdeploy"),
    ("tensorrt_llm", "tensorrt-llm"),
)
GATEWAYS = ((b"x-litellm-version", "litellm"),)  # a header of answers, not of the list of models

CAUSES: dict[tuple[str, Kind], str] = {
    ("vllm", Kind.QUEUE): "vLLM's waiting queue is unbounded unless --max-num-queued-reqs is set.",
    ("vllm", Kind.SHARING): "vLLM's --max-num-seqs (256, or 1024 on large GPUs) batches more than step time allows.",
    ("vllm", Kind.BUFFER): "vLLM's --stream-interval above 1 sends several tokens at once.",
    ("vllm", Kind.SERIAL): "One long prompt at a time: see --max-num-partial-prefills.",
    ("vllm", Kind.STALL): "One long prefill chunk holds up all decodes: see --max-num-batched-tokens.",
    ("sglang", Kind.QUEUE): "SGLang's --max-queued-requests is unset, so its queue is unbounded.",
    ("sglang", Kind.FIRST_ARRIVAL): "SGLang's --enable-prefill-delayer holds prefills back on purpose.",
    ("llama.cpp", Kind.QUEUE): "llama-server lets requests wait for a slot (--parallel) up to --timeout, 3600 s.",
    ("ollama", Kind.QUEUE): "OLLAMA_MAX_QUEUE lets 512 requests wait behind OLLAMA_NUM_PARALLEL.",
    ("lmdeploy", Kind.QUEUE): "lmdeploy's --max-concurrent-requests is unset, so all that come wait for the engine.",
    ("tensorrt-llm", Kind.FIRST_ARRIVAL): "TensorRT-LLM's batch_wait_timeout_ms or _iters above 0 holds prefills back.",
    ("litellm", Kind.QUEUE): "LiteLLM's max_in_flight_requests_per_worker is unset, so it passes on all that come.",
    ("litellm", Kind.LATE_PROMISE): "LiteLLM rounds the time in its retry-after up to whole seconds.",
    ("mosec", Kind.QUEUE): "mosec's --capacity lets 1,024 requests wait before the first is refused.",
    ("mosec", Kind.FIRST_ARRIVAL): "mosec's max_wait_time above 0 lets a lone request wait for a batch.",
    (
        "nginx",
        Kind.SHAPER,
    ): "nginx's limit_req with burst= and without nodelay delays instead of refusing.",
    (
        "nginx",
        Kind.FAILURES,
    ): "An upstream that closes idle connections sooner than nginx does (uvicorn 5 s, gunicorn 2 s) gives 502.",
    ("nginx", Kind.BUFFER): "nginx's proxy_buffering is on by default; set it off, or send X-Accel-Buffering: no.",
    ("nginx", Kind.QUEUE): "The backlog of the listener (511) or of the upstream holds what the upstream cannot take.",
    ("nginx", Kind.NO_PROMISE): "limit_req_status is 503 by default and carries no Retry-After.",
    ("envoy", Kind.QUEUE): "Envoy's circuit_breakers.max_pending_requests lets 1,024 requests wait.",
    ("envoy", Kind.BUFFER): "Envoy's buffer filter waits for whole bodies.",
    ("envoy", Kind.STALL): "Envoy's adaptive_concurrency probes its minimum time with a limit of 3.",
    ("envoy", Kind.FAILURES): "Envoy's route timeout, 15 s with all retries, cuts streams.",
    ("istio", Kind.QUEUE): "DestinationRule's http1MaxPendingRequests is unbounded by default.",
    ("gunicorn", Kind.QUEUE): "gunicorn's sync worker serves one at a time; others wait in its backlog (2048).",
    ("gunicorn", Kind.FAILURES): "gunicorn's --timeout, 30 s, ends a sync worker in the midst of a stream.",
    (
        "uvicorn",
        Kind.QUEUE,
    ): "uvicorn's --limit-concurrency is unset: asyncio tasks are the queue. If this is vLLM, its "
    "waiting queue is unbounded by default.",
    ("hypercorn", Kind.QUEUE): "hypercorn's backlog and max_app_queue_size hold requests.",
    ("granian", Kind.QUEUE): "granian's --backlog and --backpressure admit 1,024 requests.",
    ("apache", Kind.QUEUE): "Apache's ListenBackLog lets 511 connections wait in the kernel.",
    ("apisix", Kind.BUFFER): "APISIX buffers unless proxy-buffering.disable_proxy_buffering is true.",
    ("apache", Kind.BUFFER): "mod_proxy's flushpackets is off by default.",
}


def recognise(server_header: str, owner: str) -> str:
    """The software's name, of a ``Server`` header and of ``owned_by`` in the list of models; empty if unknown."""
    for part, name in OWNERS:
        if part == owner.lower():
            return name
    for part, name in SERVER_HEADERS:
        if part in server_header.lower():
            return name
    return ""


def gateway(headers: Mapping[bytes, bytes]) -> str:
    """The gateway's name, of the head of an answer (names in lower case); empty if there is none that tells."""
    return next((name for header, name in GATEWAYS if headers.get(header)), "")


def likely_cause(software: str, kind: Kind) -> str | None:
    """One sentence, if this software is known for this finding."""
    return CAUSES.get((software, kind))
