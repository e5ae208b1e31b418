"""LangChain, LlamaIndex, llm and Vercel's ai as judges: whoever uses them changes the base URL and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judges.client_environments import said_by_node, said_by_python

pytestmark = pytest.mark.judge


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


def test_langchain_tells_errors_apart_and_leaves_streams(langchain: dict[str, Any]) -> None:
    assert langchain["errors"] == {"model": 404, "range": 400}
    assert langchain["left"] == 3


def test_langchain_is_served_after_its_retries(langchain: dict[str, Any]) -> None:
    assert langchain["served"] == 6


def test_llama_index(server: str, tmp_path: Path) -> None:
    said = said_by_python("llama_index_client.py", server, tmp_path)
    assert said["streamed"] == said["whole"]
    assert said["completed"] is not None
    assert (said["error"], said["left"], said["served"]) == (["NotFoundError", 404], 3, 6)


def test_llm(server: str, tmp_path: Path) -> None:
    said = said_by_python("llm_client.py", server, tmp_path)
    assert said["streamed"] == said["whole"]
    assert said["error"] == 404
    assert min(said["usage"]) > 0


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


def test_vercel_ai_tells_errors_leaves_streams_and_is_served_after_retries(vercel: dict[str, Any]) -> None:
    assert (vercel["error"], vercel["served"]) == ([True, 404], 6)
    assert vercel["left"] >= 3
