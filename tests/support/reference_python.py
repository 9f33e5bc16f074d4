"""The page of the Python calls, made of signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterator, Sequence

from genagent_backends.gates import Gates
from genagent_protocol import errors
from genagentd import Agent, Client, messages, telemetry, testing
from genagentd import __all__ as public_names
from genagentd.agent.context import Context
from genagentd.agent.peers import Peers
from genagentd.client.captured import Captured
from genagentd.client.group import Group
from genagentd.client.mailbox import Mailbox
from genagentd.client.session import Session
from support.reference_markdown import filled, first_sentences, prose, table

#: The classes whose public methods are shown, and what stands before them.
CLASSES: tuple[tuple[str, type, str], ...] = (
    ("Agent", Agent, "`from genagentd import Agent`."),
    ("context", Context, "`self.context` in every callback of an agent."),
    ("context.peers", Peers, "`self.context.peers` in every callback of an agent."),
    ("Client", Client, "`from genagentd import Client`."),
    ("Client.at(handle)", Captured, "What can be asked of exactly the process of a handle."),
    ("Mailbox", Mailbox, "Made by `client.mailbox()` and `client.telemetry()`."),
    (
        "Session",
        Session,
        "Made by `client.attach(...)`: function calls in both directions. "
        "`AsyncSession` has the same calls, awaited.",
    ),
    ("Group", Group, "Made by `client.group()`."),
    ("Gates", Gates, "`from genagentd.testing import Gates`."),
)
_LINE = 100


def python_page() -> str:
    """Return every public callable with its docstring."""
    doc = errors.__doc__ or ""
    tree = doc[doc.index("GenAgentError") : doc.index("Refusals are")].strip()
    return filled(
        "python.md",
        errors=tree,
        classes="\n\n".join(part for shown in CLASSES for part in _class(*shown)),
        values=_values(public_names, "genagentd"),
        messages=_values(messages.__all__, "genagentd.messages"),
        functions="\n\n".join(
            [
                "## genagentd",
                *_functions("genagentd", ("about", "function", "hear")),
                "## genagentd.testing",
                prose(testing),
                *_functions("genagentd.testing", testing.__all__),
                "## genagentd.telemetry",
                prose(telemetry),
                *_functions("genagentd.telemetry", ("attach", "detach")),
            ]
        ),
    )


def _class(title: str, kind: type, words: str) -> Iterator[str]:
    yield f"## {title}"
    yield words
    yield prose(kind)
    for name, member in public_methods(kind):
        yield f"### {title}.{name}"
        yield shown_signature(name, member)
        yield prose(member)


def public_methods(kind: type) -> Iterator[tuple[str, object]]:
    """Yield what a class offers by name, its own and what it inherits from ours."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("genagent"):
            continue
        for name, member in vars(base).items():
            shown = callable(member) or isinstance(member, property)
            if shown and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, member


def shown_signature(name: str, member: object) -> str:
    """Return the signatures of *member* as a block of code, or what kind of thing it is."""
    if isinstance(member, property):
        return f"`{name}` is a property."
    return "```python part\n" + "\n".join(signatures(name, member)) + "\n```"


def signatures(name: str, member: object) -> list[str]:
    """Return how *member* may be called; more than one line where it is overloaded."""
    assert callable(member)
    functions = typing.get_overloads(member) or [member]
    return [_signature(name, function) for function in functions]


def _signature(name: str, function: Callable[..., object]) -> str:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    arguments = list(_arguments(node.args))
    returns = "" if node.returns is None else f" -> {_source(node.returns)}"
    line = f"{word} {name}({', '.join(arguments)}){returns}: ..."
    if len(line) <= _LINE:
        return line
    inner = "".join(f"    {argument},\n" for argument in arguments)
    return f"{word} {name}(\n{inner}){returns}: ..."


def _arguments(node: ast.arguments) -> Iterator[str]:
    before = [*node.posonlyargs, *node.args]
    absent: list[ast.expr | None] = [None] * (len(before) - len(node.defaults))
    for argument, default in zip(before, [*absent, *node.defaults], strict=True):
        if argument.arg not in ("self", "cls"):
            yield _argument(argument, default)
    if node.vararg is not None:
        yield f"*{_argument(node.vararg, None)}"
    elif node.kwonlyargs:
        yield "*"
    for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
        yield _argument(argument, default)
    if node.kwarg is not None:
        yield f"**{_argument(node.kwarg, None)}"


def _argument(node: ast.arg, default: ast.expr | None) -> str:
    name = node.arg.lstrip("_")
    kind = "" if node.annotation is None else f": {_source(node.annotation)}"
    if default is None:
        return name + kind
    return f"{name}{kind}{' = ' if kind else '='}{_source(default)}"


def _source(node: ast.expr) -> str:
    # As our formatter quotes: it reads the page as well.
    return ast.unparse(node).replace("'", '"')


def _values(names: Sequence[str], module: str) -> str:
    """Return the public names that are values, each with its fields and its first words."""
    home = importlib.import_module(module)
    rows = []
    for name in sorted(names, key=str.lower):
        thing = getattr(home, name)
        if isinstance(thing, type) and dataclasses.is_dataclass(thing):
            fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(thing))
            rows.append((f"`{name}`", fields, first_sentences(thing)))
    return table(("name", "fields", "what it is"), rows)


def _functions(module: str, names: Sequence[str]) -> Iterator[str]:
    home = importlib.import_module(module)
    for name in names:
        thing = getattr(home, name)
        if thing is Gates:
            continue
        yield f"### {module}.{name}"
        if not isinstance(thing, type):
            yield shown_signature(name, thing)
        yield prose(thing)
        if isinstance(thing, type):
            for method, member in public_methods(thing):
                yield shown_signature(method, member)
                yield prose(member)
