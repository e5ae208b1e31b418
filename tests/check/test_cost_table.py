"""What a kind of node costs: read from a file, or from a server that measures itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "front"))

from echo_model import EchoEngine, LastMessage
from echo_service import Service, chat

from zerolayer import cli
from zerolayer.check.cost_table import measured, read_cost, to_toml
from zerolayer.check.errors import InputFileError, TargetError
from zerolayer.check.scrape import Scrape

TABLE = """name = "toy"
slots = 2
decode_ms = 10
mixed_ms = 20
chunk_tokens = 100
slot_tokens = 1000
price_per_hour = 3.6
"""
PAGE = """vllm:cache_config_info{block_size="2048",num_gpu_blocks="16"} 1
zerolayer:chunk_tokens 128
zerolayer:step_seconds{kind="one"} 0.004
zerolayer:step_seconds{kind="decode"} 0.019
zerolayer:step_seconds{kind="mixed"} 0.085
"""


@pytest.mark.parametrize(
    "text",
    ["", "slots = 1", TABLE + "colour = 1", TABLE.replace("slots = 2", "slots = 0"), TABLE + "row_ms = -1", "\x00"],
)
def test_what_is_no_cost_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cost.toml"
    path.write_text(text)
    with pytest.raises(InputFileError):
        read_cost(path)


def test_a_running_server_says_what_its_steps_take() -> None:
    cost = measured(Scrape(PAGE), "here")
    assert (cost.slots, cost.slot_tokens, cost.chunk_tokens) == (16, 2048, 128)
    assert (cost.decode_ms, cost.mixed_ms) == pytest.approx((19, 85))
    assert cost.row_ms == pytest.approx(1.0)


def test_what_was_measured_is_a_file_that_can_be_read(tmp_path: Path) -> None:
    cost = measured(Scrape(PAGE), 'a "name"')
    (tmp_path / "here.toml").write_text(to_toml(cost))
    assert read_cost(tmp_path / "here.toml") == cost


@pytest.mark.parametrize("missing", range(len(PAGE.splitlines())))
def test_a_page_without_step_times_is_no_cost_table(missing: int) -> None:
    lines = [line for number, line in enumerate(PAGE.splitlines()) if number != missing]
    if "one" in PAGE.splitlines()[missing]:
        assert measured(Scrape("\n".join(lines)), "here").row_ms == 0.0
    else:
        with pytest.raises(TargetError):
            measured(Scrape("\n".join(lines)), "here")


def test_the_command_measures_a_server_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = EchoEngine(slots=4, slot_tokens=512, chunk_tokens=64, step_us=2000)
    service = Service({"slots": "4", "slot-tokens": "512"}, engine, None, 0.02, {}, {}, LastMessage)
    try:
        assert service.ask(chat("hello", max_tokens=16)).status == 200
        assert cli.main(["simulate", "--measure", f"http://127.0.0.1:{service.server.admin_port}"]) == 0
    finally:
        service.close()
    (tmp_path / "here.toml").write_text(capsys.readouterr().out)
    cost = read_cost(tmp_path / "here.toml")
    assert (cost.slots, cost.slot_tokens, cost.chunk_tokens) == (4, 512, 64)
    assert 1.0 < cost.decode_ms <= cost.mixed_ms
