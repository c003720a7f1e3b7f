"""Planted bugs: small mutations of the engines (data: `*_bugs.py`), and how many seeds it takes to catch each.

`make test` runs a sample of them, which the content of the sources decides: one state of the code always has the same
sample, and the next state has another. `make planted` runs all (`python -m tests.sim.planted --check`).
`python -m tests.sim.planted --write` runs every bug until it is caught and writes `docs/planted-bugs.md`; with
`--orderer NAME` it runs those of that section, and the rest of the page stays as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.regions.chance import run as run_engines
from tests.sim.bug import Bug
from tests.sim.daemon_bugs import DAEMON_BUGS, FIRST_SESSIONS
from tests.sim.detector_bugs import DETECTOR_BUGS
from tests.sim.gathering_bugs import GATHERING_BUGS
from tests.sim.planting import SOURCES, planted
from tests.sim.regions_bugs import ENGINE, REGIONS_BUGS
from tests.sim.regions_unseen_bugs import REGIONS_UNSEEN
from tests.sim.regions_whole_bugs import REGIONS_WHOLE_BUGS
from tests.sim.restart_bugs import PROFILE as RESTARTS_PROFILE
from tests.sim.restart_bugs import RESTART_BUGS
from tests.sim.restart_unseen_bugs import RESTART_UNSEEN
from tests.sim.roster_bugs import ROSTER_BUGS
from tests.sim.sequencer_bugs import SEQUENCER_BUGS
from tests.sim.session_bugs import SESSION_BUGS
from tests.sim.sites_bug import FIRST_DENSE, FIRST_WIDE
from tests.sim.sites_component_bugs import SITES_COMPONENT_BUGS
from tests.sim.sites_network_bugs import SITES_NETWORK_BUGS
from tests.sim.sites_roster_bugs import LEFT_AND_MADE_ANEW, SITES_ROSTER_BUGS
from tests.sim.sites_stream_bugs import SITES_STREAM_BUGS
from tests.sim.sites_unseen_bugs import SITES_UNSEEN
from tests.sim.slow_bugs import SLOW_BUGS
from tests.sim.stall_bugs import STALL_BUGS
from tests.sim.timestamp_bugs import TIMESTAMP_BUGS
from tests.sim.timestamp_unseen_bugs import TIMESTAMP_UNSEEN
from tests.sim.token_bugs import TOKEN_BUGS

from ordercast.sim.detecting import DETECTOR
from ordercast.sim.fuzz import run_seed
from ordercast.sim.many_groups import MANY_GROUPS, SESSIONS_FROM
from ordercast.sim.scenario import SESSIONS as DAEMONS
from ordercast.sim.site_groups import SITES

FIRST_SEEDS: Final = {"timestamp": 2}
"""Where the search begins, if not at 0. Seeds 0 and 1 of timestamp have many nodes: a run that never comes to rest
takes long there."""
MOST_SEEDS: Final = 384  # that a bug may take to be found when the table is written
TABLE: Final = Path(__file__).resolve().parents[2] / "docs" / "planted-bugs.md"
BUGS: Final = (
    *SEQUENCER_BUGS,
    *TOKEN_BUGS,
    *TIMESTAMP_BUGS,
    *STALL_BUGS,
    *SLOW_BUGS,
    *ROSTER_BUGS,
    *SESSION_BUGS,
    *GATHERING_BUGS,
    *RESTART_BUGS,
    *DETECTOR_BUGS,
    *SITES_NETWORK_BUGS,
    *SITES_STREAM_BUGS,
    *SITES_ROSTER_BUGS,
    *SITES_COMPONENT_BUGS,
    *DAEMON_BUGS,
    *REGIONS_WHOLE_BUGS,
    *REGIONS_BUGS,
)
ORDERERS: Final = tuple(dict.fromkeys(bug.orderer for bug in BUGS))
ROSTER: Final = "Many groups on one underlay"
NOT_CAUGHT: Final = "Not caught"
SESSIONS: Final = "Sessions of one node"
PROFILE_SECTIONS: Final = {
    MANY_GROUPS: ROSTER,
    "gathering": "Groups that are too small, and fencing tokens",
    RESTARTS_PROFILE: "Restarts",
    DETECTOR: "Forged reports",
    DAEMONS: "Daemons and their clients",
    ENGINE: "Engines of regions over given views",
}
SECTIONS: Final = (*(orderer.capitalize() for orderer in ORDERERS), *PROFILE_SECTIONS.values(), SESSIONS)
UNSEEN: Final = (*RESTART_UNSEEN, *TIMESTAMP_UNSEEN, *SITES_UNSEEN, *REGIONS_UNSEEN)
SAMPLE: Final = 4  # bugs of each section that `make test` runs
JOBS: Final = 2


class Catch(NamedTuple):
    """How many seeds it took, and what the last of them failed with."""

    seeds: int
    failures: tuple[str, ...]

    @property
    def by(self) -> str:
        """The property of the trace, or the check of the harness, that spoke first."""
        word = self.failures[0].partition(":")[0].partition(" ")[0]
        return "rest" if word == "not" else word


def sample() -> list[Bug]:
    """Some bugs of each orderer, chosen by the content of the sources alone."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    quick = [bug for bug in BUGS if not bug.is_slow]
    ranked = sorted(quick, key=lambda bug: hashlib.sha256(digest.digest() + bug.name.encode()).digest())
    chosen = {bug for section in SECTIONS for bug in [each for each in ranked if section_of(each) == section][:SAMPLE]}
    return [bug for bug in BUGS if bug in chosen]


