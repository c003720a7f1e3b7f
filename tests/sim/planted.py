"""Planted bugs: one-line mutations of the engines (data: `*_bugs.py`), and what plants one for the duration of a run.

A mutation names a module, text that stands in its source exactly once, and what takes its place. The module's source is
compiled anew and the code of every function that differs is exchanged: instances, imports and globals stay what they
are, so that nothing but the one line is different.

`python -m tests.sim.planted --write` runs every bug until it is caught and writes `docs/planted-bugs.md`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final, NamedTuple

from tests.sim.bug import Bug
from tests.sim.sequencer_bugs import SEQUENCER_BUGS
from tests.sim.timestamp_bugs import TIMESTAMP_BUGS, TIMESTAMP_UNSEEN
from tests.sim.token_bugs import TOKEN_BUGS

from ordercast.sim.fuzz import run_seed

FIRST_SEEDS: Final = {"timestamp": 2}
"""Where the search begins, if not at 0. Seeds 0 and 1 of timestamp have many nodes: a run that never comes to rest
takes long there."""
MOST_SEEDS: Final = 256  # that a bug may take to be found when the table is written
TABLE: Final = Path(__file__).resolve().parents[2] / "docs" / "planted-bugs.md"
BUGS: Final = SEQUENCER_BUGS + TOKEN_BUGS + TIMESTAMP_BUGS
UNSEEN: Final = TIMESTAMP_UNSEEN


class Catch(NamedTuple):
    """How many seeds it took, and what the last of them failed with."""

    seeds: int
    failures: tuple[str, ...]

    @property
    def by(self) -> str:
        """The property of the trace, or the check of the harness, that spoke first."""
        word = self.failures[0].partition(":")[0].partition(" ")[0]
        return "rest" if word == "not" else word


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Let the engines have the bug; loudly refused where its line is not what it was."""
    module = importlib.import_module(bug.module)
    source = inspect.getsource(module)
    if source.count(bug.old) != 1:
        raise LookupError(f"{bug.name}: {bug.module} has {source.count(bug.old)} times, not once:\n{bug.old}")
    mutated = compile(source.replace(bug.old, bug.new), str(module.__file__), "exec", dont_inherit=True)
    changed = [
        (function, function.__code__, code)
        for function, code in _functions(module, mutated)
        if not _is_same(function.__code__, code)
    ]
    if not changed:
        raise LookupError(f"{bug.name}: no function of {bug.module} is any different")
    for function, _, code in changed:
        function.__code__ = code
    try:
        yield
    finally:
        for function, code, _ in changed:
            function.__code__ = code


def until_caught(bug: Bug, limit: int) -> Catch | None:
    """Run seeds until one fails that holds without the bug; None if none of `limit` does."""
    first = _first_seed(bug)
    for seed in range(first, first + limit):
        if catch := _catch(bug, seed):
            return catch
    return None


def caught(bug: Bug) -> Catch | None:
    """Whether its bound holds. The seed that the table names comes first: if that catches it, no search is needed."""
    seeds = named_seeds().get(bug.name, 0)
    catch = _catch(bug, _first_seed(bug) + seeds - 1) if 0 < seeds <= bug.bound else None
    return catch or until_caught(bug, bug.bound)


def _catch(bug: Bug, seed: int) -> Catch | None:
    result = run_seed(bug.orderer, seed, partial(planted, bug))
    if result.held or not run_seed(bug.orderer, seed).held:
        return None
    return Catch(seed - _first_seed(bug) + 1, result.failures)


def _first_seed(bug: Bug) -> int:
    return FIRST_SEEDS.get(bug.orderer, 0)


@cache
def named_seeds() -> dict[str, int]:
    """The bugs of the table, and how many seeds each took when it was written."""
    rows = [line.split("|") for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {row[1].strip(): int(row[-2]) for row in rows if row[-2].strip().isdecimal()}


def _functions(module: ModuleType, code: CodeType) -> Iterator[tuple[FunctionType, CodeType]]:
    """Every function and method of the module with its code in the mutated source."""
    for each in code.co_consts:
        if not isinstance(each, CodeType):
            continue
        yield from _functions(module, each)
        found: object = module
        for name in each.co_qualname.split("."):
            found = vars(found).get(name) if hasattr(found, "__dict__") else None
        if isinstance(found, property):
            found = found.fget
        if isinstance(found, FunctionType):
            yield found, each


def _is_same(one: CodeType, other: CodeType) -> bool:
    """Equal but for where it stands in the file."""
    here = {"co_firstlineno": 0, "co_linetable": b"", "co_filename": ""}
    return one.replace(**here) == other.replace(**here)


def table() -> list[str]:
    """The table, in Markdown: runs every bug."""
    lines = [
        "# Planted bugs",
        "",
        "Each line is one mutation of an engine, kept as data in `tests/sim/*_bugs.py` and as a test in",
        "`tests/sim/test_planted_bugs.py`: random scenarios of the orderer are run from seed 0 on (timestamp: 2) until",
        "the harness objects. *Seeds* is how many that took; *caught by* is the property of the trace, or the check at",
        "the end of a run (`docs/design/simulator.md`), that spoke first. Without a bug none of these seeds fails.",
        "`python -m tests.sim.planted --write` writes this page.",
    ]
    for orderer in dict.fromkeys(bug.orderer for bug in BUGS):
        lines += [
            "",
            f"## {orderer.capitalize()}",
            "",
            "| bug | module | what it breaks | caught by | seeds |",
            "|---|---|---|---|---|",
        ]
        for bug in BUGS:
            if bug.orderer == orderer:
                lines.append(_line(bug))
                print(lines[-1], file=sys.stderr, flush=True)
    return lines + _unseen()


def _unseen() -> list[str]:
    lines = [
        "",
        "## Not caught",
        "",
        "Mutations that none of some 80 to 110 seeds objected to, and why that is, as far as we know. Most do no harm",
        "but to latency: what they take away is made up for by something else. Those that are called rare are gaps of",
        "the random scenarios.",
        "",
        "| bug | module | orderer | why nobody objects |",
        "|---|---|---|---|",
    ]
    return lines + [
        f"| {bug.name} | `{bug.module.removeprefix('ordercast.')}` | {bug.orderer} | {bug.breaks} |" for bug in UNSEEN
    ]


def _line(bug: Bug) -> str:
    catch = until_caught(bug, MOST_SEEDS)
    by, seeds = (catch.by, str(catch.seeds)) if catch is not None else ("nobody", f"> {MOST_SEEDS}")
    return f"| {bug.name} | `{bug.module.removeprefix('ordercast.')}` | {bug.breaks} | {by} | {seeds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run every planted bug until it is caught, and print a table.")
    parser.add_argument("--write", action="store_true", help=f"write the table to docs/{TABLE.name}")
    args = parser.parse_args()
    text = "\n".join(table()) + "\n"
    if args.write:
        TABLE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
