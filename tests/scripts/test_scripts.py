"""Every script of this folder is a test: it must run as it says, give its transcript, and break no property.

After a change that is meant to change transcripts: REWRITE_SCRIPTS=1 pytest tests/scripts, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ordercast.sim.script import SEPARATOR, ExpectationFailed, parse_script
from ordercast.sim.toy import ToyEngines
from ordercast.sim.transcript import run_script

SCRIPTS = sorted(Path(__file__).parent.glob("*.script"))

TOY_SCRIPT = """
nodes a b c; network lan
a send 10 AGREED
b send 5 FIFO confirm
until all delivered 15
expect b confirmed 5
expect all same
show datagrams
"""


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_script(path: Path) -> None:
    script = parse_script(path.read_text(encoding="utf-8"))
    transcript = run_script(script)
    if os.environ.get("REWRITE_SCRIPTS"):
        lines = "\n".join(transcript.lines)
        path.write_text(f"{script.source.rstrip()}\n{SEPARATOR}\n{lines}\n", encoding="utf-8")
    elif script.expected is not None:
        assert transcript.lines == script.expected
    verdict = transcript.verdict(is_quiet=script.statements[-1].word == "rest")
    assert not verdict.violations, "\n".join(verdict.summary())
    assert transcript.branches() == []


def test_a_transcript_shows_what_each_node_saw_below_each_statement() -> None:
    transcript = run_script(parse_script(TOY_SCRIPT), ToyEngines("abc"))
    assert transcript.lines == [
        "> begin",
        *(f"  {name}: view of 3: a b c (create)" for name in "abc"),
        "> a send 10 AGREED",
        "> b send 5 FIFO confirm",
        "> until all delivered 15",
        *(f"  {name}: delivers 10 of a, 5 of b" for name in "abc"),
        "> expect b confirmed 5",
        "> expect all same",
        "> show datagrams",
        "  ordered 3",
        "  request 1",
    ]


def test_an_expectation_that_fails_names_its_line_and_what_there_was() -> None:
    script = parse_script("nodes a b\na send 3 AGREED\nrun 1s\nexpect a,b delivered 4\n")
    with pytest.raises(ExpectationFailed, match=r"line 4: .* does not hold: a/0 delivered 3, .*; b/0 delivered 3"):
        run_script(script, ToyEngines("ab"))


def test_an_until_that_never_holds_says_so() -> None:
    script = parse_script("nodes a b; limit 5s\nuntil view a of 3\n")
    with pytest.raises(ExpectationFailed, match=r"line 2: 'until view a of 3' after 5 s of virtual time"):
        run_script(script, ToyEngines("ab"))


def test_a_planned_statement_happens_at_its_time() -> None:
    script = parse_script(
        "nodes a b\nat 200ms a send 1 AGREED\nrun 100ms\nexpect b delivered 0\nrun 200ms\nexpect b delivered 1\n"
    )
    run_script(script, ToyEngines("ab"))


def test_a_group_that_may_stand_still_is_stuck() -> None:
    run_script(parse_script("nodes a b c; orderer token; limit 10s\ncrash a,b\nuntil rest or stuck\n"))


def test_a_group_that_must_go_on_is_not_excused() -> None:
    script = parse_script("nodes a b; limit 5s\nb send 1 AGREED\nloss 100%\nuntil rest or stuck\n")
    with pytest.raises(ExpectationFailed, match="line 4: not at rest"):
        run_script(script, ToyEngines("ab"))
