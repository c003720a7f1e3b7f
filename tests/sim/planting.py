"""Plants a bug into the core for the duration of a run.

A bug (`bug.py`) names a function and a piece of its code, not a file: it survives when code moves between modules and
classes. The function is searched in all modules of `PLACES`. The changed module is compiled from its syntax tree, and
only the code of the functions that differ is exchanged: instances, imports and globals stay what they are.

This needs the interpreted modules: a compiled function (mypyc) has no code to exchange, and planting is refused.
"""

from __future__ import annotations

import ast
import copy
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from textwrap import dedent
from types import CodeType, FunctionType, ModuleType
from typing import Final, NamedTuple

from tests.sim.bug import Bug

import ordercast

SOURCES: Final = Path(ordercast.__file__).parent
# Where bugs are planted: the core, the rules that it takes from configuration and views, the simulator's toy, and what
# the simulator runs of daemons and clients, and of the membership service of regions.
PLACES: Final = (
    *("wire", "parts", "membership", "orderers", "underlay", "groups", "config.py", "view.py", "sim/toy.py"),
    *("daemon", "client", "gms"),
)

Node = ast.expr | ast.keyword
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Spot(NamedTuple):
    """Where a piece of code stands: in `field` of `parent`, and if that is a list, at `first` to `stop`."""

    parent: ast.AST
    field: str
    first: int = -1
    stop: int = -1


class Reading(NamedTuple):
    """A bug's two sides, parsed in the same way."""

    old: list[ast.stmt] | Node
    new: list[ast.stmt] | Node


class Exchange(NamedTuple):
    """A function that has other code while the bug is planted."""

    function: FunctionType
    sound: CodeType
    mutated: CodeType


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Let the engines have the bug; loudly refused where its code is not there, or not only there."""
    exchanges = _exchanges(bug)
    for function, _, mutated in exchanges:
        function.__code__ = mutated
    try:
        yield
    finally:
        for function, sound, _ in exchanges:
            function.__code__ = sound


@cache
def _exchanges(bug: Bug) -> tuple[Exchange, ...]:
    name, tree = _mutated(bug)
    module = importlib.import_module(name)
    code = compile(tree, str(module.__file__), "exec", dont_inherit=True)
    found = tuple(
        Exchange(function, function.__code__, mutated)
        for function, mutated in _functions(module, code)
        if not _is_same(function.__code__, mutated)
    )
    if not found:
        raise LookupError(f"{bug.name}: no interpreted function of {name} is any different")
    return found


def _mutated(bug: Bug) -> tuple[str, ast.Module]:
    """The module that the bug is in, and its tree with the bug."""
    modules = {_module_of(bug, old, new) for old, new in bug.edits()}
    if len(modules) != 1:
        raise LookupError(f"{bug.name}: {bug.function} is in several modules: {', '.join(sorted(modules))}")
    module = modules.pop()
    tree = ast.parse(_source(module))
    scopes = [node for name, node in _named(tree) if _is_named(name, bug.function)]
    for old, new in bug.edits():
        for reading in _readings(old, new):
            for spot in [spot for scope in scopes for spot in _spots(scope, reading.old)]:
                _replace(spot, reading.new)
    return module, tree


def _module_of(bug: Bug, old: str, new: str) -> str:
    """The one module with a function of this name that has this code, once."""
    found = [
        module
        for module, name, node in _all_functions().get(bug.function.rpartition(".")[2], ())
        if _is_named(name, bug.function)
        for reading in _readings(old, new)
        for _ in _spots(node, reading.old)
    ]
    if len(found) != 1:
        where = f" ({', '.join(found)})" if found else ""
        raise LookupError(f"{bug.name}: {bug.function} has this {len(found)} times, not once{where}:\n{old}")
    return found[0]


@cache
def _all_functions() -> dict[str, list[tuple[str, str, FunctionNode]]]:
    """All functions of these places by their last name: module, name with its classes, and tree."""
    found: dict[str, list[tuple[str, str, FunctionNode]]] = {}
    for place in PLACES:
        path = SOURCES / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            parts = file.relative_to(SOURCES.parent).with_suffix("").parts
            module = ".".join(parts).removesuffix(".__init__")
            for name, node in _named(ast.parse(_source(module))):
                found.setdefault(node.name, []).append((module, name, node))
    return found


def _source(module: str) -> str:
    path = SOURCES.parent.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")


def _named(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, FunctionNode]]:
    """Functions and methods with their names as `Class.method`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FunctionNode):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _named(node, f"{prefix}{node.name}.")


