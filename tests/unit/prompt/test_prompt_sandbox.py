"""Templates are untrusted code: what they may reach, how long they may run, how much they may make."""

from __future__ import annotations

import tracemalloc
from datetime import datetime
from typing import Any

import pytest

from batching.prompt import ChatTemplate, ChatTemplateError
from batching.prompt.guard import Guard, Limits

NOW = datetime(2025, 1, 1)
MESSAGES = [{"role": "user", "content": "hello"}]
TIGHT = Limits(seconds=0.3, characters=200_000, values=20_000, made_bytes=10_000_000)


def render(source: str, limits: Limits = TIGHT, messages: Any = MESSAGES) -> str:
    return ChatTemplate(source, {}, limits).render(messages, {}, now=NOW).text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{% for x in [1, 2, 3] %}{{ loop.length }}{{ loop.last }}"
            "{% if x == 2 %}{% break %}{% endif %}{% endfor %}",
            "3False3False",
        ),
        ("{% for c in messages[0].content %}{{ loop.revindex }}{% endfor %}", "54321"),
        ("{% for k, v in {'a': 1}.items() %}{{ k ~ v }}{% endfor %}", "a1"),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}"
            "{{ ns.n }}",
            "10",
        ),
        ("{{ {'b': 'é<&>', 'a': [1, None, true]} | tojson }}", '{"b": "é<&>", "a": [1, null, true]}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{% generation %}kept{% endgeneration %}", "kept"),
        ("{% if x is defined %}a{% else %}b{% endif %}{{ missing }}", "b"),
        ("{{ ['a', 'b'] | join('-') }}{{ [{'n': 'c'}] | map(attribute='n') | join }}", "a-bc"),
        ("{{ 'a,b'.split(',') | last }}{{ 'xay' | replace('a', 'b') }}{{ ' z ' | trim }}", "bxbyz"),
        ("{{ 'l1\nl2' | indent(2) }}", "l1\n  l2"),
        ("{{ [3, 1] | sort | first }}{{ [1, 2] | sum }}{{ 2.5 | round }}{{ '%02d' % 7 }}", "132.007"),
        ("{{ '{:>3}'.format('x') }}{{ 'x'.ljust(3) }}|", "  xx  |"),
        ("{%- for m in messages if m.role == 'user' -%}\n  {{- m.content -}}\n{%- endfor -%}", "hello"),
        ("{% macro f(x, y='d') %}{{ x }}{{ y }}{% endmacro %}{{ f(1) }}{{ f(2, y=3) }}", "1d23"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ dict(a=1).a }}{{ (1, 2)[0] }}{{ [1] + [2] }}{{ 'ab' * 2 }}", "11[1, 2]abab"),
    ],
)
def test_what_templates_use_works(source: str, text: str) -> None:
    assert render(source) == text


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'a': 1}) }}",
    "{{ ''['__class__'].x }}",
    "{{ (''|attr('__class__')).x.y }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{% set ns = namespace(__class__=1) %}",
    "{% set ns = namespace() %}{% set ns.__init__ = 1 %}",
    "{% include 'x' %}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
    "{{ lipsum() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ raise_exception.__globals__.x }}",
    "{{ range.__self__.x }}",
    "{{ self.__init__.__globals__ }}",
    "{{ 'x' | pprint }}",
    "{{ 'a'.translate({97: 'b' * 1000}) }}",
]


@pytest.mark.pitfall("S18")
@pytest.mark.parametrize("source", ESCAPES)
def test_a_template_cannot_reach_beyond_its_messages(source: str) -> None:
    with pytest.raises(ChatTemplateError):
        render(source)


