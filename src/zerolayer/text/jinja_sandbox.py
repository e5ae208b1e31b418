"""Runs a model's own chat template, which is a program from a stranger, within limits.

Templates are written for Jinja as Hugging Face runs it
(https://huggingface.co/docs/transformers/chat_templating_writing): blocks trimmed, ``break`` and ``continue``,
``raise_exception``, ``strftime_now``, ``tojson`` that keeps Unicode. Here they run in Jinja's immutable sandbox, and
every loop item, every call and every text and list that is made is paid from a budget: a template can neither reach the
process nor hang it nor fill its memory.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

from zerolayer.errors import ModelFileError

MAX_SOURCE = 1 << 17  # characters; the longest public templates have some 20,000
MAX_TEXT = 1 << 22  # characters of a rendering, and of any text on the way
STEPS = 100_000  # loop items and calls, plus STEPS_A_MESSAGE for each message
STEPS_A_MESSAGE = 1_000
CHARACTERS = 1 << 25  # of all texts together that are made on the way; an item of a list counts as _ITEM
_ITEM = 8

_STRING_METHODS = (
    "strip lstrip rstrip split rsplit startswith endswith lower upper title capitalize find replace removeprefix "
    "removesuffix partition rpartition isdigit isalpha isspace splitlines"
)
_FILTERS = "abs count d default first items last length map reject rejectattr reverse round select selectattr"
_TEXT_FILTERS = "capitalize float int lower string title trim upper"
_TESTS = (
    "defined undefined none string mapping iterable sequence number integer float boolean true false odd even "
    "divisibleby lower upper"
)
_COMPARING_TESTS = "eq equalto == ne != in"


class TemplateFailed(Exception):
    """The template refused the conversation, or did what it may not do."""


def _text(value: object) -> str:
    """What is printed: texts and numbers. Lists inside lists, each twice, would print without end."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float, Undefined)):
        return str(value)
    raise SecurityError("only texts and numbers can be printed")