def section_of(bug: Bug) -> str:
    """Where it stands in the table."""
    if bug.profile == DAEMONS:
        return PROFILE_SECTIONS[DAEMONS]
    if bug.orderer == SITES:
        return SITES.capitalize()
    if bug.first_seed and bug.profile == MANY_GROUPS:
        return SESSIONS
    return PROFILE_SECTIONS.get(bug.profile, bug.orderer.capitalize())


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
    if bug.profile == ENGINE:
        return _catch_in_engines(bug, seed)
    result = run_seed(bug.orderer, seed, partial(planted, bug), profile=bug.profile)
    if result.held or not run_seed(bug.orderer, seed, profile=bug.profile).held:
        return None
    return Catch(seed - _first_seed(bug) + 1, result.failures)


def _catch_in_engines(bug: Bug, seed: int) -> Catch | None:
    """In a run of `tests/regions/chance.py`, which is no run of the fuzzer."""
    with planted(bug):
        try:
            text, _ = run_engines(seed)
        except (ArithmeticError, LookupError) as error:
            text = f"exception: {error!r}"
    return Catch(seed - _first_seed(bug) + 1, (text,)) if text and not run_engines(seed)[0] else None


def _first_seed(bug: Bug) -> int:
    return bug.first_seed or (FIRST_SEEDS.get(bug.orderer, 0) if bug.profile == "all" else 0)


