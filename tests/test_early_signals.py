"""Who changes his mind while the model is read need not wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

LOADING = """
import time
from zerolayer.contract import load
from zerolayer.serve.command import main

def read(contract, progress):
    print("reading", flush=True)
    time.sleep(60)  # as the packing of weights, which nothing interrupts

main(load(None, {}, {}), read)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_server_is_ready_ends_it_at_once(number: signal.Signals) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", LOADING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "reading\n"
        child.send_signal(number)
        _, err = child.communicate(timeout=20)
    assert child.returncode == 128 + number
    assert err == ""
