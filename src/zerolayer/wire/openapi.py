"""The service's description of itself, OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0).

Members and types come from the structs that the decoders use, ranges from the contract's limits, so that the document
cannot say anything else than the code does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from zerolayer.wire.anthropic_fields import MessagesBody
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai_fields import ChatBody, CompletionBody
from zerolayer.wire.responses_fields import ResponseBody

_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"
_EVENTS: Final = "text/event-stream"
_PREFIX: Final = "#/components/schemas/{name}"


class Operation(msgspec.Struct, frozen=True):
    """One method of one path. ``body`` is the struct that its JSON is read into, ``reply`` the types of its answer."""

    method: str
    summary: str
    body: type | None = None
    reply: Sequence[str] = (_JSON,)
    media: Sequence[str] = (_JSON,)
    always: int = 200  # the status when all goes well
    error: str = "Error"  # the component that describes a refusal


PATHS: Final[Mapping[str, tuple[Operation, ...]]] = {
    "/v1/chat/completions": (Operation("post", "Answer a conversation", ChatBody, (_JSON, _EVENTS)),),
    "/v1/completions": (Operation("post", "Continue a text", CompletionBody, (_JSON, _EVENTS)),),
    "/v1/responses": (Operation("post", "Answer a conversation of items", ResponseBody, (_JSON, _EVENTS)),),
    "/v1/responses/input_tokens": (Operation("post", "Count the tokens of a conversation of items", ResponseBody),),
    "/v1/responses/{id}": tuple(
        [Operation(method, "Nothing is kept: always 404", always=404) for method in ("get", "delete", "post")]
    ),
    "/v1/messages": (
        Operation("post", "Answer in Anthropic's shape", MessagesBody, (_JSON, _EVENTS), error="AnthropicError"),
    ),
    "/v1/messages/count_tokens": (
        Operation("post", "Count the tokens of a message", MessagesBody, error="AnthropicError"),
    ),
    "/v1/count_tokens": (
        Operation("post", "Count the tokens of a prompt", ChatBody, (_JSON, _PROTOBUF), (_JSON, _PROTOBUF)),
    ),
    "/v1/generate": (Operation("post", "Generate, in the fixed schema", reply=(_PROTOBUF,), media=(_PROTOBUF,)),),
    "/v1/bookings/{id}": (Operation("delete", "Give a promised start back", always=204),),
    "/v1/models": (Operation("get", "The names that a request may use"),),
    "/v1/models/{id}": (Operation("get", "One of the names"),),
    "/v1/nodes": (Operation("get", "The nodes that this one knows, and how each is"),),
    "/livez": (Operation("get", "The process answers"),),
    "/readyz": (Operation("get", "The service takes work"),),
    "/health": (Operation("get", "The same as /readyz"),),
    "/openapi.json": (Operation("get", "This document"),),
}
"""All paths of the service; ``{id}`` stands for one segment."""


def openapi_document(version: str, limits: BodyLimits, models: Sequence[str]) -> bytes:
    """The document as JSON. ``version`` is the package's; ``models`` are what a request may name, () for any."""
    bodies = [operation.body for operations in PATHS.values() for operation in operations if operation.body]
    _, components = msgspec.json.schema_components(dict.fromkeys(bodies), ref_template=_PREFIX)
    for name in ("ChatBody", "CompletionBody", "MessagesBody", "ResponseBody"):
        _narrow(components[name], limits, models)
    _widen_messages(components["MessagesBody"]["properties"])
    components |= {"Error": _ERROR, "AnthropicError": _ANTHROPIC_ERROR}
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "zerolayer",
            "version": version,
            "description": "Unknown members of a body are ignored; null means the same as leaving a member out.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {path: _path(path, operations) for path, operations in PATHS.items()},
        "components": {"schemas": components},
    }
    return msgspec.json.encode(document)


_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
                "help": {"type": "string"},
                "retry_after_ms": {"type": "integer", "minimum": 1},
            },
        }
    },
}

