"""A conversation to token ids, by the model's own chat template.

``compile`` takes the template apart into constant segments (``segments``), and proves on probe conversations that
joining the segments gives exactly the ids of rendering the template and encoding the result; then no template runs per
request. A template that cannot be taken apart, or that fails the proof, keeps running in the sandbox.

A conversation with tools, calls or results takes the sandboxed path too if the template writes tools itself, else they
become plain messages first (``tool_prompt``).

On both paths control tokens come from the template's own text only. What people write is never read as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Self

from zerolayer.errors import InvalidRequest, ModelFileError
from zerolayer.text.encode import Encoder
from zerolayer.text.jinja_sandbox import SandboxedTemplate, TemplateFailed
from zerolayer.text.probes import conversations, probe_contents
from zerolayer.text.segments import (
    Date,
    Formats,
    Gap,
    GapKey,
    Next,
    NotSeparable,
    System,
    gap_keys,
    learn,
    sentinel,
)
from zerolayer.text.shield import Shield
from zerolayer.text.tool_prompt import (
    PROBE,
    guarded,
    message_value,
    plain_messages,
    texts_in,
    tool_value,
    uses_tools,
)
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.schema import Message, Tool

ROLES = ("system", "user", "assistant", "tool")
# OpenAI's newer name for the same thing; models know the older one.
_SYNONYMS = {"developer": "system"}
_REFUSED = (
    "The model's chat template does not accept this order of roles. "
    "Let user and assistant alternate, with at most one system message, first."
)

# A gap as tokens: a control token's id, ids of a constant text between two control tokens, or text to be encoded
# together with its neighbours.
Step = int | tuple[int, ...] | str | System | Next | Date


def _local_now() -> datetime:
    return datetime.now().astimezone()


class ChatTemplate:
    """Encodes conversations. ``compiled``: no template runs per request; ``why``: the reason if it does.

    ``knows_tools``: whether the template writes tools itself.
    """

    def __init__(self, source: str, vocabulary: Vocabulary, encoder: Encoder, now: Callable[[], datetime]) -> None:
        self.compiled = False
        self.why = ""
        self.knows_tools = False
        self._encoder = encoder
        self._now = now
        self._sandboxed = SandboxedTemplate(source)
        self._shield = Shield(vocabulary.special_ids)
        self._special_ids = vocabulary.special_ids
        self._constants = {
            "bos_token": vocabulary.token_text(vocabulary.bos_id),
            "eos_token": vocabulary.token_text(vocabulary.eos_id),
        }
        self._compiled_roles: frozenset[str] = frozenset()
        self._steps: dict[GapKey, tuple[Step, ...]] = {}

    @classmethod
    def compile(
        cls, source: str, vocabulary: Vocabulary, encoder: Encoder, *, now: Callable[[], datetime] = _local_now
    ) -> Self:
        """Take the template apart and prove it. ``now`` gives the local time, for templates that print the date.

        Raises ``ModelFileError`` if the template is no valid Jinja or refuses even a single user message.
        """
        template = cls(source, vocabulary, encoder, now)
        moment = now()
        try:
            template._encode_sandboxed([Message("user", "x")], moment)
        except InvalidRequest:
            raise ModelFileError(
                "The model's chat template fails on a single user message. Use another model file."
            ) from None
        template.knows_tools = template._writes_tools(moment)
        contents = probe_contents(template._sandboxed.literals, list(vocabulary.special_ids))
        for roles in (ROLES, ROLES[:3]):
            template.why = template._try(roles, contents, moment)
            if not template.why:
                template.compiled = True
                template._compiled_roles = frozenset(roles)
                break
        return template

    def encode(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Token ids of the conversation with the assistant's turn opened; ``tools`` are those that the model may call.

        Raises ``InvalidRequest`` for no messages, an unknown role, and an order of roles that the template refuses.
        """
        messages = _checked(messages)
        moment = self._now()
        if uses_tools(messages, tools):
            if self.knows_tools:
                return self._encode_sandboxed(messages, moment, tools)
            messages = plain_messages(messages, tools)
        ids = None
        if self.compiled and all(message.role in self._compiled_roles for message in messages):
            ids = self._encode_compiled(messages, moment)
        # An order of roles that never occurred while compiling: the template itself says whether it is refused.
        return self._encode_sandboxed(messages, moment) if ids is None else ids

    def encode_sandboxed(self, messages: Sequence[Message]) -> list[int]:
        """The same by rendering the template: the definition of what ``encode`` must give."""
        return self._encode_sandboxed(_checked(messages), self._now())

    def _writes_tools(self, moment: datetime) -> bool:
        probe = [tool_value(PROBE)]
        try:
            rendering = self._sandboxed.render(
                [message_value(Message("user", "x"))], self._constants, moment.strftime, probe
            )
        except TemplateFailed:
            return False
        return PROBE.name in rendering

    def _encode_sandboxed(
        self,
        messages: Sequence[Message],
        moment: datetime,
        tools: Sequence[Tool] = (),
        guard: Callable[[str, str], str] | None = None,
    ) -> list[int]:
        """Render, cut at control tokens, encode what lies between.

        Names of control tokens in contents are broken by a mark before, and healed after the cutting. ``guard``: the
        shield's, or one that remembers.
        """
        shield = self._shield
        values, offered = [message_value(m) for m in messages], [tool_value(tool) for tool in tools]
        mark = shield.mark(texts_in([values, offered]))
        breaks = guard or shield.guard
        values, offered = (guarded(value, lambda text: breaks(text, mark)) for value in (values, offered))
        try:
            rendering = self._sandboxed.render(values, self._constants, moment.strftime, offered)
        except TemplateFailed:
            raise InvalidRequest(_REFUSED, param="messages") from None
        ids: list[int] = []
        for text, token in shield.split(rendering):
            healed = text.replace(mark, "")
            if healed:
                ids += self._encoder.encode(healed)
            if token is not None:
                ids.append(token)
        return ids

    def _encode_compiled(self, messages: Sequence[Message], moment: datetime) -> list[int] | None:
        """Walk the gaps; None if one is unknown.

        Text between two control tokens is encoded as one piece, as tokens may cross the borders of contents.
        """
        ids: list[int] = []
        pending: list[str] = []
        system_first = messages[0].role == "system"
        following = iter(messages[1:] if system_first else messages)
        for key in gap_keys([message.role for message in messages]):
            steps = self._steps.get(key)
            if steps is None:
                return None
            for step in steps:
                if isinstance(step, str):
                    pending.append(step)
                elif isinstance(step, Next):
                    pending.append(step.strip.apply(next(following).content))
                elif isinstance(step, System):
                    pending.append(step.strip.apply(messages[0].content))
                elif isinstance(step, Date):
                    pending.append(moment.strftime(step.format))
                else:
                    self._flush(pending, ids)
                    ids += (step,) if isinstance(step, int) else step
        self._flush(pending, ids)
        return ids

    def _flush(self, pending: list[str], ids: list[int]) -> None:
        text = "".join(pending)
        pending.clear()
        if text:
            ids += self._encoder.encode(text)

    def _try(self, roles: Sequence[str], contents: Sequence[str], moment: datetime) -> str:
        """Compile for these roles; empty if that is proven, else why not."""
        formats = Formats()

        def render(order: tuple[str, ...]) -> str | None:
            messages = [{"role": role, "content": sentinel(index)} for index, role in enumerate(order)]
            try:
                return self._sandboxed.render(messages, self._constants, formats.strftime)
            except TemplateFailed:
                return None

        try:
            gaps = learn(roles, render, formats)
        except NotSeparable as reason:
            return str(reason)
        self._steps = {key: self._tokens(key, gap) for key, gap in gaps.items()}
        guard = cache(self._shield.guard)  # the same contents in many orders
        for probe in conversations(roles, contents):
            try:
                expected: list[int] | None = self._encode_sandboxed(probe, moment, guard=guard)
            except InvalidRequest:
                expected = None
            if self._encode_compiled(probe, moment) != expected:
                return "a probe conversation gives other tokens"
        return ""

    def _tokens(self, key: GapKey, gap: Gap) -> tuple[Step, ...]:
        """The gap with control tokens as ids, and texts that stand between two of them encoded."""
        steps: list[Step] = []
        for item in gap:
            if not isinstance(item, str):
                steps.append(item)
                continue
            for text, token in self._shield.split(item):
                if text:
                    steps.append(text)
                if token is not None:
                    steps.append(token)
        closed: list[Step] = []
        for at, step in enumerate(steps):
            opens = at > 0 and isinstance(steps[at - 1], int)
            closes = isinstance(steps[at + 1], int) if at + 1 < len(steps) else key.right is None
            closed.append(tuple(self._encoder.encode(step)) if isinstance(step, str) and opens and closes else step)
        return tuple(closed)


def _checked(messages: Sequence[Message]) -> list[Message]:
    if not messages:
        raise InvalidRequest("messages is empty. Send at least one message.", param="messages")
    checked: list[Message] = []
    for index, message in enumerate(messages):
        role = _SYNONYMS.get(message.role, message.role)
        if role not in ROLES:
            raise InvalidRequest(
                f"The role of message {index} is unknown. Use one of {', '.join(ROLES)}.",
                param=f"messages[{index}].role",
            )
        checked.append(message if role == message.role else Message(role, message.content))
    return checked