GROWING = [
    ("'aaaa'", "ns.x + ns.x"),
    ("'aaaa'", "ns.x ~ ns.x"),
    ("'aaaa'", "[ns.x, ns.x] | join"),
    ("'aaaa'", "'%s%s' % (ns.x, ns.x)"),
    ("'aaaa'", "'{}{}'.format(ns.x, ns.x)"),
    ("'aaaa'", "ns.x | replace('a', 'aa')"),
    ("[1]", "ns.x + ns.x"),
    ("[]", "[ns.x, ns.x]"),
    ("[]", "(ns.x, ns.x)"),
    ("{}", "{'a': ns.x, 'b': ns.x}"),
    ("{}", "dict(a=ns.x, b=ns.x)"),
    ("{1: 2}", "{1: ns.x.items(), 2: ns.x.items()}"),
    ("{1: 2}", "{1: ns.x.values(), 2: ns.x.values()}"),
    ("9", "ns.x * ns.x"),
]
BOMBS = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% set r = range(9999) | list %}"
    "{% for i in r %}{% for j in r %}{% for k in r %}{% endfor %}{% endfor %}{% endfor %}",
    "{{ 'x' * 10000000000 }}",
    "{{ [1] * 10000000000 }}",
    "{{ 9 ** 999999999 }}",
    "{{ 'x'.ljust(1000000000) }}{{ 'x'.zfill(1000000000) }}",
    "{{ 'x'.center(width=1000000000) }}",
    "{{ '\\t\\t\\t\\t'.expandtabs(1000000000) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ 'x' | indent(1000000000, true) }}",
    "{{ [1] | tojson(indent=1000000000) }}",
    "{{ 5 | round(-1000000000) }}",
    "{{ 'x'.replace('', 'y' * 100000).replace('y', 'z' * 100000) }}",
    "{{ ('x' * 100000) | replace('x', 'z' * 100000) }}",
    "{{ ('a' * 100000).join(range(9999) | map('string') | list) }}",
    "{{ range(9999) | join('a' * 100000) }}",
    "{{ ('&' * 100000) | e | e | e | e | e | e | e | e }}",
    "{{ strftime_now('%999999999d') }}",
    "{% set big %}{% for i in range(99999) %}{{ 'aaaaaaaaaa' * 200 }}{% endfor %}{% endset %}",
    "{% for i in range(99999) %}{{ 'aaaaaaaaaaaaaaaaaaaa' * 100 }}{% endfor %}",
    "{% for i in range(9999) %}{% set x = 'x' * 199999 %}{% endfor %}",
    "{% set a = 'x' * 199999 %}" + "".join(f"{{% set a{i} = a[1:] %}}" for i in range(999)),
    "{% set a = range(9999) | list %}" + "".join(f"{{% set a{i} = a[1:] %}}" for i in range(999)),
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    *(
        f"{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}{{% set ns.x = {step} %}}"
        "{% endfor %}{{ ns.x }}"
        for start, step in GROWING
    ),
]


@pytest.mark.parametrize("source", BOMBS)
def test_a_bomb_is_refused_within_its_bounds(source: str) -> None:
    tracemalloc.start()
    with pytest.raises(ChatTemplateError):
        render(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.pitfall("S18")
def test_s18_a_template_that_never_ends_is_stopped_by_the_clock() -> None:
    ticks = iter(range(10**9))
    guard = Guard(Limits(seconds=50), clock=lambda: next(ticks))
    with pytest.raises(ChatTemplateError, match="ran longer than 50 s"):
        list(guard.each(range(1000)))


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{",
        "{% for x in y %}",
        "{{ x | nonsense }}",
        "{" * 100_000,
        "{{ " + "(" * 4000,
        "x" * 300_000,
    ],
)
def test_what_is_no_template_is_refused_when_it_is_read(source: str) -> None:
    with pytest.raises(ChatTemplateError):
        ChatTemplate(source, {})


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' + 1 }}",
        "{{ x.y.z }}",
        "{{ 1 / 0 }}",
        "{{ messages[9].content }}",
        "{{ [1] | tojson(1, 2, 3, 4, 5) }}",
    ],
)
def test_a_template_that_fails_says_how(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="the chat template failed"):
        render(source)


def test_a_failure_leaves_the_template_usable() -> None:
    template = ChatTemplate("{{ messages[0].content + '!' }}", {})
    with pytest.raises(ChatTemplateError):
        template.render([{"role": "user", "content": None}], {}, now=NOW)
    assert template.render(MESSAGES, {}, now=NOW).text == "hello!"
