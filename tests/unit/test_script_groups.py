"""Words of scripts for `orderer sites`: other groups, sessions, counted losses and counters; what the errors say."""

from __future__ import annotations

import pytest

from ordercast.sim.script import ExpectationFailed, ScriptError, parse_script
from ordercast.sim.script_groups import SessionAct
from ordercast.sim.transcript import Transcript, run_script

HEAD = "nodes a b c; orderer sites\nsite east a b; site west c\n"


@pytest.mark.parametrize(
    ("line", "act"),
    [
        ("x@a join news,chat", SessionAct("join", (("x", "a"),), ("news", "chat"))),
        ("a,x@c leave news", SessionAct("leave", (("", "a"), ("x", "c")), ("news",))),
        ("at 20ms x@a close", SessionAct("close", (("x", "a"),))),
        ("b send 2 SAFE to news size 7", SessionAct("send", (("", "b"),), ("news",), 2, "SAFE", 7)),
        ("until view x@a of 2 in news", SessionAct("view", (("x", "a"),), ("news",), 2)),
        ("expect x@a delivered 0 in news", SessionAct("delivered", (("x", "a"),), ("news",), 0)),
    ],
)
def test_what_sessions_do_is_a_statement(line: str, act: SessionAct) -> None:
    (statement,) = parse_script(HEAD + line + "\n").statements
    assert statement.session_act == act
    assert statement.word == "groups"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x@d join news", "there is no session 'x@d'; write x@a, where a is one of a, b, c"),
        ("@a join news", "there is no session '@a'"),
        ("x@a joins news", "cannot read 'x@a joins news'; write: x@a join news"),
        ("x@a join news,", "'news,' has a group without a name"),
        ("a send many AGREED to news", "'many' is no number"),
        ("a send 1 URGENT to news", "URGENT"),
        ("a send 1 AGREED to news now", "cannot read 'now'"),
        ("lose some site_token -> b", "'some' is no number"),
        ("lose 3 letters -> b", "there is no kind of datagram 'letters'"),
        ("show counter", "with orderer sites: show counters"),
    ],
)
def test_a_line_that_cannot_be_read_says_what_would_be_right(line: str, text: str) -> None:
    with pytest.raises(ScriptError) as raised:
        parse_script(HEAD + line + "\n")
    assert raised.value.line == 3
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("nodes a b\nx@a join news\n", "need a shared underlay: write orderer sites before"),
        ("nodes a b\nshow counters\n", "with orderer sites: show counters"),
        ("nodes a b; orderer sites\n", "the orderer sites needs sites, as in: site east a b"),
    ],
)
def test_what_does_not_fit_together_is_said(script: str, text: str) -> None:
    with pytest.raises(ScriptError) as raised:
        parse_script(script)
    assert text in str(raised.value)


def ran(statements: str) -> Transcript:
    return run_script(parse_script(HEAD + statements))


def said(transcript: Transcript, begin: str) -> list[str]:
    return [line.strip() for line in transcript.lines if line.strip().startswith(begin)]


def test_a_message_to_several_groups_comes_once_to_each_session() -> None:
    transcript = ran("x@a,c join news\nuntil view x@a,c of 2 in news\nb send 2 AGREED to news,sim\nuntil rest\n")
    assert said(transcript, "x@a in news: delivers") == ["x@a in news: delivers 2 of b to news,sim"]
    assert said(transcript, "c in news: delivers") == ["c in news: delivers 2 of b to news,sim"]
    assert said(transcript, "c: delivers") == []  # the same session


def test_a_session_that_closes_is_out_and_its_label_is_free() -> None:
    transcript = ran(
        "x@a join news,chat\nuntil view x@a of 1 in news\nuntil view x@a of 1 in chat\nx@a close\nuntil rest\n"
        "expect view x@a of 0 in news\nx@a join news\nuntil view x@a of 1 in news\nuntil rest\n"
    )
    assert said(transcript, "x@a in chat") == [
        "x@a in chat: view of 1: x@a (join x@a/0), came with x@a",
        "x@a in chat: left",
    ]


def test_sessions_go_with_a_crash_of_their_daemon() -> None:
    ran("x@c join news\nuntil view x@c of 1 in news\ncrash c\nx@c send 1 AGREED to news\nrun 1ms\n"
        "expect view x@c of 0 in news\nrestart c\nuntil view all of 3\nx@c join news\n"
        "until view x@c of 1 in news\nuntil rest\n")  # fmt: skip


def test_an_expectation_of_a_group_says_what_there_is() -> None:
    with pytest.raises(ExpectationFailed, match=r"line 5: .* does not hold: x@a delivered 0, in the view of x@a/0"):
        ran("x@a join news\nuntil view x@a of 1 in news\nexpect x@a delivered 1 in news\n")


def test_so_many_transmissions_of_a_kind_are_lost() -> None:
    transcript = ran("until rest\nwatch site_token\nlose 2 site_token -> b\na send 1 AGREED\nuntil lost\nuntil rest\n")
    assert len([line for line in transcript.lines if line.endswith("(lost at b)")]) == 2


def test_a_loss_that_has_not_happened_is_waited_for() -> None:
    with pytest.raises(ExpectationFailed, match="line 4: 'expect lost' does not hold"):
        ran("lose 1 proposal -> b\nexpect lost\n")


def test_counters_tell_routes_and_links_of_daemons_that_are_up() -> None:
    transcript = ran("crash b\nshow counters\n")
    assert said(transcript, "a: routes") == ["a: routes_computed 2, links_opened 1"]
    assert said(transcript, "b: routes") == []


def test_the_wire_is_told_in_words() -> None:
    transcript = ran(
        "watch packet update skip site_token gather\na join news\nuntil rest\na send 1 SAFE to news\nuntil rest\n"
    )
    told = "\n".join(said(transcript, "wire:"))
    for words in (
        "packet east 2: interest to c",
        ": join to c",
        ": 1 SAFE to b",
        "update of west to a",
        "skip of east",
    ):
        assert words in told
