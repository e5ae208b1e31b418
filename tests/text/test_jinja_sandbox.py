"""A hostile template can neither reach the process nor hang it nor fill its memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import ModelFileError
from zerolayer.text.jinja_sandbox import MAX_SOURCE, SandboxedTemplate, TemplateFailed


def rendered(source: str, *contents: str) -> str:
    messages = [{"role": "user", "content": content} for content in contents or ("hi",)]
    return SandboxedTemplate(source).render(messages, {"bos_token": "<s>"}, lambda date_format: f"[{date_format}]")


REAL = {
    "blocks are trimmed": ("{% if true %}\nx\n{% endif %}\ny", "x\ny"),
    "constants": ("{{ bos_token }}", "<s>"),
    "the date": ("{{ strftime_now('%Y') }}", "[%Y]"),
    "the turn is opened": ("{% if add_generation_prompt %}A{% endif %}", "A"),
    "tools and documents are none": ("{{ tools is none and documents is none }}", "True"),
    "json keeps Unicode": ("{{ 'é\"' | tojson }}", '"é\\""'),
    "loops break": ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
    "loops know their ends": (
        "{% for i in range(3) %}{{ loop.first }}{{ loop.last }} {% endfor %}",
        "TrueFalse FalseFalse FalseTrue ",
    ),
    "namespaces": (
        "{% set n = namespace(x=1) %}{% for i in range(3) %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}",
        "4",
    ),
    "comparisons": ("{{ messages[0] == messages[-1] and 'h' in messages[0].content and 1 in [1, 2] }}", "True"),
    "tests": ("{{ messages[0].content is string and x is not defined and 'a' is in ['a'] }}", "True"),
    "items": ("{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}", "role=user;content=hi;"),
    "selections": ("{{ (messages | selectattr('role', 'equalto', 'user') | list | first).content }}", "hi"),
    "macros": ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('a') }}", "<a>"),
    "generation blocks": ("{% generation %}x{% endgeneration %}", "x"),
    "joined texts": ("{{ 'a' ~ 1 ~ messages[0].content }}", "a1hi"),
    "string methods": ("{{ ' A b '.strip().lower().replace('b', 'c').split(' ')[-1] }}", "c"),
    "slices": ("{{ (messages[1:] | length) ~ messages[0]['content'][::-1] }}", "0ih"),
}


@pytest.mark.parametrize("case", REAL)
def test_what_real_templates_use_works(case: str) -> None:
    source, expected = REAL[case]
    assert rendered(source) == expected


LOOP = "{% set n = namespace(x='xx', y=9) %}{% for i in range(99) %}{% set n.BODY %}{% endfor %}{{ n.x }}{{ n.y }}"
HOSTILE = {
    "reaches for classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "reaches for globals": "{{ raise_exception.__globals__['x'] }}",
    "reaches the budget": "{{ range.__closure__[0] }}",
    "formats with attributes": "{{ '{0.__class__}'.format(messages) }}",
    "includes a file": "{% include '/etc/passwd' %}",
    "changes messages": "{{ messages.append(1) }}",
    "multiplies a text": "{{ 'x' * 1000000000 }}",
    "multiplies a list": "{{ [0] * 1000000000 }}",
    "pads a text": "{{ 'x'.ljust(1000000000) }}",
    "formats with a wide field": "{{ '{:>1000000000}'.format(1) }}",
    "formats with a width": "{{ '%1000000000d' % 1 }}",
    "powers": "{{ 9 ** 9 ** 9 ** 9 }}",
    "huge products": LOOP.replace("BODY", "y = n.y * n.y"),
    "doubles by plus": LOOP.replace("BODY", "x = n.x + n.x"),
    "doubles by tilde": LOOP.replace("BODY", "x = n.x ~ n.x"),
    "doubles by replace": LOOP.replace("BODY", "x = n.x.replace('x', 'xx')"),
    "doubles by join": LOOP.replace("BODY", "x = n.x | join(n.x)"),
    "doubles by filter": LOOP.replace("BODY", "x = n.x | replace('x', 'xx')"),
    "doubles by block": LOOP.replace("n.BODY %}", "n.x %}{{ n.x }}{{ n.x }}{% endset %}"),
    "doubles by macro": "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}" + LOOP.replace("BODY", "x = d(n.x)"),
    "collects slices": LOOP.replace("xx", "x" * 9999).replace("99)", "9999)").replace("BODY", "y = [n.x[1:], n.y]"),
    "collects lists": LOOP.replace("9)", "999)").replace("BODY", "y = [(n.x + 'x')|upper|list, n.y]"),
    "hoards its own text": "{% set x %}{% for i in range(90000) %}" + "x" * 1000 + "{% endfor %}{% endset %}",
    "prints lists in lists": LOOP.replace("BODY", "x = [n.x, n.x]"),
    "writes lists in lists": LOOP.replace("BODY", "x = [n.x, n.x]").replace("{{ n.x }}", "{{ n.x | tojson }}"),
    "joins lists in lists": LOOP.replace("BODY", "x = [n.x, n.x]").replace("{{ n.x }}", "{{ n.x | join }}"),
    "trims lists in lists": LOOP.replace("BODY", "x = [n.x, n.x]").replace("{{ n.x }}", "{{ n.x | trim }}"),
    "compares lists in lists": (
        LOOP.replace("BODY", "x = [n.x, n.x] %}{% set n.y = [n.y, n.y]").replace("{{ n.x }}", "{{ n.x == n.y }}")
    ),
    "tests lists in lists": (
        LOOP.replace("BODY", "x = [n.x, n.x] %}{% set n.y = [n.y, n.y]").replace("{{ n.x }}", "{{ n.x is eq(n.y) }}")
    ),
    "takes tuples in tuples as key": LOOP.replace("BODY", "x = (n.x, n.x)").replace("{{ n.x }}", "{{ {n.x: 1} }}"),
    "a long loop": "{% for i in range(1000000000) %}{% endfor %}",
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops over lists in loops": (
        "{% set l = range(3000) | list %}{% for i in l %}{% for j in l %}{% for k in l %}"
        "{% endfor %}{% endfor %}{% endfor %}"
    ),
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching recursion": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(200) }}",
    "a wide indent": "{{ messages | tojson(indent=1000000000) }}",
    "divides by zero": "{{ 1 // 0 }}",
    "calls what is no function": "{{ messages() }}",
    "uses what is undefined": "{{ nothing.at.all }}",
    "refuses": "{{ raise_exception('no') }}",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_template_only_fails(case: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((TemplateFailed, ModelFileError)):
            rendered(HOSTILE[case])
        assert tracemalloc.get_traced_memory()[1] < 192 << 20
    finally:
        tracemalloc.stop()


def test_output_is_limited() -> None:
    with pytest.raises(TemplateFailed):
        rendered("{% for i in range(10000) %}{{ messages[0].content }}{% endfor %}", "x" * 10_000)


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ 'x' | format_disk }}", "{{ 'x' | center(9) }}", "{% endif %}", "{{"]
)
def test_what_is_no_template_is_a_clear_error(source: str) -> None:
    with pytest.raises(ModelFileError, match="chat template"):
        SandboxedTemplate(source)


def test_a_template_that_is_too_long_is_a_clear_error() -> None:
    with pytest.raises(ModelFileError, match="the limit is"):
        SandboxedTemplate("x" * (MAX_SOURCE + 1))


def test_a_template_nested_too_deep_is_a_clear_error() -> None:
    with pytest.raises(ModelFileError):
        SandboxedTemplate("{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}")


def test_many_messages_are_within_the_budget() -> None:
    source = "{% for m in messages %}{{ m.content.strip() }}{% endfor %}"
    assert rendered(source, *["x"] * 1024) == "x" * 1024


def test_the_texts_written_in_a_template_are_known() -> None:
    literals = SandboxedTemplate("{% if '</think>' in messages[0].content %}{{ 'a' + 'b' }}{% endif %}").literals
    assert {"</think>"} <= set(literals)


@given(st.text(st.sampled_from("{}%ifor nml.[]()'x|+~*-\n"), max_size=40))
def test_any_source_renders_or_fails_clearly(source: str) -> None:
    try:
        text = rendered(source)
    except (TemplateFailed, ModelFileError):
        text = ""
    assert isinstance(text, str)
