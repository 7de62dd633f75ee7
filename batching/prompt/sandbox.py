"""The jinja environment of chat templates: what transformers offers, inside bounds.

Untrusted source: immutable sandbox, no loader, a short list of filters, and every loop, call, operator and
literal goes through the rendering's `Guard`. Autoescape is off: the output is a prompt, not a page.
Source: transformers' `chat_template_utils` for the names and settings that templates rely on.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn, cast

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from batching.prompt.errors import ChatTemplateError
from batching.prompt.guard import Guard

GUARD: ContextVar[Guard] = ContextVar("template_guard")
NOW: ContextVar[datetime] = ContextVar("template_now")

_PLAIN_FILTERS = (
    *("abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float"),
    *("forceescape", "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min"),
    *("reject", "rejectattr", "reverse", "safe", "select", "selectattr", "sort", "title", "trim"),
    *("truncate", "unique", "upper", "urlencode", "wordcount"),
)
_PADDING = ("ljust", "rjust", "center", "zfill", "expandtabs")
_MAX_FORMAT = 1000


class TemplateEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Compiles and runs templates under the `Guard` in `GUARD`."""

    intercepted_binops = frozenset(["+", "*", "%", "**"])
    concat = staticmethod(lambda parts: GUARD.get().join(parts))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            cache_size=0,
            finalize=lambda value: value if isinstance(value, str) else GUARD.get().checked(value),
            extensions=[_GenerationBlock, jinja2.ext.loopcontrols],
        )
        self.filters = {name: _bounded(self.filters[name]) for name in _PLAIN_FILTERS}
        self.filters.update(
            tojson=_tojson,
            join=_bounded(_join),
            replace=_bounded(_replace),
            indent=_bounded(_indent),
            string=_string,
            sum=_sum,
            round=_round,
        )
        self.globals = {
            "range": self.globals["range"],
            "dict": _TemplateDict(),
            "namespace": _TemplateNamespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        guarded = _Guarding().visit(source)
        return super()._generate(guarded, name, filename, defer_init)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        guard = GUARD.get()
        guard.tick()
        _check_method(guard, obj, args, kwargs)
        if _method_of_text(obj) == "join" and args:
            args = (guard.joined(obj.__self__, args[0]), *args[1:])
        return guard.checked(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        guard = GUARD.get()
        if operator == "+":
            guard.add(left, right)
        elif operator == "*":
            guard.repeat(left, right)
        elif operator == "**":
            guard.power(left, right)
        elif isinstance(left, str):
            guard.pattern(left)
            guard.weigh(right)
        return guard.checked(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if _method_of_text(value) in ("format", "format_map"):
            GUARD.get().pattern(value.__self__)
        return super().wrap_str_format(value)

    def guard_loop(self, items: Iterable[object]) -> Iterable[object]:
        """The iterable of a `for`, watched. Lists keep their length for `loop.length`."""
        return _Watched(items) if isinstance(items, (list, tuple)) else GUARD.get().each(items)

    def guard_value(self, value: object) -> object:
        """A list, tuple or map that the template spelled out, or a slice."""
        return GUARD.get().checked(value)

    def guard_concat(self, *parts: object) -> str:
        """`a ~ b`."""
        guard = GUARD.get()
        return guard.join([guard.text(part) for part in parts])


class _Watched:
    def __init__(self, items: list[object] | tuple[object, ...]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[object]:
        return GUARD.get().each(self._items)


class _Guarding(NodeTransformer):
    """Sends what a template loops over, spells out or strings together through the environment's guards."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _call("guard_loop", [node.iter], node)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("guard_concat", node.nodes, node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _call("guard_value", [node], node) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _call("guard_value", [node], node) if _is_computed(node) else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _call("guard_value", [node], node) if _is_computed(node) else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        is_read = node.ctx == "load" and _is_computed(node)
        return _call("guard_value", [node], node) if is_read else node


def _call(name: str, arguments: Sequence[nodes.Node], origin: nodes.Node) -> nodes.Node:
    call = nodes.Call(nodes.EnvironmentAttribute(name), cast("list[nodes.Expr]", arguments), [], None, None)
    return call.set_lineno(origin.lineno)


def _is_computed(node: nodes.Node) -> bool:
    leaves = (nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair)
    return not all(isinstance(child, leaves) for child in node.find_all(nodes.Expr))


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks text for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _TemplateDict:
    """`dict(...)` without the attributes of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)


class _TemplateNamespace(Namespace):
    """A namespace that stores no underscored names."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        values = dict(*rest, **kwargs)
        for name in values:
            _refuse_underscore(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<namespace>"


def _refuse_underscore(name: object) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot hold {name!r}")


def _method_of_text(value: object) -> str | None:
    """The name of a bound method of a string."""
    return getattr(value, "__name__", None) if isinstance(getattr(value, "__self__", None), str) else None


def _check_method(guard: Guard, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    name = _method_of_text(value)
    if name in _PADDING:
        for argument in (*args, *kwargs.values()):
            guard.width(argument if isinstance(argument, int) else 0)
        guard.size(value.__self__.count("\t") * _MAX_FORMAT if name == "expandtabs" else 0)
    elif name == "replace" and len(args) >= 2 and all(isinstance(part, str) for part in args[:2]):
        guard.replace(value.__self__, args[0], args[1])
    elif name == "translate":
        raise jinja2.exceptions.SecurityError("translate is not available in chat templates")


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose result is checked."""

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        return GUARD.get().checked(function(*args, **kwargs))

    return bounded


def _string(value: object) -> str:
    return GUARD.get().text(value)


@jinja2.pass_environment
def _join(
    environment: jinja2.Environment, value: Iterable[object], d: str = "", attribute: str | int | None = None
) -> str:
    guard = GUARD.get()
    items: Iterable[object] = guard.each(value)
    if attribute is not None:
        items = map(jinja2.filters.make_attrgetter(environment, attribute), items)
    return str(d).join(map(str, guard.joined(d, (guard.text(item) for item in items))))


@jinja2.pass_environment
def _sum(
    environment: jinja2.Environment,
    iterable: Iterable[object],
    attribute: str | int | None = None,
    start: float = 0,
) -> float:
    items: Iterable[object] = GUARD.get().each(iterable)
    if attribute is not None:
        items = map(jinja2.filters.make_attrgetter(environment, attribute), items)
    total = start + 0
    for item in items:
        if not isinstance(item, (int, float)):
            raise TypeError(f"sum takes numbers, not {type(item).__name__}")
        total += item
    return total


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    GUARD.get().width(precision)
    return jinja2.filters.do_round(value, precision, cast("Any", method))


def _replace(s: str, old: str, new: str, count: int | None = None) -> str:
    text, old, new = str(s), str(old), str(new)
    GUARD.get().replace(text, old, new)
    return text.replace(old, new, -1 if count is None else count)


def _indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    guard = GUARD.get()
    guard.width(width if isinstance(width, int) else len(width))
    guard.size(len(s) + s.count("\n") * (width if isinstance(width, int) else len(width)))
    return str(jinja2.filters.do_indent(s, width, first, blank))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, unlike jinja's own."""
    guard = GUARD.get()
    guard.weigh(value)
    guard.width(indent if isinstance(indent, int) else 0)
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    guard.checked(text)
    return text


def _raise_exception(message: object) -> NoReturn:
    raise ChatTemplateError(GUARD.get().text(message)[:1000])


def _strftime_now(format: str) -> str:
    if len(format) > _MAX_FORMAT:
        raise ChatTemplateError("the chat template uses a date format that is too long")
    GUARD.get().pattern(format)
    return NOW.get().strftime(format)
