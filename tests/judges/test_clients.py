"""LangChain, LlamaIndex, llm and Vercel's ai as judges: whoever uses them changes the base URL and nothing else."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from judges.busy_server import CLIENTS, Busy
from judges.client_environments import said_by_node, said_by_python

pytestmark = pytest.mark.judge

# LangChain


@pytest.fixture(scope="module")
def langchain(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return said_by_python("langchain_client.py", server, tmp_path_factory.mktemp("langchain"))


def test_langchain_reads_replies_streams_and_usage(langchain: dict[str, Any]) -> None:
    assert langchain["streamed"] == langchain["whole"]
    assert langchain["streamed_usage"] == langchain["usage"] > 0
    assert langchain["reason"] in {"stop", "length"}
    assert langchain["legacy"] is not None


def test_langchain_reads_logprobs(langchain: dict[str, Any]) -> None:
    assert langchain["logprobs"] >= 1


def test_langchain_speaks_the_responses_api(langchain: dict[str, Any]) -> None:
    assert langchain["responses"] == langchain["responses_streamed"] == langchain["whole"]


def test_langchain_gets_structured_output_and_calls_of_tools(langchain: dict[str, Any]) -> None:
    assert langchain["structured"] in {"red", "green"}
    ((name, arguments),) = langchain["called"]
    assert (name, arguments["colour"] in {"red", "green"}) == ("Choice", True)
    assert langchain["called_streamed"] == "Choice"


def test_langchain_tells_errors_apart(langchain: dict[str, Any]) -> None:
    assert langchain["errors"] == {"model": 404, "range": 400}


def test_langchain_s_retries_come_when_they_were_told_to(busy: Busy, tmp_path: Path) -> None:
    ask = partial(said_by_python, "langchain_client.py", busy.url, tmp_path, "busy")
    assert busy.served_after_a_refusal(ask) == CLIENTS


def test_langchain_leaves_a_stream(busy: Busy, tmp_path: Path) -> None:
    assert busy.left(partial(said_by_python, "langchain_client.py", busy.url, tmp_path, "left")) == 3


# LlamaIndex


@pytest.fixture(scope="module")
def llama_index(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    scratch = tmp_path_factory.mktemp("llama-index")
    return dict(said_by_python("llama_index_client.py", server, scratch, "replies structured tools errors"))


def test_llama_index_reads_replies_and_streams(llama_index: dict[str, Any]) -> None:
    said = llama_index["replies"]
    assert said["streamed"] == said["asynchronous"] == said["whole"]
    assert said["completed_streamed"] == said["completed"]


def test_llama_index_gets_structured_output(llama_index: dict[str, Any]) -> None:
    said = llama_index["structured"]
    assert set(said) == {"by_format", "by_call", "streamed"}
    assert set(said.values()) <= {"red", "green"}


def test_llama_index_gets_calls_of_tools(llama_index: dict[str, Any]) -> None:
    said = llama_index["tools"]
    for calls in (said["whole"], said["streamed"]):
        assert [(name, colour in {"red", "green"}) for name, colour in calls] == [("choose", True)]
    assert said["answered"] in {"It is red.", "It is green."}


def test_llama_index_tells_errors_apart(llama_index: dict[str, Any]) -> None:
    assert llama_index["errors"] == {"model": ["NotFoundError", 404], "range": ["BadRequestError", 400]}


def test_llama_index_leaves_a_stream(busy: Busy, tmp_path: Path) -> None:
    assert busy.left(partial(said_by_python, "llama_index_client.py", busy.url, tmp_path, "left")) == {"left": 3}


def test_llama_index_s_retries_come_when_they_were_told_to(busy: Busy, tmp_path: Path) -> None:
    ask = partial(said_by_python, "llama_index_client.py", busy.url, tmp_path, "busy")
    assert busy.served_after_a_refusal(ask) == {"busy": CLIENTS}


# llm


@pytest.fixture(scope="module")
def llm(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return dict(said_by_python("llm_client.py", server, tmp_path_factory.mktemp("llm"), "replies structured errors"))


def test_llm_reads_replies_and_streams(llm: dict[str, Any]) -> None:
    said = llm["replies"]
    assert set(said) == {"chat", "responses", "completion"}
    for kind in said.values():
        assert kind["streamed"] == kind["whole"]
    assert min(said["chat"]["usage"]) > 0


def test_llm_gets_structured_output(llm: dict[str, Any]) -> None:
    said = llm["structured"]
    assert set(said) == {"chat", "responses"}
    assert {type(answer["colour"]) for answer in said.values()} == {bool}


def test_llm_runs_the_tools_that_are_called(echo: str, tmp_path: Path) -> None:
    said = said_by_python("llm_client.py", echo, tmp_path, "tools")["tools"]
    assert len(said) == 4
    assert set(said.values()) == {"It is green."}


def test_llm_tells_an_error(llm: dict[str, Any]) -> None:
    assert llm["errors"] == {"model": 404}


def test_llm_leaves_a_stream(busy: Busy, tmp_path: Path) -> None:
    assert busy.left(partial(said_by_python, "llm_client.py", busy.url, tmp_path, "left")) == {"left": 3}


def test_llm_s_retries_come_when_they_were_told_to(busy: Busy, tmp_path: Path) -> None:
    ask = partial(said_by_python, "llm_client.py", busy.url, tmp_path, "busy")
    assert busy.served_after_a_refusal(ask) == {"busy": CLIENTS}


# Vercel's ai


@pytest.fixture(scope="module")
def vercel(server: str) -> dict[str, Any]:
    return said_by_node("vercel_client.mjs", server)


@pytest.mark.parametrize("provider", ["compatible", "chat", "responses"])
def test_vercel_ai_reads_replies_streams_and_usage(vercel: dict[str, Any], provider: str) -> None:
    said = vercel[provider]
    assert said["streamed"] == said["whole"]
    assert said["usage"] == said["counted"] > 0
    assert said["reason"] in {"stop", "length"}


@pytest.mark.parametrize("provider", ["compatible", "chat", "responses"])
def test_vercel_ai_gets_structured_output_and_calls_of_tools(vercel: dict[str, Any], provider: str) -> None:
    said = vercel[provider]
    assert said["structured"] in {"red", "green"}
    ((name, colour),) = said["called"]
    assert (name, colour in {"red", "green"}) == ("choose", True)


def test_vercel_ai_tells_an_error(vercel: dict[str, Any]) -> None:
    assert vercel["error"] == [True, 404]


def test_vercel_ai_leaves_a_stream(busy: Busy) -> None:
    assert busy.left(partial(said_by_node, "vercel_client.mjs", busy.url, "left")) >= 3


def test_vercel_ai_s_retries_come_when_they_were_told_to(busy: Busy) -> None:
    assert busy.served_after_a_refusal(partial(said_by_node, "vercel_client.mjs", busy.url, "busy")) == CLIENTS
