"""What nodes of `chaos.py --orderer regions` say, and what it proves; the engine that dies while it has the token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.cli.mortal_regions import MortalRegions
from ordercast.cli.region_processes import RegionProcesses, RegionsVenue, faults_of
from ordercast.engine import Outbox
from ordercast.view import Member
from ordercast.wire.courier import Parcel, ParcelPart, part_head
from ordercast.wire.header import Kind

CREWS = {"metals": ["ann", "bob"], "energy": ["cleo"]}
LIVES = {"ann": 1, "bob": 2, "cleo": 3}
SENT = {"ann": {"own": 3, "shared": 2}, "bob": {"own": 1, "shared": 0}, "cleo": {"own": 4, "shared": 5}}


def said(name: str, **others: Any) -> dict[str, Any]:
    """A node that has everything."""
    crew = next(each for each in CREWS.values() if name in each)
    received = {
        f"{sender}/{LIVES[sender]}": owed["shared"] + (owed["own"] if sender in crew else 0)
        for sender, owed in SENT.items()
    }
    return {"owed": SENT[name], "received": received, "left": 0, "lost": 0, "sums": {"ann/1": [5, 7]}, **others}


def faults(**changed: dict[str, Any]) -> list[str]:
    answers = {name: said(name, **changed.get(name, {})) for name in LIVES}
    return faults_of(answers, CREWS, LIVES, set(LIVES))


def test_nodes_that_have_everything_have_no_faults() -> None:
    assert faults() == []


def test_a_message_too_few_or_too_many_is_found() -> None:
    received = dict(said("bob")["received"], **{"cleo/3": 4})
    assert faults(bob={"received": received}) == ["bob has received 4 of 5 messages of cleo"]
    received["cleo/3"] = 6
    assert faults(bob={"received": received}) == ["bob has received 6 of 5 messages of cleo"]


def test_other_messages_of_a_killed_sender_are_found_in_a_region_only() -> None:
    assert faults(bob={"sums": {"dan/4": [1, 1]}}) == ["nodes of metals have received different messages: ann, bob"]
    assert faults(cleo={"sums": {"dan/4": [1, 1]}}) == []


def test_lost_blocks_are_a_fault_and_nodes_that_were_put_out_owe_nothing() -> None:
    assert faults(ann={"lost": 2}) == ["ann was told that 2 blocks are lost"]
    assert faults(ann={"left": 1, "lost": 2, "owed": {"own": 90}}) == []


def test_a_node_that_was_killed_is_not_asked(tmp_path: Path) -> None:
    processes = RegionProcesses(RegionsVenue(tmp_path, CREWS, ["g1"]))
    assert processes.names == ["ann", "bob", "cleo"]
    assert processes.faults({"ann": said("ann", received={})}) == []  # nobody was there before anything was sent


# The engine


class QuietEngine:
    """Only counts."""

    def __init__(self) -> None:
        self.received = 0
        self.passes = 0

    def receive(self, *_: object) -> None:
        self.received += 1

    def after_batch(self, *_: object) -> None:
        self.passes += 1


def a_member() -> Member:
    return Member(77, "ann", 1, ("10.0.0.1", 7_000))


def token_to(peer: int) -> memoryview:
    parcel = Parcel(Kind.REGION_TOKEN, 1, 2, 3, b"token")
    return memoryview(part_head(9, ParcelPart(5, peer, 1, 1, 0, 0, 0, parcel)) + b"token")


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signals that would have been sent."""
    signals: list[int] = []
    monkeypatch.setattr("ordercast.cli.mortal_regions.os.kill", lambda _, number: signals.append(number))
    monkeypatch.setattr(MortalRegions, "is_condemned", False)
    monkeypatch.setattr(MortalRegions, "loss", 0.0)
    return signals


def test_a_condemned_engine_dies_in_the_pass_in_which_the_token_comes_to_it(killed: list[int]) -> None:
    inner: Any = QuietEngine()
    engine = MortalRegions(inner, a_member())
    engine.receive(0, ("10.0.0.2", 1), token_to(a_member().id), 0, Outbox())
    engine.after_batch(0, Outbox())
    MortalRegions.is_condemned = True
    engine.receive(0, ("10.0.0.2", 1), token_to(a_member().id + 1), 0, Outbox())
    engine.after_batch(0, Outbox())
    assert not killed
    engine.receive(0, ("10.0.0.2", 1), token_to(a_member().id), 0, Outbox())
    engine.after_batch(0, Outbox())
    assert len(killed) == 1


def test_each_datagram_of_a_train_is_lost_by_itself(killed: list[int]) -> None:
    inner: Any = QuietEngine()
    engine = MortalRegions(inner, a_member())
    MortalRegions.loss = 1.0
    before = MortalRegions.lost
    engine.receive(0, ("10.0.0.2", 1), memoryview(b"abcde"), 2, Outbox())
    assert (inner.received, MortalRegions.lost - before) == (0, 3)
    assert not killed
