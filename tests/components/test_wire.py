"""Bodies of the components policy: golden bytes, round trips, and bytes that nobody of ours sends."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from ordercast.errors import InvariantViolation, WireError
from ordercast.wire.components import (
    MAX_ENTRIES,
    ComponentHello,
    ComponentProposal,
    DaemonLife,
    Fetch,
    Fetched,
    Gather,
    GatherStep,
    HolderRun,
    NamedView,
    ProposedClass,
    RoundVote,
    SiteCut,
    decode_fetch,
    decode_gather,
    decode_hello,
    decode_proposal,
    decode_site_cut,
    decode_vote,
    encode_fetch,
    encode_fetched,
    encode_gather,
    encode_hello,
    encode_proposal,
    encode_site_cut,
    encode_vote,
    indices_of,
    mask_of,
)
from ordercast.wire.cuts import (
    CUT_ENTRIES,
    Ballot,
    Cut,
    Due,
    Lineage,
    Listed,
    Remainder,
    Result,
    ResultId,
    Skip,
    SourceCut,
    ViewId,
)
from ordercast.wire.header import HEADER_BYTES, MAX_SEGMENTS
from ordercast.wire.numbers import NumberReader, folded, pack_numbers
from ordercast.wire.sites import MAX_LTS

ANN, BOB, CAT = DaemonLife(0, 3), DaemonLife(1, 0), DaemonLife(5, 1_700)
A, B, C = 0x1111_2222_3333_4444, 0x5555_6666_7777_8888, 0xFFFF_FFFF_FFFF_FFFF
BALLOT = Ballot(7, A)
OLD = ViewId(4, B)
RESULT_ID = ResultId(Ballot(6, B), OLD, 1)
VIEW = NamedView(4, BOB, (ANN, BOB))
HELLO = ComponentHello(ANN, True, 7, 4, BOB, (ANN, BOB), mask_of([5, 9]), mask_of([5]), C)
GATHER = Gather(ANN, GatherStep.ASK, BALLOT, mask_of([1, 5]))
SOURCE = SourceCut(
    0,
    10,
    12,
    40,
    (Listed(11, 38, 4, A, 3), Listed(12, 40, 7, B, 1), Listed(15, 48, 4, A, 3)),
    (Skip(13, 14, 46, 2, 45), Skip(16, 16, 50, 2, 0)),
    ((15, 49),),
)
EMPTY = SourceCut(1, 0, 0, 30, (), (), ())
CUT = SiteCut(
    ANN,
    BALLOT,
    5,
    mask_of([9]),
    VIEW,
    Cut(A, 0, OLD, (0, 1), (SOURCE, EMPTY), (35, 30), 38, 50, False, Lineage(OLD, RESULT_ID), None),
)
BOUND = CUT._replace(
    cut=CUT.cut._replace(
        sources=(), arus=(), is_synced=True, bound=Result(RESULT_ID, (A, B), 40, 35, Remainder((), ()))
    )
)
REMAINDER = Remainder((Due(38, 0, 11, 4, A, 3), Due(40, 0, 12, 7, B, 1)), (Due(48, 0, 15, 4, A, 3),))
PROPOSAL = ComponentProposal(
    ANN,
    BALLOT,
    8,
    51,
    (ANN, BOB, CAT),
    mask_of([9]),
    (VIEW, NamedView(2, CAT, (CAT,))),
    (
        ProposedClass(0, ResultId(BALLOT, OLD, 0), 40, (0, 1)),
        ProposedClass(1, ResultId(BALLOT, ViewId(2, C), 0), 30, (2,)),
    ),
    ((0, 1), (2,)),
    0,
    35,
    REMAINDER,
    (HolderRun(0, 15, 1, (1,)),),
)
VOTE = RoundVote(CAT, BALLOT)
FETCH = Fetch(BOB, ((0, 11, 2), (1, 3, 1)))
FETCHED = Fetched(BOB, 0, 11, b"stamp and block")

BODIES: Final[dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any], str]]] = {
    "hello": (HELLO, encode_hello, decode_hello, "0003010704010002000301000205090105ffffffffffffffffff01"),
    "gather": (GATHER, encode_gather, decode_gather, "00030107c488cd99a3c4c88811020105"),
    "cut": (
        CUT,
        encode_site_cut,
        decode_site_cut,
        "000307c488cd99a3c4c888110501090401000200030100c488cd99a3c4c8881100048891debbe7ccd9aa552632000488"
        "91debbe7ccd9aa5501068891debbe7ccd9aa55048891debbe7ccd9aa5501020001000304c488cd99a3c4c88811030788"
        "91debbe7ccd9aa55010000020a0c2823030126000102010308000206015c02020600080200010f3100001e1e000000",
    ),
    "bound cut": (
        BOUND,
        encode_site_cut,
        decode_site_cut,
        "000307c488cd99a3c4c888110501090401000200030100c488cd99a3c4c8881100048891debbe7ccd9aa552632010488"
        "91debbe7ccd9aa5501068891debbe7ccd9aa55048891debbe7ccd9aa550102000101068891debbe7ccd9aa55048891de"
        "bbe7ccd9aa5501282302c488cd99a3c4c888118891debbe7ccd9aa55",
    ),
    "proposal": (
        PROPOSAL,
        encode_proposal,
        decode_proposal,
        "000307c488cd99a3c4c888110833030003010005a40d01090204010002000301000205a40d0105a40d020007c488cd99"
        "a3c4c88811048891debbe7ccd9aa5500280200010107c488cd99a3c4c8881102ffffffffffffffffff01001e01020202"
        "000101020023010204c488cd99a3c4c8881103078891debbe7ccd9aa5501020126001602010208000601000f010101",
    ),
    "vote": (VOTE, encode_vote, decode_vote, "05a40d07c488cd99a3c4c88811"),
    "fetch": (FETCH, encode_fetch, decode_fetch, "00010002000b02010301"),
    "fetched": (FETCHED, encode_fetched, decode_fetch, "040100000b7374616d7020616e6420626c6f636b"),
}


@pytest.mark.parametrize("name", BODIES)
def test_golden_bytes(name: str) -> None:
    """A difference means that daemons of two versions no longer understand each other: change `MAGIC` with it."""
    value, encode, decode, golden = BODIES[name]
    assert encode(value).hex() == golden
    assert decode(bytes.fromhex(golden)) == value


@pytest.mark.parametrize("name", BODIES)
def test_shortened_and_changed_bytes_are_refused_or_read_as_something_else(name: str) -> None:
    """Nothing but WireError comes of bytes that were cut off, lengthened or changed."""
    value, encode, decode, _ = BODIES[name]
    body, rng = encode(value), random.Random(name)
    refused = 0
    cases = [body[:size] for size in range(len(body))] if name != "fetched" else [body[:size] for size in range(20)]
    for _ in range(1_000):
        changed = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        cases.append(bytes(changed) + rng.randbytes(rng.choice((0, 0, 3))))
    cases += [rng.randbytes(rng.randrange(200)) for _ in range(300)]
    for case in cases:
        try:
            decode(case)
        except WireError:
            refused += 1
    assert refused > len(cases) // 3


def test_a_proposal_names_every_member_in_one_class_and_one_roster_group() -> None:
    for wrong in (
        PROPOSAL._replace(roster_groups=((0, 1),)),
        PROPOSAL._replace(roster_groups=((0, 1), (1, 2))),
        PROPOSAL._replace(classes=PROPOSAL.classes[:1]),
        PROPOSAL._replace(members=(BOB, ANN, CAT)),
        PROPOSAL._replace(remainder=Remainder(REMAINDER.before, REMAINDER.before)),
    ):
        with pytest.raises((WireError, InvariantViolation)):
            decode_proposal(encode_proposal(wrong))


def test_the_largest_cut_fits_into_the_segments_of_one_body() -> None:
    """Three windows of entries, in datagrams of 1,400 bytes."""
    each = CUT_ENTRIES
    sorts = [(4, A + origin, 1 << origin % 64 | 1) for origin in range(500)]
    blocks = tuple([Listed(seq, 90 * seq, *sorts[seq % 500]) for seq in range(1, 2 * each, 2)])
    skips = tuple([Skip(seq, seq, 90 * seq, sorts[seq % 500][2], 90 * seq) for seq in range(2, 4 * each + 2, 2)])
    source = SourceCut(0, 0, 0, 5, blocks, skips, ())
    told = CUT._replace(cut=CUT.cut._replace(sources=(source, EMPTY)))
    body = encode_site_cut(told)
    assert len(blocks) + len(skips) == MAX_ENTRIES
    assert len(body) <= MAX_SEGMENTS * (1_400 - HEADER_BYTES)
    assert decode_site_cut(body) == told


def test_a_cut_and_a_proposal_tell_every_time_stamp_that_a_block_may_have() -> None:
    """Otherwise the streams of a view could go on to a time stamp that no view change can tell of."""
    block, skip = Listed(1, MAX_LTS - 1, 4, A, 3), Skip(2, 2, MAX_LTS, 2, MAX_LTS)
    source = SourceCut(0, 0, 0, MAX_LTS, (block,), (skip,), ((2, MAX_LTS),))
    cut = CUT._replace(
        cut=CUT.cut._replace(sources=(source, EMPTY), arus=(MAX_LTS, 30), delivered=MAX_LTS, clock=MAX_LTS)
    )
    assert decode_site_cut(encode_site_cut(cut)) == cut
    remainder = Remainder((Due(MAX_LTS, 0, 11, 4, A, 3),), ())
    proposal = PROPOSAL._replace(first_lts=MAX_LTS, stable=MAX_LTS, remainder=remainder, holders=())
    assert decode_proposal(encode_proposal(proposal)) == proposal
    for wrong in (
        CUT._replace(cut=CUT.cut._replace(clock=MAX_LTS + 1)),
        CUT._replace(cut=CUT.cut._replace(delivered=MAX_LTS + 1)),
    ):
        with pytest.raises(WireError):
            decode_site_cut(encode_site_cut(wrong))


def test_a_cut_with_more_entries_than_the_bound_is_refused() -> None:
    blocks = tuple([Listed(seq, seq, 4, A, 1) for seq in range(1, MAX_ENTRIES + 2)])
    told = CUT._replace(cut=CUT.cut._replace(sources=(SourceCut(0, 0, 0, 5, blocks, (), ()), EMPTY)))
    with pytest.raises(WireError):
        decode_site_cut(encode_site_cut(told))


def test_numbers_of_any_size_survive() -> None:
    numbers = [0, 1, 127, 128, 16_383, 16_384, (1 << 63) - 1, (1 << 64) - 1]
    reader = NumberReader(pack_numbers(numbers))
    assert [reader.number((1 << 64) - 1) for _ in numbers] == numbers
    reader.end()
    signed = [0, 1, -1, 63, -64, 1 << 40, -(1 << 40)]
    reader = NumberReader(pack_numbers([folded(each) for each in signed]))
    assert [reader.signed() for _ in signed] == signed


def test_numbers_that_are_too_long_or_cut_off_are_refused() -> None:
    for body in (b"\x80", b"\xff" * 10 + b"\x01", b"\x01\x80\x80"):
        with pytest.raises(WireError):
            NumberReader(body)
    with pytest.raises(InvariantViolation):
        pack_numbers([3, -1])


def test_masks_are_lists_of_indices() -> None:
    assert indices_of(mask_of([0, 7, 900])) == [0, 7, 900]
    assert indices_of(0) == []
