"""What clients of daemons have seen, and whether it can be true at once: the judge of `chaos.py --orderer daemons`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ordercast.cli.chronicle import Chronicle, Transition, disagreements, parting_faults

A, B, C = "#a#d1", "#b#d1", "#c#d2"


def life(*steps: Transition) -> list[Transition]:
    return list(steps)


def came(client: str, before: str, id_: str, members: tuple[str, ...], together: tuple[str, ...]) -> Transition:
    return Transition(client, before, id_, members, together, (), "network", 3, 77, None)


ALL, PART, OTHER, AGAIN = (A, B, C), (A, B), (C,), (A, B, C)
A_LIFE = life(came(A, "", "1", ALL, (A,)), came(A, "1", "2", PART, PART), came(A, "2", "4", AGAIN, PART))
B_LIFE = life(came(B, "", "1", ALL, (B,)), came(B, "1", "2", PART, PART), came(B, "2", "4", AGAIN, PART))
C_LIFE = life(came(C, "", "1", ALL, (C,)), came(C, "1", "3", OTHER, OTHER), came(C, "3", "4", AGAIN, OTHER))


def changed(steps: list[Transition], at: int, **fields: Any) -> list[Transition]:
    return [*steps[:at], replace(steps[at], **fields), *steps[at + 1 :]]


def told_by(write: Any) -> list[Transition]:
    """What a chronicle tells of itself, through JSON as between processes."""
    found: list[Transition] = []

    def tell(word: str, **fields: Any) -> None:
        assert word == "view"
        found.append(Transition.read(json.loads(json.dumps(fields))))

    chronicle = Chronicle(tell)
    chronicle.client = A
    write(chronicle)
    return found


def test_clients_that_have_seen_the_same_agree() -> None:
    assert disagreements([A_LIFE, B_LIFE, C_LIFE]) == []
    assert disagreements([changed(A_LIFE, 2, sets=(PART, OTHER)), B_LIFE, C_LIFE]) == []


def test_every_contradiction_is_found() -> None:
    wrong = {
        "different members": changed(A_LIFE, 2, members=(A, C)),
        "with different messages (3 and 4)": changed(B_LIFE, 2, count=4),
        "with different messages": changed(B_LIFE, 2, checksum=78),
        "signal at different places": changed(B_LIFE, 2, signal=(3, 77)),
        "from different views": changed(B_LIFE, 2, before="1"),
        f"but {B} with {B}": changed(B_LIFE, 2, together=(B,)),
        f"{B} has come into 4 with {C}": changed(B_LIFE, 2, together=(C,)),
        f"says that {C} came into 4 with {A} {C}": changed(A_LIFE, 2, sets=((A, C), (B,))),
        "are not its members": changed(A_LIFE, 2, sets=(PART,)),
        "in different orders": life(A_LIFE[0], A_LIFE[2], A_LIFE[1]),
        "twice": life(*A_LIFE, A_LIFE[2]),
    }
    for text, steps in wrong.items():
        lives = {each[0].client: each for each in (A_LIFE, B_LIFE, C_LIFE)} | {steps[0].client: steps}
        found = disagreements(list(lives.values()))
        assert any(text in each for each in found), (text, found)


def test_vs_sets_of_a_partition_and_its_merge_are_the_parts() -> None:
    lives = [changed(A_LIFE, 2, sets=(PART, OTHER)), B_LIFE, C_LIFE]
    assert parting_faults(lives, [PART, OTHER]) == (6, [])
    wrong = [
        [changed(A_LIFE, 1, together=(A,)), B_LIFE, C_LIFE],
        [changed(A_LIFE, 2, together=ALL), B_LIFE, C_LIFE],
        [changed(A_LIFE, 2, sets=((A,), (B,), (C,))), B_LIFE, C_LIFE],
        [changed(A_LIFE, 2, sets=((A, B, C),)), B_LIFE, C_LIFE],
    ]
    for broken in wrong:
        checked, faults = parting_faults(broken, [PART, OTHER])
        assert (checked, len(faults)) == (6, 1)
    assert parting_faults([A_LIFE[:1], C_LIFE[1:2]], [PART, OTHER]) == (0, [])


def test_a_chronicle_tells_what_came_in_each_view_and_where_the_signal_was() -> None:
    def write(chronicle: Chronicle) -> None:
        chronicle.on_view("1", ALL, [A], "join")
        chronicle.message(B, b"x")
        chronicle.on_signal()
        chronicle.message(C, b"y")
        chronicle.on_signal()
        chronicle.on_view("2", [B, A], [B, A], "network", [[B, A]])
        chronicle.on_lost()
        chronicle.on_view("3", [A], [A], "join")

    first, second, third = told_by(write)
    assert (first.before, first.count, first.signal) == ("", 0, None)
    assert (second.before, second.members, second.together, second.sets) == ("1", (A, B), (A, B), ((A, B),))
    assert second.count == 2
    assert second.signal is not None
    assert second.signal[0] == 1
    assert second.signal[1] != second.checksum
    assert (third.before, third.count, third.signal) == ("", 0, None)


def test_the_checksum_is_of_senders_and_payloads_in_their_order() -> None:
    def sums(*messages: tuple[str, bytes]) -> int:
        def write(chronicle: Chronicle) -> None:
            for sender, payload in messages:
                chronicle.message(sender, payload)
            chronicle.on_view("1", [A], [A], "join")

        return told_by(write)[0].checksum

    found = {sums((A, b"x"), (B, b"y")), sums((B, b"y"), (A, b"x")), sums((B, b"x"), (A, b"y")), sums((A, b"x"))}
    assert len(found) == 4
