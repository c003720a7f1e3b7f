"""How large files and classes are, read off the syntax trees: `python -m tests.tidy.limits` lists what is too large.

STYLE of the house: a file has at most 600 lines, an object at most 25 fields (inherited ones included), a class of the
core is slotted and has at most one class of ours above it, and a class name stands for one thing.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).parents[2] / "src" / "ordercast"
CORE: Final = frozenset({"wire", "parts", "membership", "orderers", "underlay", "groups", "engine"})
MAX_LINES: Final = 600
MAX_FIELDS: Final = 25
MAX_DEPTH: Final = 2  # the class itself counts
# Their fields are data that is read, not state that grows together; and they need no slots of their own.
DATA: Final = frozenset({"NamedTuple", "Enum", "IntEnum", "StrEnum", "IntFlag", "Flag", "Protocol", "TypedDict"})


class Class(NamedTuple):
    """One class as its source says it."""

    file: str
    name: str
    bases: tuple[str, ...]
    fields: frozenset[str]
    is_slotted: bool
    is_data: bool

    @property
    def is_core(self) -> bool:
        return self.file.removesuffix(".py").split("/")[0] in CORE


def lines() -> dict[str, int]:
    """File -> its lines."""
    files = sorted(SOURCE.rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in files}


@cache
def classes() -> tuple[Class, ...]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = path.relative_to(SOURCE).as_posix()
        found += [_read(name, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return tuple(found)


def _read(file: str, node: ast.ClassDef) -> Class:
    bases = tuple(_last_name(base) for base in node.bases)
    decorators = [each for each in node.decorator_list if _last_name(each) == "dataclass"]
    words = [word for each in decorators if isinstance(each, ast.Call) for word in each.keywords]
    has_slots = any(word.arg == "slots" and getattr(word.value, "value", False) for word in words)
    is_frozen = any(word.arg == "frozen" and getattr(word.value, "value", False) for word in words)
    slots = _slots(node)
    return Class(
        file,
        node.name,
        bases,
        frozenset(_own_fields(node, bool(decorators))) | (slots or frozenset()),
        has_slots or slots is not None,
        is_frozen or not DATA.isdisjoint(bases),
    )


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return _last_name(inner)
    return ""


def _slots(node: ast.ClassDef) -> frozenset[str] | None:
    """None: the class says nothing about slots."""
    for each in node.body:
        match each:
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                return frozenset(
                    word.value
                    for word in ast.walk(value)
                    if isinstance(word, ast.Constant) and isinstance(word.value, str)
                )
    return None


def _own_fields(node: ast.ClassDef, is_dataclass: bool) -> Iterator[str]:
    for each in node.body:
        match each:
            case ast.AnnAssign(target=ast.Name(id=name)) if is_dataclass:
                yield name
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _assigned(each)


def _assigned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def ancestry(each: Class) -> list[Class]:
    """The class and all of ours above it; where a name is there twice, the one of its own file, then of its room."""
    found, queue = [each], [*each.bases]
    while queue:
        base = _find(queue.pop(), each.file)
        if base is not None and base not in found:
            found.append(base)
            queue += base.bases
    return found


@cache
def _find(name: str, file: str) -> Class | None:
    room = file.rpartition("/")[0]
    named = [each for each in classes() if each.name == name]
    return min(named, key=lambda each: (each.file != file, not each.file.startswith(room), each.file), default=None)


@cache
def depth(each: Class) -> int:
    above = [base for name in each.bases if (base := _find(name, each.file)) is not None and base != each]
    return 1 + max(map(depth, above), default=0)


def all_fields(each: Class) -> frozenset[str]:
    return frozenset().union(*(one.fields for one in ancestry(each)))


def too_long() -> dict[str, int]:
    return {name: count for name, count in lines().items() if count > MAX_LINES}


def too_wide() -> dict[str, int]:
    wide = {f"{each.file}: {each.name}": len(all_fields(each)) for each in classes() if not each.is_data}
    return {name: count for name, count in wide.items() if count > MAX_FIELDS}


def too_deep() -> dict[str, int]:
    deep = {f"{each.file}: {each.name}": depth(each) for each in classes() if each.is_core and not _is_error(each)}
    return {name: count for name, count in deep.items() if count > MAX_DEPTH}


def without_slots() -> list[str]:
    return [
        f"{each.file}: {each.name}"
        for each in classes()
        if each.is_core
        and not each.is_data
        and not all(one.is_slotted or one.is_data for one in ancestry(each))
        and not _is_error(each)
    ]


def _is_error(each: Class) -> bool:
    bases = {name for one in ancestry(each) for name in one.bases}
    return any(name.endswith(("Error", "Exception")) for name in bases)


def shared_names() -> dict[str, list[str]]:
    """Names of several classes. One that begins with an underscore is its file's own business."""
    files: dict[str, list[str]] = defaultdict(list)
    for each in classes():
        if not each.name.startswith("_"):
            files[each.name].append(each.file)
    return {name: found for name, found in sorted(files.items()) if len(found) > 1}


def main() -> None:
    for title, found in (
        (f"files above {MAX_LINES} lines", too_long()),
        (f"classes above {MAX_FIELDS} fields", too_wide()),
        (f"classes of the core deeper than {MAX_DEPTH}", too_deep()),
        ("names of several classes", shared_names()),
    ):
        print(f"{title}: {len(found)}")
        for name, value in sorted(found.items(), key=lambda item: str(item[1]), reverse=True):
            print(f"  {name}: {value}")
    print(f"classes of the core without slots: {len(without_slots())}")
    for name in without_slots():
        print(f"  {name}")


if __name__ == "__main__":
    main()