@cache
def named_seeds() -> dict[str, int]:
    """The bugs of the table, and how many seeds each took when it was written."""
    rows = [line.split("|") for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {row[1].strip(): int(row[-2]) for row in rows if row[-2].strip().isdecimal()}


def table() -> list[str]:
    """The table, in Markdown: runs every bug."""
    lines = [
        "# Planted bugs",
        "",
        "Each line is one mutation of a function of the core, kept as data in `tests/sim/*_bugs.py`. Random scenarios",
        "of the orderer are run from seed 0 on (timestamp: 2) until the harness objects. *Seeds*: how many that took;",
        "*caught by* is the property of the trace, or the check at the end of a run (`docs/design/simulator.md`), that",
        "spoke first. Without a bug none of these seeds fails. `make test` runs a sample that changes with the code,",
        "`make planted` runs all, and `python -m tests.sim.planted --write` writes this page. Bugs of the roster and",
        "of channels are planted into the scenarios of `ordercast fuzz --many-groups`, from seed 0 on, those of groups",
        "that are too small into the scenarios of `--profile gathering`, those of restarts into `--profile restarts`.",
        f"Those of sessions begin at seed {SESSIONS_FROM:,} of `--many-groups`. Those of sites begin at seed 0 or 1;",
        f"where links have to differ, at {FIRST_WIDE:,}; where much has to happen at once, at {FIRST_DENSE:,}",
        f"(`tests/sim/sites_bug.py`); one at {LEFT_AND_MADE_ANEW:,}. Those of daemons and their clients are planted",
        f"into the scenarios of `--profile sessions`, from seed {FIRST_SESSIONS:,} on. Words about standing still that",
        "are wrong in two of 15,000 runs begin at the seed of `--profile membership` that showed them. Those of",
        "regions are planted into whole nodes (`--orderer regions`, from seed 0 or from the one that showed them),",
        "those of their engine into runs over given views (`tests/regions/chance.py`, from seed 1 or a later one).",
    ]
    for section in SECTIONS:
        lines += _section(section)
    return lines + _unseen()


def renewed(orderer: str) -> list[str]:
    """The table as it is, with the section of one orderer and its mutations that nobody caught made anew."""
    section, is_old = orderer.capitalize(), False
    kept: list[str] = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            is_old = line == f"## {section}"
        if not is_old and f" | {orderer} | " not in line:
            kept.append(line)
    later = {f"## {each}" for each in (*SECTIONS[SECTIONS.index(section) + 1 :], NOT_CAUGHT)}
    at = next(at for at, line in enumerate(kept) if line in later)
    return [*kept[:at], *_section(section)[1:], "", *kept[at:], *_unseen_lines(orderer)]


def _section(section: str) -> list[str]:
    lines = [
        "",
        f"## {section}",
        "",
        "| bug | function | what goes wrong | caught by | seeds |",
        "|---|---|---|---|---|",
    ]
    for bug in BUGS:
        if section_of(bug) == section:
            lines.append(_line(bug))
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _unseen() -> list[str]:
    lines = [
        "",
        f"## {NOT_CAUGHT}",
        "",
        "Mutations that none of some 80 to 110 seeds caught (of sites: 9 to 40), and the reason as far as we know.",
        "Most of them only add latency: something else does the work of the removed code. Those that are called rare",
        "are gaps of the random scenarios.",
        "",
        "| bug | function | orderer | why nothing objects |",
        "|---|---|---|---|",
    ]
    return lines + _unseen_lines()


def _unseen_lines(orderer: str = "") -> list[str]:
    bugs = [bug for bug in UNSEEN if orderer in ("", bug.orderer)]
    return [f"| {bug.name} | `{bug.function}` | {bug.orderer} | {bug.breaks} |" for bug in bugs]


def _line(bug: Bug) -> str:
    catch = until_caught(bug, MOST_SEEDS)
    by, seeds = (catch.by, str(catch.seeds)) if catch is not None else ("nobody", f"> {MOST_SEEDS}")
    return f"| {bug.name} | `{bug.function}` | {bug.breaks} | {by} | {seeds} |"


def check(orderer: str = "") -> int:
    """Run every bug, or those of one orderer, within its bound, on several processors; how many nobody caught."""
    bugs = [bug for bug in BUGS if orderer in ("", bug.orderer)]
    missed = 0
    with multiprocessing.Pool(JOBS) as pool:
        for bug, catch in zip(bugs, pool.imap(caught, bugs), strict=True):
            missed += catch is None
            print(f"{bug.orderer}: {bug.name}: {_told(catch)}", flush=True)
    print(f"{len(bugs)} bugs, {missed} not caught within their bounds")
    return missed


def _told(catch: Catch | None) -> str:
    return f"caught by {catch.by}, seed {catch.seeds}" if catch is not None else "NOT CAUGHT"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run every planted bug until it is caught, and print a table.")
    parser.add_argument("--write", action="store_true", help=f"write the table to docs/{TABLE.name}")
    parser.add_argument("--check", action="store_true", help="only say which are not caught within their bounds")
    parser.add_argument("--orderer", choices=ORDERERS, default="", help="only run the bugs of this one")
    args = parser.parse_args()
    if args.check:
        sys.exit(check(args.orderer) > 0)
    text = "\n".join(renewed(args.orderer) if args.orderer else table()) + "\n"
    if args.write:
        TABLE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
