r"""How the supported families of models write calls of tools, as their chat templates show.

| family | a call |
|---|---|
| Hermes, Qwen | ``<tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>`` |
| Llama 3 | the whole answer is ``{"name": "f", "parameters": {...}}``, perhaps after ``<|python_tag|>`` |
| Mistral | ``[TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]``, newer ones ``[TOOL_CALLS]f[ARGS]{...}`` |

A model whose template knows no tools is asked for the first form (``tool_prompt``).
"""

from __future__ import annotations

from typing import Final

import msgspec


class ToolFormat(msgspec.Struct, frozen=True):
    """What stands around the JSON of calls. The constants below are all there are."""

    name: str
    marker: str  # begins a call wherever it stands
    arguments: str  # the member with the arguments
    before: str = ""  # between marker and the first call
    between: str | None = None  # two calls; None: the model makes one only
    after: str = ""  # the last call
    bare: bool = False  # a call may be the whole answer, without a marker
    named: bool = False  # the name stands before the arguments, which are the only JSON
    marks_each: bool = False  # the marker stands before every call, ``after`` behind every one

    @property
    def markers(self) -> tuple[str, ...]:
        """Names of control tokens that must not be left out of the text."""
        return (self.marker, "</tool_call>", "[ARGS]")


HERMES: Final = ToolFormat(
    "hermes", "<tool_call>", "arguments", before="\n", between="\n", after="\n</tool_call>", marks_each=True
)
LLAMA: Final = ToolFormat("llama", "<|python_tag|>", "parameters", bare=True)
MISTRAL: Final = ToolFormat("mistral", "[TOOL_CALLS]", "arguments", before="[", between=", ", after="]")
MISTRAL_NAMED: Final = ToolFormat("mistral-named", "[TOOL_CALLS]", "arguments", between="", named=True, marks_each=True)


def format_of(template: str | None) -> ToolFormat:
    """The format that a chat template shows, given its source; ``HERMES`` where it shows none."""
    source = template or ""
    if "[TOOL_CALLS]" in source:
        return MISTRAL_NAMED if "[ARGS]" in source else MISTRAL
    if "<tool_call>" not in source and "<|start_header_id|>" in source and "parameters" in source:
        return LLAMA
    return HERMES
