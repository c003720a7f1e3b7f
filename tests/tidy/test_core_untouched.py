"""Everybody uses the core as it is: nothing changes it at run time, extends its classes or copies engines.

The core stays compilable (CONTRIBUTING.md, style rule 12). A compiled module has its constants built in, a compiled
class takes no other methods and no interpreted subclass, and its objects cannot be copied. What a test wants to change
is a parameter, a fake of its own, or a planted bug (`tests/sim/planting.py`, which needs the interpreted core and says
so). Methods of one object cannot be exchanged anyway: the classes of the core are slotted (`test_limits.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.tidy.limits import CORE, SOURCE

ROOT: Final = Path(__file__).parents[2]
USERS: Final = ("tests", "benches", "examples")
PACKAGE: Final = "ordercast"
PLANTING: Final = "tests/sim/planting.py"  # exchanges code of functions on purpose, and copies syntax trees
# Calls that set or remove an attribute of what their first argument is, or names.
SETTERS: Final = frozenset({"setattr", "delattr", "patch", "object", "multiple", "dict"})


def violations(path: str, source: str) -> list[str]:
    """What one file does to the core; `path` is relative to the project, with slashes."""
    tree = ast.parse(source)
    core = _names_of_core(tree)
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name, bases=bases):
                found += [
                    (node.lineno, f"{name} extends {ast.unparse(base)}, a class of the core: have one, or write a fake")
                    for base in bases
                    if _root(base) in core
                ]
            case ast.Attribute(value=value, ctx=ast.Store() | ast.Del()) if _root(value) in core:
                found.append((node.lineno, f"{ast.unparse(node)} of the core is changed: {ADVICE}"))
            case ast.Attribute(attr="__code__", ctx=ast.Store()) if path != PLANTING:
                found.append((node.lineno, f"{ast.unparse(node)} is exchanged: {ADVICE}"))
            case ast.Call(func=func, args=[first, *_]) if _last(func) in SETTERS and _is_core(first, core):
                found.append((node.lineno, f"{ast.unparse(first)} of the core is patched: {ADVICE}"))
            case ast.Import() | ast.ImportFrom() if "copy" in _imported(node) and path != PLANTING:
                found.append((node.lineno, "copy is imported: engines cannot be copied, make another one"))
    return [f"{path}:{line}: {text}" for line, text in sorted(found)]


ADVICE: Final = "reach the bound, take a parameter, or plant a bug"


def _names_of_core(tree: ast.AST) -> set[str]:
    """Names under which a file knows modules, classes and functions of the core."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found |= {
                    alias.asname or alias.name
                    for alias in names
                    if _is_in_core(module)
                    or _is_in_core(f"{module}.{alias.name}")
                    or (module == PACKAGE and alias.name in FROM_CORE)
                }
            case ast.Import(names=names):
                found |= {alias.asname or alias.name for alias in names if _is_in_core(alias.name)}
    return found


def _is_in_core(module: str) -> bool:
    package, _, rest = module.partition(".")
    return package == PACKAGE and rest.partition(".")[0] in CORE


def _facade() -> frozenset[str]:
    """Public names that are the core's own."""
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    return frozenset(
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and _is_in_core(node.module or "")
        for alias in node.names
    )


FROM_CORE: Final = _facade()


