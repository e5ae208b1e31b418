"""The chat command's screen: one answer, or a conversation until the end of input."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TextIO

from zerolayer.client.answer import Outcome
from zerolayer.client.client import Client
from zerolayer.client.errors import ClientError

JSON_VERSION = 1
# What a terminal would obey rather than show: C0 without tab and line feed, DEL, C1.
_UNSAFE = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")


@dataclass(frozen=True)
class ChatOptions:
    """What the chat command was asked; ``text`` None means a conversation."""

    url: str
    text: str | None = None
    system: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    json: bool = False
    key: str = field(default="", repr=False)


def chat(options: ChatOptions) -> int:
    """Ask the running server and print what it says; the exit code. Raises ``ClientError``."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an answer may hold what this terminal's encoding lacks
    client = Client(options.url, api_key=options.key, on_wait=_tell_wait)
    messages = [{"role": "system", "content": options.system}] if options.system else []
    if options.text is None:
        return _converse(client, messages, options)
    messages.append({"role": "user", "content": options.text})
    answer, outcome = _ask(client, messages, options, sys.stdout)
    if options.json:
        print(json.dumps({"version": JSON_VERSION, "text": answer, **asdict(outcome)}, ensure_ascii=False))
    return 0


def _converse(client: Client, messages: list[dict[str, str]], options: ChatOptions) -> int:
    """Read lines, answer each with all before it as context; an error ends one answer, not the conversation."""
    with suppress(ImportError):
        import readline  # noqa: F401 - its import gives input() line editing and history
    if sys.stdin.isatty():
        print("End with Ctrl-D.", file=sys.stderr)
    while True:
        try:
            text = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            if sys.stdin.isatty():
                print()  # Ctrl-D leaves the cursor behind the prompt
            return 0
        if not text.strip():
            continue
        messages.append({"role": "user", "content": text})
        try:
            answer, outcome = _ask(client, messages, options, sys.stdout)
        except ClientError as error:
            print(f"\nzerolayer: {error.message.translate(_UNSAFE)}", file=sys.stderr)
            messages.pop()
            continue
        except KeyboardInterrupt:
            print("\nStopped.", file=sys.stderr)
            messages.pop()
            continue
        messages.append({"role": "assistant", "content": answer})
        if options.json:
            print(json.dumps({"version": JSON_VERSION, "text": answer, **asdict(outcome)}, ensure_ascii=False))


def _ask(client: Client, messages: list[dict[str, str]], options: ChatOptions, screen: TextIO) -> tuple[str, Outcome]:
    """One answer, shown piece by piece (not with ``--json``), and how it ended."""
    shown = _shower(screen)
    pieces: list[str] = []
    with client.chat(messages, max_tokens=options.max_tokens, temperature=options.temperature) as stream:
        for piece in stream:
            pieces.append(piece)
            if not options.json:
                shown(piece)
    outcome = stream.outcome or Outcome()
    if not options.json:
        screen.write("\n")
        if outcome.finish_reason == "length":
            print("(cut at the token limit; --max-tokens raises it)", file=sys.stderr)
    return "".join(pieces), outcome


def _shower(screen: TextIO) -> Callable[[str], None]:
    """Write and flush; on a terminal, control characters are replaced so that a model cannot steer it."""
    is_terminal = screen.isatty()

    def show(piece: str) -> None:
        screen.write(piece.translate(_UNSAFE) if is_terminal else piece)
        screen.flush()

    return show


def _tell_wait(wait_ms: int) -> None:
    print(f"all slots busy, starting in {wait_ms} ms", file=sys.stderr, flush=True)