class _Budget:
    """What one rendering may still do."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.characters = CHARACTERS

    def step(self, count: int) -> None:
        """Pay for loop items and calls."""
        self.steps -= count
        if self.steps < 0:
            raise SecurityError("too many steps")

    def room(self, length: int) -> None:
        """Pay for a text of ``length`` characters, before it is made where that is possible."""
        self.characters -= length
        if length > MAX_TEXT or self.characters < 0:
            raise SecurityError("too much text")

    def made(self, value: Any) -> Any:
        """Pay for a value that was made, and pass it on."""
        if isinstance(value, str):
            self.room(len(value))
        elif isinstance(value, (list, tuple)):
            self.room(len(value) * _ITEM)
        return value

    def weighed(self, value: Any) -> Any:
        """Pay for every value inside ``value``, which is to be compared or written, and pass it on."""
        if isinstance(value, (list, tuple)):
            self.step(1 + len(value))
            for item in value:
                self.weighed(item)
        elif isinstance(value, dict):
            self.weighed(list(value.values()))
        return value

    def counted(self, items: Iterable[object]) -> Sequence[object]:
        """The items of a loop."""
        listed = list(items)
        self.step(len(listed))
        return listed

    def range(self, *bounds: int) -> range:
        """Jinja's ``range``."""
        numbers = range(*bounds)
        self.step(len(numbers))
        return numbers

    def join(self, value: Iterable[object], separator: str = "", attribute: str | None = None) -> str:
        """Jinja's filter ``join``, without attributes."""
        if attribute is not None:
            raise SecurityError("join by attribute")
        parts = [_text(part) for part in value]
        self.room(sum(map(len, parts)) + len(parts) * len(separator))
        return separator.join(parts)

    def replace(self, value: object, old: str, new: str, count: int = -1) -> str:
        """``str.replace``."""
        text = _text(value)
        self.room(len(text) + text.count(old) * len(new))
        return text.replace(old, new, count)

    def tojson(self, value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
        """Jinja's filter ``tojson`` as Hugging Face defines it."""
        if indent is not None and not 0 <= indent <= 8:
            raise SecurityError("indent")
        text = json.dumps(self.weighed(value), ensure_ascii=ensure_ascii, indent=indent)
        self.room(len(text))
        return text


def _raise_exception(_message: str) -> str:
    raise TemplateError("refused by the template")


class _Generation(Extension):
    """``{% generation %}`` marks assistant text for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own interface

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Limits(NodeTransformer):
    """Loops count their items, ``~`` joins within the limit, the template's own text is paid for like other text."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's naming
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "list", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - Jinja's naming
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802 - Jinja's naming
        self.generic_visit(node)
        sides: list[nodes.Compare | nodes.Operand] = [node, *node.ops]
        for side in sides:
            side.expr = nodes.Filter(side.expr, "zl_weighed", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802 - Jinja's naming
        """Lists in place of tuples: a tuple of tuples, each twice, would take for ever to become a key."""
        self.generic_visit(node)
        return nodes.List(node.items, lineno=node.lineno) if node.ctx == "load" else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802 - Jinja's naming
        return nodes.Const(node.data, lineno=node.lineno)


class _Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template. ``budget`` is that of the rendering under way; renderings take turns."""

    intercepted_binops = frozenset({"+", "*", "%", "**"})

    def __init__(self) -> None:
        self.budget = _Budget(0)
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            finalize=pass_context(lambda _context, value: self.budget.made(_text(value))),
        )
        own = {name: self._late(name) for name in ("join", "replace", "tojson")}
        own |= {"list": self._late("counted"), "zl_weighed": self._late("weighed")}
        own |= {name: self._paid(self.filters[name]) for name in _FILTERS.split()}
        self.filters = own | {name: self._paid(self.filters[name], _text) for name in _TEXT_FILTERS.split()}
        comparing = {name: self._weighing(self.tests[name]) for name in _COMPARING_TESTS.split()}
        self.tests = comparing | {name: self.tests[name] for name in _TESTS.split()}
        self.globals = {name: self.globals[name] for name in ("dict", "namespace")}
        self.globals |= {"range": self._late("range"), "raise_exception": _raise_exception}

    def _paid(self, function: Callable[..., Any], argument: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
        """A filter whose result is paid for. ``wraps`` keeps Jinja's mark of what the filter wants to be passed."""

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if argument is not None:
                args = (argument(args[0]), *args[1:])
            return self.budget.made(function(*args, **kwargs))

        return run

    def _weighing(self, function: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            return function(*(self.budget.weighed(arg) for arg in args))

        return run

    def _late(self, name: str) -> Callable[..., Any]:
        """A method of the budget that is in force when it is called."""

        def run(*args: Any, **kwargs: Any) -> Any:
            return getattr(self.budget, name)(*args, **kwargs)

        return run

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Limits().visit(tree)
        return tree

    def getitem(self, obj: Any, argument: Any) -> Any:
        value = super().getitem(obj, argument)
        return self.budget.made(value) if isinstance(argument, slice) else value

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            for side in (left, right):
                self.budget.made(side)
        elif not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
            raise SecurityError("only numbers")  # "x" * 10**9, "%999999999d" % 1
        elif operator == "**" or (operator == "*" and max(abs(left), abs(right)) > 1 << 53):
            raise SecurityError("number too large")
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> None:
        """``str.format`` is not offered ("{:>999999999}".format(1)): is_safe_attribute refuses it."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr not in _STRING_METHODS.split():
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.budget.step(1)
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and getattr(obj, "__name__", "") == "replace":
            return self.budget.replace(owner, *args, **kwargs)
        return self.budget.made(super().call(context, obj, *args, **kwargs))


class SandboxedTemplate:
    """A parsed template. ``literals``: the texts written in its expressions, to probe it with."""

    def __init__(self, source: str) -> None:
        """``ModelFileError`` if the template is too long or no valid Jinja."""
        if len(source) > MAX_SOURCE:
            raise ModelFileError(
                f"The model's chat template has {len(source)} characters; the limit is {MAX_SOURCE}. "
                "Use another model file."
            )
        self._sandbox = _Sandbox()
        self._turn = threading.Lock()
        try:
            tree = self._sandbox.parse(source)
            self._template = self._sandbox.from_string(source)
        except TemplateSyntaxError as error:
            raise ModelFileError(
                f"The model's chat template is not valid Jinja (line {error.lineno}). Use another model file."
            ) from None
        except Exception:  # noqa: BLE001 - unknown filters, nesting too deep: nothing of a stranger's program may escape
            raise ModelFileError(
                "The model's chat template uses something that the sandbox does not offer. Use another model file."
            ) from None
        texts = (node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str))
        self.literals = tuple(dict.fromkeys(text for text in texts if text))

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        constants: dict[str, str],
        strftime: Callable[[str], str],
        tools: Sequence[dict[str, Any]] = (),
    ) -> str:
        """The prompt for ``messages`` with the assistant's turn opened; ``TemplateFailed`` if the template refuses."""
        known: dict[str, object] = {
            **constants,
            "messages": list(messages),
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": True,
            "strftime_now": strftime,
        }
        with self._turn:
            self._sandbox.budget = _Budget(STEPS + STEPS_A_MESSAGE * (len(messages) + len(tools)))
            try:
                rendering = self._template.render(known)
            except Exception:  # noqa: BLE001 - whatever a stranger's program raises means the same: it refused
                raise TemplateFailed from None
        if len(rendering) > MAX_TEXT:
            raise TemplateFailed
        return rendering
