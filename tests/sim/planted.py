"""Planted bugs: one-line mutations of the engines, as data, and what plants one for the duration of a run.

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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final, NamedTuple

from ordercast.sim.fuzz import run_seed

FIRST_SEED: Final = 0
MOST_SEEDS: Final = 256  # that a bug may take to be found when the table is written
TABLE: Final = Path(__file__).resolve().parents[2] / "docs" / "planted-bugs.md"

LEADING: Final = "ordercast.orderers.sequencer.leading"
CHANGES: Final = "ordercast.parts.changes"
KEEPER: Final = "ordercast.parts.keeper"
SEQUENCER: Final = "ordercast.orderers.sequencer.sequencer"
CUTS: Final = "ordercast.membership.cuts"
REFORM: Final = "ordercast.membership.reform"
UNDERLAY: Final = "ordercast.underlay"
LOG: Final = "ordercast.parts.log"
BLOCK: Final = "ordercast.wire.block"


@dataclass(frozen=True, slots=True)
class Bug:
    """`bound`: seeds from FIRST_SEED on within which it must be caught."""

    name: str
    module: str
    old: str
    new: str
    breaks: str
    bound: int


class Catch(NamedTuple):
    """How many seeds it took, and what the last of them failed with."""

    seeds: int
    failures: tuple[str, ...]

    @property
    def by(self) -> str:
        """The property of the trace, or the check of the harness, that spoke first."""
        word = self.failures[0].partition(":")[0].partition(" ")[0]
        return "rest" if word == "not" else word


BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "members never ask for what they miss",
        SEQUENCER,
        "        if places and self.lead is None:\n",
        "        if places and self.lead is not None:\n",
        "a broadcast that is lost is lost for ever",
        8,
    ),
    Bug(
        "SAFE is delivered as soon as it is received",
        KEEPER,
        "if entry.rank == SAFE_RANK and seq > safe:",
        "if entry.rank == SAFE_RANK and seq > received:",
        "SAFE: delivered before everybody has the message",
        32,
    ),
    Bug(
        "a member acknowledges one place too many",
        SEQUENCER,
        "        return Acks(self.log.received, self.consumed)\n",
        "        return Acks(min(self.log.received + 1, self.log.highest), self.consumed)\n",
        "SAFE and the history count what is not there",
        32,
    ),
    Bug(
        "SAFE does not wait for the slowest member",
        LEADING,
        "min([row.received for row in rows], default=0)",
        "max(sorted(row.received for row in rows)[:2], default=0)",
        "SAFE: delivered while one member lacks the message",
        32,
    ),
    Bug(
        "RESILIENT is accepted without HELD",
        LEADING,
        "            if row is None or row.held.get(origin, 0) <= number:\n",
        "            if row is None:\n",
        "RESILIENT(k): delivered before k others hold the message",
        32,
    ),
    Bug(
        "HELD is read one too far",
        LEADING,
        "row.held.get(origin, 0) <= number:",
        "row.held.get(origin, 0) < number:",
        "RESILIENT(k): a block counts as held when the one before it is",
        32,
    ),
    Bug(
        "HELD ignores holes",
        LOG,
        "        number = self.next_number.get(origin, 0)\n        blocks = self.blocks\n",
        "        blocks = self.blocks\n"
        "        number = max([each for who, each in blocks if who == origin] + [self.next_number.get(origin, 0)])\n",
        "RESILIENT(k): holders vouch for blocks that they lack",
        64,
    ),
    Bug(
        "history is purged while one member lacks it",
        LEADING,
        "min([row.consumed for row in rows], default=0)",
        "max(sorted(row.consumed for row in rows)[:2], default=0)",
        "what the slowest member asks for is gone",
        4,
    ),
    Bug(
        "the sequencer never purges",
        SEQUENCER,
        "        stable = lead.stable\n        if stable > log.stable:\n",
        "        stable = lead.stable\n        if stable < log.stable:\n",
        "the history fills and the group blocks",
        4,
    ),
    Bug(
        "the log advances over a hole",
        LOG,
        "        seq = self.received + 1\n        while True:",
        "        seq = min(places, default=self.received + 1)\n        while True:",
        "a message is left out where another came first",
        4,
    ),
    Bug(
        "the tail is not noticed",
        SEQUENCER,
        "        log.highest = max(log.highest, lead.highest)\n",
        "        log.highest = max(log.highest, log.received)\n",
        "a lost broadcast that nothing follows is never asked for",
        32,
    ),
    Bug(
        "nothing is retransmitted",
        SEQUENCER,
        "        for origin, number, block in self._outgoing.due(now_ns):\n",
        "        for origin, number, block in self._outgoing.due(now_ns)[:0]:\n",
        "a request that is lost is lost for ever",
        64,
    ),
    Bug(
        "old blocks are held again",
        LOG,
        "not next_number <= number < next_number",
        "not number < next_number",
        "duplicates are kept, and never leave",
        64,
    ),
    Bug(
        "positions count blocks",
        LOG,
        "            self.position += count\n",
        "            self.position += 1\n",
        "two messages at one position",
        4,
    ),
    Bug(
        "a view overtakes the messages before it",
        KEEPER,
        "                if run:\n                    out.upcalls.append(Run(run))\n                    run = []\n"
        "                self._show(open_change(entry.block), out)\n",
        "                self._show(open_change(entry.block), out)\n",
        "members deliver the same message in different views",
        8,
    ),
    Bug(
        "a view carries the numbers of the view before",
        CHANGES,
        "    numbers = dict(next_number)\n",
        "    numbers = dict(view.numbers)\n",
        "a newcomer waits for blocks that were before its time",
        64,
    ),
    Bug(
        "the coordinator starts from the shortest log",
        CUTS,
        "    top = max(sorted(cuts)",
        "    top = min(sorted(cuts)",
        "what a survivor has delivered is not part of what all agree on",
        32,
    ),
    Bug(
        "the new view counts only what its coordinator received",
        REFORM,
        "log.preview(max(remainder.upto, log.received))",
        "log.preview(log.received)",
        "a block of the remainder is awaited, or delivered, again",
        128,
    ),
    Bug(
        "a survivor accepts before it has fetched what it lacks",
        REFORM,
        "            if self._orderer.lacking(view.seq - 1):\n",
        "            if self._orderer.lacking(view.seq - 1) and view.member(self._me.id) is None:\n",
        "recovery ends before all are at the same place",
        32,
    ),
    Bug(
        "commit before all have accepted",
        REFORM,
        "        if (members if proposal.fresh else set(self._cuts)) <= self._acks:\n",
        "        if members:\n",
        "the new view begins while a member lacks the remainder",
        32,
    ),
    Bug(
        "datagrams of an old ring are taken for new ones",
        UNDERLAY,
        "            if orderer is None or ring != self._mail.ring:\n"
        "                self._on_foreign(now_ns, source, kind, ring, out)\n            elif not orderer.is_frozen",
        "            if orderer is None:\n"
        "                self._on_foreign(now_ns, source, kind, ring, out)\n            elif not orderer.is_frozen",
        "an old incarnation is not told from the new one",
        32,
    ),
    Bug(
        "no transitional signal",
        UNDERLAY,
        '        out.upcalls.append(Transitional(self.view.id if self.view is not None else ""))\n',
        "",
        "what recovery brought together looks as if it were safe",
        32,
    ),
    Bug(
        "SAFE of the remainder is left out",
        KEEPER,
        "        self.safe = upto\n",
        "        self.safe = max(self.safe, 0)\n",
        "a survivor does not deliver what the others do",
        32,
    ),
    Bug(
        "own blocks are dropped at a reset",
        KEEPER,
        "        return self._outgoing.own()\n",
        "        return self._outgoing.own()[:0]\n",
        "what had no place when the ring broke is never sent again",
        16,
    ),
    Bug(
        "came_with names newcomers",
        UNDERLAY,
        " for member in view.members if previous is not None and previous.member(member.id) is not None\n",
        " for member in view.members\n",
        "a newcomer is said to have been there before",
        4,
    ),
    Bug(
        "a newcomer counts as having what follows its join",
        LEADING,
        "        self._table[member] = Row(seq, seq)\n",
        "        self._table[member] = Row(seq + 1, seq + 1)\n",
        "the first message for a newcomer is purged before it is there",
        32,
    ),
    Bug(
        "a fragment is read from the wrong offset",
        BLOCK,
        "    payload = block[FRAGMENT_OVERHEAD:]\n",
        "    payload = block[FRAGMENT_OVERHEAD - 1 : -1]\n",
        "the bytes of large messages",
        8,
    ),
    Bug(
        "nobody is ever suspected",
        SEQUENCER,
        "        found = self._detector.suspects(now_ns)\n",
        "        found = self._detector.suspects(0)\n",
        "the group waits for the dead",
        16,
    ),
)


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
    for seed in range(FIRST_SEED, FIRST_SEED + limit):
        result = run_seed("sequencer", seed, partial(planted, bug))
        if not result.held and run_seed("sequencer", seed).held:
            return Catch(seed - FIRST_SEED + 1, result.failures)
    return None


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
        "Each line is one mutation of an engine, kept as data in `tests/sim/planted.py` and as a test in",
        "`tests/sim/test_planted_bugs.py`: random scenarios are run from seed 0 on until the harness objects.",
        "*Seeds* is how many that took; *caught by* is the property of the trace, or the check at the end of a run",
        "(`docs/design/simulator.md`), that spoke first. Without a bug none of these seeds fails.",
        "`python -m tests.sim.planted --write` writes this page.",
        "",
        "| bug | module | what it breaks | caught by | seeds |",
        "|---|---|---|---|---|",
    ]
    for bug in BUGS:
        catch = until_caught(bug, MOST_SEEDS)
        by, seeds = (catch.by, str(catch.seeds)) if catch is not None else ("nobody", f"> {MOST_SEEDS}")
        lines.append(f"| {bug.name} | `{bug.module.removeprefix('ordercast.')}` | {bug.breaks} | {by} | {seeds} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


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