_ANTHROPIC_ERROR: Final = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message", "details"],
            "properties": {
                "type": {"type": "string"},
                "message": {"type": "string"},
                "details": {
                    "type": "object",
                    "properties": {"error_code": {"type": "string"}, "help": {"type": "string"}},
                },
                "retry_after_ms": {"type": "integer", "minimum": 1},
            },
        },
        "request_id": {"type": "string"},
    },
}


def _path(path: str, operations: Sequence[Operation]) -> dict[str, Any]:
    described: dict[str, Any] = {operation.method: _operation(path, operation) for operation in operations}
    if "{id}" in path:
        described["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    return described


def _operation(path: str, operation: Operation) -> dict[str, Any]:
    words = path.replace("{", "").replace("}", "").replace(".", "/").split("/")
    error = {
        "description": "What was wrong, and what to do",
        "content": _content(operation.media, _ref(operation.error)),
    }
    described: dict[str, Any] = {
        "operationId": "_".join([operation.method, *filter(None, words)]),
        "summary": operation.summary,
        "responses": {"4XX": error, "5XX": error},
    }
    if operation.always == 200:
        described["responses"]["200"] = {"description": "The answer", "content": _content(operation.reply, None)}
    if operation.always == 204:
        described["responses"]["204"] = {"description": "Done, or there was nothing to do"}
    if operation.method == "post" and operation.always == 200:
        body = {} if operation.body is None else _ref(operation.body.__name__)
        described["requestBody"] = {"required": True, "content": _content(operation.media, body)}
    return described


def _content(media: Sequence[str], json: dict[str, str] | None) -> dict[str, Any]:
    """``json`` is the schema of what comes as JSON."""
    return {kind: {"schema": {"type": "object"} if json is None else json} if kind == _JSON else {} for kind in media}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _PREFIX.format(name=name)}


def _narrow(schema: dict[str, Any], limits: BodyLimits, models: Sequence[str]) -> None:
    """Ranges that the contract sets, and what must be given."""
    low, high = limits.temperature
    most = {"maximum": limits.max_tokens} if limits.outside == "refuse" else {}
    ranges: dict[str, dict[str, Any]] = {
        "temperature": {"minimum": low, "maximum": high} if limits.outside == "refuse" else {"minimum": 0},
        "top_p": {"exclusiveMinimum": 0, "maximum": 1},
        "min_p": {"minimum": 0, "maximum": 1},
        "presence_penalty": {"minimum": -2, "maximum": 2},
        "frequency_penalty": {"minimum": -2, "maximum": 2},
        "repetition_penalty": {"exclusiveMinimum": 0, "maximum": 10},
        "max_tokens": {"minimum": 0, **most},
        "max_completion_tokens": {"minimum": 0, **most},
        "max_output_tokens": {"minimum": 1, **most},
        "min_tokens": {"minimum": 0, "maximum": limits.max_tokens},
        "n": {"minimum": 1, "maximum": limits.n},
        "top_logprobs": {"minimum": 0, "maximum": limits.top_logprobs},
        "seed": {"minimum": -(2**63), "maximum": 2**63 - 1},
        "top_k": {"minimum": -1, "maximum": 2**31 - 1},
    }
    members = schema["properties"]
    members["model"] = {"type": "string"} | ({"enum": list(models)} if models else {})
    for name, limit in ranges.items():
        if name in members:
            members[name].update(limit)  # of a number; they say nothing about null
    schema["required"] = [name for name in ("model", "messages", "prompt", "input") if name in members][:2]
    if "messages" in members:
        members["messages"]["maxItems"] = limits.json_messages


def _widen_messages(members: dict[str, Any]) -> None:
    """Where Anthropic's ranges differ from OpenAI's."""
    hottest = members["temperature"].get("maximum", 1)
    members["temperature"].update({"minimum": 0, "maximum": min(1, hottest)})
    members["top_p"] = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "null"}], "default": None}
    members["top_k"].update({"minimum": 0})
    members["max_tokens"].update({"minimum": 1, "maximum": 2**31 - 1})