def _is_named(name: str, wanted: str) -> bool:
    return name == wanted or name.endswith(f".{wanted}")


def _readings(old: str, new: str) -> list[Reading]:
    """The ways to read the two sides; each side has to make sense in the same way."""
    before, after = ast.parse(dedent(old)).body, ast.parse(dedent(new)).body
    match before, after:
        case [ast.Expr(value=one)], [ast.Expr(value=other)]:
            return [Reading(one, other)]
        case [ast.Assign(targets=[ast.Name(id=name)], value=one)], [ast.Assign(targets=[ast.Name()], value=other)]:
            return [Reading(before, after), Reading(ast.keyword(name, one), ast.keyword(name, other))]
        case _:
            return [Reading(before, after)]


def _spots(scope: FunctionNode, old: list[ast.stmt] | Node) -> Iterator[Spot]:
    for parent in ast.walk(scope):
        yield from _runs(parent, old) if isinstance(old, list) else _equals(parent, old)


def _runs(parent: ast.AST, old: list[ast.stmt]) -> Iterator[Spot]:
    """Where these statements stand one behind the other."""
    wanted, kinds = [ast.dump(each) for each in old], [type(each) for each in old]
    for field, value in ast.iter_fields(parent):
        if not isinstance(value, list) or not value or not isinstance(value[0], ast.stmt):
            continue
        for first in range(len(value) - len(old) + 1):
            found = value[first : first + len(old)]
            if [type(each) for each in found] == kinds and [ast.dump(each) for each in found] == wanted:
                yield Spot(parent, field, first, first + len(old))


def _equals(parent: ast.AST, old: Node) -> Iterator[Spot]:
    """Where this expression, or this named argument, is a child of the node."""
    wanted = ast.dump(old)
    for field, value in ast.iter_fields(parent):
        if isinstance(value, list):
            for index, each in enumerate(value):
                if type(each) is type(old) and ast.dump(each) == wanted:
                    yield Spot(parent, field, index, index + 1)
        elif type(value) is type(old) and ast.dump(value) == wanted:
            yield Spot(parent, field)


def _replace(spot: Spot, new: list[ast.stmt] | Node) -> None:
    """Put the new code there. It has the old one's lines: the rest of the module keeps its own."""
    value = getattr(spot.parent, spot.field)
    where = value[spot.first] if isinstance(value, list) else value
    pieces = copy.deepcopy(new) if isinstance(new, list) else [copy.deepcopy(new)]
    for piece in pieces:
        for node in ast.walk(piece):
            ast.copy_location(node, where)
    if isinstance(value, list):
        value[spot.first : spot.stop] = pieces
        if not value and spot.field == "body":
            value.append(ast.copy_location(ast.Pass(), where))
    else:
        setattr(spot.parent, spot.field, pieces[0])


def _functions(module: ModuleType, code: CodeType) -> Iterator[tuple[FunctionType, CodeType]]:
    """Every function and method of the module with its code in the mutated module."""
    for each in code.co_consts:
        if not isinstance(each, CodeType):
            continue
        yield from _functions(module, each)
        found: object = module
        for name in each.co_qualname.split("."):
            found = vars(found).get(name) if hasattr(found, "__dict__") else None
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, staticmethod | classmethod):
            found = found.__func__
        if isinstance(found, FunctionType):
            yield found, each


def _is_same(one: CodeType, other: CodeType) -> bool:
    """Equal but for where it stands in the file."""
    return _nowhere(one) == _nowhere(other)


def _nowhere(code: CodeType) -> CodeType:
    return code.replace(co_firstlineno=0, co_linetable=b"", co_filename="")