def _root(node: ast.expr) -> str:
    """The name, or dotted name of a module, that an expression begins with; empty where a call makes another object."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute():
            text = ast.unparse(node)
            parts = text.split(".")
            dotted = next((".".join(parts[:end]) for end in range(len(parts), 1, -1) if _is_module(parts[:end])), "")
            return dotted or _root(node.value)
        case ast.Subscript(value=value):
            return _root(value)
    return ""


def _is_module(parts: list[str]) -> bool:
    path = SOURCE.parent.joinpath(*parts)
    return all(part.isidentifier() for part in parts) and (path.is_dir() or path.with_suffix(".py").is_file())


def _last(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_core(target: ast.expr, core: set[str]) -> bool:
    """What a setter is given: an object, or its name as a text."""
    match target:
        case ast.Constant(value=str(text)):
            return _is_in_core(text)
    return _root(target) in core


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        yield node.module or ""


# The house as it is. -------------------------------------------------------------------------------------------------


def test_nothing_changes_or_extends_the_core() -> None:
    found = []
    for path in sorted(path for room in USERS for path in (ROOT / room).rglob("*.py")):
        found += violations(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    for path in sorted(set(SOURCE.rglob("*.py")) - set(core_files())):
        found += violations(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


def core_files() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0].removesuffix(".py") in CORE]


@pytest.mark.parametrize("word", ["runtime_checkable", "deepcopy", "__dict__", "setattr"])
def test_the_core_itself_has_nothing_that_does_not_compile(word: str) -> None:
    files = core_files()
    assert len(files) > 50
    assert [path.as_posix() for path in files if word in path.read_text(encoding="utf-8")] == []


# The checker catches what is planted. --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("from ordercast.parts.log import Log\nclass Mine(Log): pass", "Mine extends Log"),
        ("from ordercast.parts import log\nclass Mine(log.Log): pass", "Mine extends log.Log"),
        ("from ordercast.underlay import Underlay as U\nclass Mine(U): pass", "Mine extends U"),
        ("import ordercast.parts.log\nclass Mine(ordercast.parts.log.Log): pass", "Mine extends ordercast.parts.log"),
        ("from ordercast.parts.timers import Timers\nclass Mine(Timers[int]): pass", "Mine extends Timers[int]"),
        ("from ordercast import Message\nclass Mine(Message): pass", "Mine extends Message"),
        ("from ordercast.engine import Engine\nclass Mine(Engine): pass", "Mine extends Engine"),
        ("from ordercast.parts.log import Log\nLog.advance = None", "Log.advance of the core is changed"),
        ("from ordercast.parts.log import Log\nLog.advance.__code__ = f.__code__", "Log.advance.__code__ of the core"),
        ("from ordercast.parts.log import Log\ndel Log.advance", "Log.advance of the core is changed"),
        ("from ordercast.groups import calls\ncalls.MAX_KEPT = 3", "calls.MAX_KEPT of the core is changed"),
        ("from ordercast.groups import calls\ncalls.MAX_KEPT += 3", "calls.MAX_KEPT of the core is changed"),
        ("from ordercast.groups import calls\ncalls.A, x = 1, 2", "calls.A of the core is changed"),
        ("import ordercast.groups.calls\nordercast.groups.calls.MAX_KEPT = 3", "MAX_KEPT of the core is changed"),
        ("import ordercast.groups.calls as c\nc.MAX_KEPT = 3", "c.MAX_KEPT of the core is changed"),
        ("from ordercast.parts.log import Log\nsetattr(Log, 'advance', None)", "Log of the core is patched"),
        ("from ordercast.groups import calls\ndef f(m): m.setattr(calls, 'A', 3)", "calls of the core is patched"),
        ("def f(m): m.setattr('ordercast.groups.calls.A', 3)", "'ordercast.groups.calls.A' of the core is patched"),
        ("from mock import patch\npatch('ordercast.wire.block.HEAD')", "of the core is patched"),
        ("from mock import patch\nfrom ordercast.parts.log import Log\npatch.object(Log, 'a')", "Log of the core"),
        ("def f(g): g.__code__ = f.__code__", "g.__code__ is exchanged"),
        ("from copy import deepcopy", "copy is imported"),
        ("import copy", "copy is imported"),
    ],
)
def test_what_a_compiled_core_does_not_take_is_caught(source: str, complaint: str) -> None:
    (found,) = violations("tests/unit/test_x.py", source)
    assert complaint in found


@pytest.mark.parametrize(
    "source",
    [
        "from ordercast.parts.log import Log\nlog = Log()\nlog.highest = 3",
        "from ordercast.parts.log import Log\nLog().highest = 3",
        "from ordercast.parts.log import Log\nclass Mine:\n    def __init__(self): self.log = Log()",
        "from ordercast.sim.network import Network\nclass Tap(Network): pass",
        "from ordercast.runtime import listening\ndef f(m): m.setattr(listening, 'group_address', None)",
        "def f(m): m.setattr('ordercast.runtime.listening.group_address', None)",
        "import os\ndef f(m): m.setattr(os, 'write', None)",
    ],
)
def test_what_it_takes_is_not_complained_of(source: str) -> None:
    assert violations("tests/unit/test_x.py", source) == []
