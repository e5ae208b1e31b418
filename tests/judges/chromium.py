"""Chromium without a window, asked over its pipe (Chrome DevTools Protocol): one page, and what went wrong on it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

_PATIENCE_S = 60.0


class Chromium:
    """One browser with one page. ``troubles`` are console messages, exceptions and log entries, in their order."""

    def __init__(self, program: str, profile: Path) -> None:
        taken, self._out = os.pipe()
        self._in, given = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        # The browser reads from descriptor 3 and writes to 4; a shell puts ours there, whatever their numbers are.
        line = f'exec "$0" "$@" 3<&{taken} 4>&{given}'
        command = ["bash", "-c", line, program, *flags, f"--user-data-dir={profile}", "about:blank"]
        self._child = subprocess.Popen(command, pass_fds=(taken, given), stderr=subprocess.DEVNULL)
        os.close(taken)
        os.close(given)
        self._number = 0
        self._unread = b""
        self._session = ""
        self.troubles: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE_S
        while (answer := self._next(deadline)).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Until it is true."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.1)

    def press(self, key: str, code: int) -> None:
        """A key, down and up."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": " "} if key == " " and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def close(self) -> None:
        """End the browser."""
        self._child.kill()
        self._child.wait()
        os.close(self._in)
        os.close(self._out)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser fell silent"
            self._unread += os.read(self._in, 1 << 20)
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.troubles.append(event["params"])
