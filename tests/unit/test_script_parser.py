"""The language of scripts: what parses, and what the error says where it does not."""

from __future__ import annotations

import pytest

from ordercast.sim.script import ScriptError, parse_script

EXAMPLE = """
nodes a b c d e; loss 5%   # five nodes
a send 10 AGREED
at 200ms crash a
until view b of 4
b send 5 SAFE
expect b,c,d,e delivered 15
"""


def test_the_example_of_the_design_parses() -> None:
    script = parse_script(EXAMPLE)
    assert script.settings.nodes == ("a", "b", "c", "d", "e")
    assert script.settings.loss == 0.05
    assert [statement.verb for statement in script.statements] == ["send", "crash", "until", "send", "expect"]
    send, crash, until, _, expect = script.statements
    assert (send.nodes, send.number, send.word) == (("a",), 10, "AGREED")
    assert crash.at_ns == 200_000_000
    assert (until.word, until.nodes, until.number) == ("size", ("b",), 4)
    assert (expect.word, expect.nodes, expect.number) == ("delivered", ("b", "c", "d", "e"), 15)
    assert script.expected is None


def test_the_transcript_stands_after_the_dashes() -> None:
    script = parse_script("nodes a\na send 1 FIFO\n----\n> a send 1 FIFO\n  a: 1 delivered\n")
    assert script.expected == ["> a send 1 FIFO", "  a: 1 delivered"]
    assert len(script.statements) == 1


@pytest.mark.parametrize(
    "line",
    [
        "a,b send 5 RESILIENT(2) size 2000 confirm",
        "run 1.5s",
        "cut a -> b,c",
        "mend a -> b",
        "partition a,b | c",
        "heal",
        "slow b x20",
        "stall c",
        "leave a",
        "rejoin a",
        "a reset 2",
        "until rest",
        "until rest or stuck",
        "expect view a is a,b",
        "expect all same",
        "loss 30%",
        "show datagrams",
        "a lock key 300ms",
        "x call 2 AGREED",
        "a call 1 SAFE handler 2 size 50",
        "until x answered 2",
        "expect a granted 1",
        "lose token -> b,x",
        "watch data token nak",
        "at 5us pause all",
    ],
)
def test_every_statement_parses(line: str) -> None:
    assert len(parse_script(f"nodes a b c; callers x\nrun 1ms\n{line}\n").statements) == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "begins with its nodes"),
        ("a send 1 FIFO", "line 1: name the nodes first"),
        ("nodes a a", "different nodes"),
        ("nodes A", "'A' is no name"),
        ("nodes a\nz send 1 FIFO", "line 2: cannot read 'z send 1 FIFO'; a statement is"),
        ("nodes a\n\na send 1 LOUD", "line 3: unknown service 'LOUD'"),
        ("nodes a\na send x FIFO", "'x' is no number"),
        ("nodes a\na send 1 FIFO loudly", "cannot read 'loudly'; write: a send 10 AGREED"),
        ("nodes a\ncrash b", "there is no node 'b'; the nodes are a"),
        ("nodes a\nrun fast", "'fast' is no time; write 200ms"),
        ("nodes a; loss 200%", "'200%' is no share"),
        ("nodes a; network moon", "choose one of ideal, loopback, lan, far, distant"),
        ("nodes a\nat 5ms until rest", "`until` cannot be planned"),
        ("nodes a\nat 5ms", "`at` needs a time and a statement"),
        ("nodes a b\ncut a b", "write: cut a -> b,c"),
        ("nodes a; callers a", "different nodes"),
        ("nodes a; callers x\nx send 1 FIFO", "a caller is no member: it can only call; write: x call 1 AGREED"),
        ("nodes a\na call 1 FIFO", "a member calls the holder of a handler; write: x call 1 AGREED, a call 1 SAFE"),
        ("nodes a\nwatch smoke", "there is no kind of datagram 'smoke'; choose one of data, request"),
        ("nodes a; recovery sometimes", "automatic or manual"),
    ],
)
def test_an_error_names_the_line_and_what_would_be_right(text: str, error: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(text)
    assert error in str(caught.value)
