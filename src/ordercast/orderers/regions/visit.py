"""A token at one member, for one sender (QSM section 2.3.3; docs/design/regions.md has the steps: "The token").

`visit_entry` changes the member's record, gives the entry that goes on, and says what is to be pushed, pulled and asked
of the sender. `conclude_entry` is what the starter does when the token is back.

Deviation from the model in `tests/model/regions`: a member outside of the partition pushes a block to the partition's
leader where the token says that somebody lacks it and that it cannot be had from the sender (`asked`, `candidates`).
The model pushes all blocks without ACK, which is the same in the end and would be a storm: a single hole at one cacher
leaves everything behind it without ACK.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from ordercast.orderers.regions.partitions import Partitions, Stop, answered_by
from ordercast.orderers.regions.record import UNKNOWN, SenderRecord, at_least
from ordercast.parts.ranges import EMPTY, NumberSet, difference, from_numbers, from_runs, intersection, union
from ordercast.wire.header import MAX_SEGMENTS
from ordercast.wire.ranges import MAX_RUNS
from ordercast.wire.regions import DEAD, FINAL, REPORTED, SEEN, TokenEntry
from ordercast.wire.segments import Reassembly

HELPED: Final = 256  # blocks that a member pushes to leaders of other partitions in one visit


class Errand(NamedTuple):
    """Segments of blocks of one partition for, or from, one peer. Numbers are divided by the count of partitions."""

    peer: int
    partition: int
    segments: NumberSet


class Visit(NamedTuple):
    """Where a token is, and by whom: what all entries of one visit share."""

    me: int
    mine: int  # the partition of this member
    starter: int
    number: int  # of the round
    view: int
    stop: Stop
    before: int  # who had it before, in the same partition; 0: nobody
    partitions: Partitions  # as of the token's epoch
    out: frozenset[int]  # excluded as of the token's epoch
    out_before: frozenset[int]  # and as of the last complete round of its starter
    answered: tuple[bool, ...]  # for which blocks this member has to keep, by what it knows itself


class VisitOutcome(NamedTuple):
    """What comes of a visit: the entry that goes on, and errands. `naks`: to the sender; `has_lost`: there are verdicts
    that are new here."""

    entry: TokenEntry
    pushes: list[Errand]
    pulls: list[Errand]
    naks: list[Errand]
    has_lost: bool


def segment_set(blocks: Sequence[int], parts: Reassembly, view: int, sender: int, count: int) -> NumberSet:
    """What is missing of blocks of one partition, divided by the number of partitions: a burst is then one run."""
    runs: list[tuple[int, int]] = []
    for block in blocks:
        base = block // count * MAX_SEGMENTS
        for first, stop in parts.missing((view, sender, block)) or [(0, MAX_SEGMENTS)]:
            if runs and runs[-1][1] == base + first:
                runs[-1] = (runs[-1][0], base + stop)
            else:
                runs.append((base + first, base + stop))
        if len(runs) > MAX_RUNS:
            break  # one more than may stay tells where the limit is
    return from_runs(runs)


def new_entry(record: SenderRecord, is_dead: bool, is_start: bool) -> TokenEntry:
    """Of an entry that is made after the starter's visit, prefixes are 0: those before have not answered for the
    sender."""
    verdicts = record.verdicts
    flags = (DEAD if is_dead else 0) | (SEEN if is_start else 0) | (FINAL if record.final != UNKNOWN else 0)
    return TokenEntry(
        record.sender,
        flags,
        record.cutoff,
        record.ack,
        record.purge,
        final=max(record.final, 0),
        lost=verdicts.carried,
        gone=verdicts.gone,
        asked=verdicts.asked if is_start else EMPTY,
        candidates=verdicts.candidates if is_start else EMPTY,
    )


def visit_entry(
    visit: Visit, record: SenderRecord, entry: TokenEntry, parts: Reassembly, is_start: bool
) -> VisitOutcome:
    stop, mine, partitions = visit.stop, visit.mine, visit.partitions
    count = len(partitions)
    has_lost = _merge(visit, record, entry)
    record.free(visit.answered)
    cutoff = record.cutoff
    missing = record.missing(cutoff)
    own_missing = [block for block in missing if block % count == mine] if count > 1 else missing
    naks = segment_set(own_missing, parts, visit.view, record.sender, count) if own_missing else EMPTY
    verdicts = record.verdicts
    flags = entry.flags | (FINAL if record.final != UNKNOWN else 0)
    pushes: list[Errand] = []
    pulls: list[Errand] = []
    if visit.before and entry.flags & REPORTED and entry.naks != naks:
        theirs = difference(entry.naks, naks)
        if theirs.runs:
            pushes.append(Errand(visit.before, mine, theirs))
        ours = difference(naks, entry.naks)
        if ours.runs:
            pulls.append(Errand(visit.before, mine, ours))
    if stop.is_return:
        asked = [Errand(record.sender, mine, entry.common)] if entry.common.runs else []
        entry = entry._replace(
            flags=flags & ~REPORTED,
            final=max(record.final, 0),
            naks=EMPTY,
            common=EMPTY,
            lost=verdicts.carried,
            gone=verdicts.gone,
        )
        return VisitOutcome(entry, pushes, pulls, asked, has_lost)
    common = naks if stop.is_first or not entry.flags & REPORTED else intersection(entry.common, naks)
    maximum = max(entry.maximum, record.known)
    own = record.own_prefix(answered_by(partitions, mine), max(cutoff, maximum))
    full = record.prefix
    if not is_start:
        own, full = min(own, entry.own), min(full, entry.full)
    asks: list[Errand] = []
    if missing:
        _ask_others(visit, record, missing, parts, pulls, asks)
    pushes += _help_cachers(visit, record, entry)
    lack, asked_for, candidates = _judge(visit, record, entry, missing)
    is_told = entry.purge >= record.known and (record.final == UNKNOWN or entry.flags & FINAL)
    if is_told and flags & SEEN and visit.me != visit.starter:
        record.has_news = False
    onward = TokenEntry(
        record.sender,
        flags | REPORTED,
        entry.cutoff,
        entry.ack,
        entry.purge,
        maximum,
        max(record.final, 0),
        own,
        full,
        naks,
        common,
        lack,
        asked_for,
        candidates,
        verdicts.carried,
        verdicts.gone,
    )
    return VisitOutcome(onward, pushes, pulls, asks, has_lost)


def _merge(visit: Visit, record: SenderRecord, entry: TokenEntry) -> bool:
    record.ack = max(record.ack, entry.ack)
    record.purge = max(record.purge, entry.purge)
    record.cutoff = max(record.cutoff, entry.cutoff)
    has_lost = record.lose_all(entry.lost)
    verdicts = record.verdicts
    if entry.gone.runs:
        verdicts.gone = at_least(union(verdicts.gone, entry.gone), record.purge)
    if entry.flags & FINAL:
        record.final = max(record.final, entry.final)
        record.cutoff = max(record.cutoff, record.final)
    if verdicts.refused:
        # A refusal ends with a token of the same starter that has no such candidate, or after a complete round whose
        # epoch excludes the starter.
        before = verdicts.refused.pop(visit.starter, EMPTY)
        still = intersection(before, entry.candidates)
        if still.runs:
            verdicts.refused[visit.starter] = still
        for starter in [each for each in verdicts.refused if each in visit.out_before]:
            del verdicts.refused[starter]
    return has_lost


def _ask_others(
    visit: Visit,
    record: SenderRecord,
    missing: Sequence[int],
    parts: Reassembly,
    pulls: list[Errand],
    asks: list[Errand],
) -> None:
    """Blocks of other partitions are pulled from their leaders once ACK covers them. Those of a partition that nobody
    is left of are asked of the sender, and of another member in each round."""
    partitions, view, sender = visit.partitions, visit.view, record.sender
    count = len(partitions)
    if count == 1:
        return
    of: dict[int, list[int]] = {}
    for block in missing:
        of.setdefault(block % count, []).append(block)
    for partition, blocks in of.items():
        if partition == visit.mine:
            continue
        cachers = partitions[partition]
        if cachers:
            wanted = [block for block in blocks if block < record.ack]
            if wanted:
                pulls.append(Errand(cachers[0], partition, segment_set(wanted, parts, view, sender, count)))
            continue
        segments = segment_set(blocks, parts, view, sender, count)
        if sender not in visit.out:
            asks.append(Errand(sender, partition, segments))
        others = [node for each in partitions for node in each if node != visit.me]
        if others:
            pulls.append(Errand(others[visit.number % len(others)], partition, segments))


def _help_cachers(visit: Visit, record: SenderRecord, entry: TokenEntry) -> list[Errand]:
    """Blocks that somebody lacks, that cannot be had from the sender, and that this member keeps although it is no
    cacher of them, go to the leaders of their partitions."""
    if not entry.asked.runs and not entry.candidates.runs:
        return []
    partitions = visit.partitions
    count = len(partitions)
    of: dict[int, list[int]] = {}
    for block in record.keeping(union(entry.asked, entry.candidates))[:HELPED]:
        partition = block % count
        if partition != visit.mine and partitions[partition]:
            of.setdefault(partition, []).append(block)
    found = []
    for partition, blocks in of.items():
        runs = [(block // count * MAX_SEGMENTS, (block // count + 1) * MAX_SEGMENTS) for block in blocks]
        found.append(Errand(partitions[partition][0], partition, from_runs(runs)))
    return found


def _judge(
    visit: Visit, record: SenderRecord, entry: TokenEntry, missing: Sequence[int]
) -> tuple[NumberSet, NumberSet, NumberSet]:
    """The bounded way to a verdict: lack, then asked, then candidates, each through a complete round. Having delivered
    a block is not keeping it."""
    lack = entry.lack
    verdicts = record.verdicts
    is_dead = record.sender in visit.out
    if missing and (is_dead or verdicts.gone.runs):
        lacking = from_numbers(missing)
        lack = union(lack, lacking if is_dead else intersection(lacking, verdicts.gone))
    asked, candidates = entry.asked, entry.candidates
    if asked.runs:
        held = record.keeping(asked)
        if held:
            asked = difference(asked, from_numbers(held))
    if candidates.runs:
        held = record.keeping(candidates)
        if held:
            candidates = difference(candidates, from_numbers(held))
        refused = intersection(candidates, from_numbers(missing))
        refused = union(verdicts.refused.get(visit.starter, EMPTY), refused)
        if refused.runs:
            verdicts.refused[visit.starter] = refused
        # What could not be refused, since a set is bounded, is no candidate.
        candidates = from_runs(candidates.runs, min(candidates.limit, refused.limit))
    return lack, asked, candidates


def conclude_entry(
    record: SenderRecord, entry: TokenEntry, out_before: Collection[int], knew_final: bool
) -> tuple[bool, bool]:
    """The token is back at its starter, a complete round: whether the sender gets an ACK, and whether something was
    found to be lost. An entry that was made after the starter's visit sets the cutoff only."""
    record.cutoff = max(record.cutoff, entry.maximum)
    verdicts = record.verdicts
    if entry.flags & FINAL:
        record.final = max(record.final, entry.final)
        record.cutoff = max(record.cutoff, record.final)
    has_lost = record.lose_all(entry.lost)
    if not entry.flags & SEEN:
        verdicts.asked = verdicts.candidates = EMPTY
        record.has_news = True
        return False, has_lost
    record.ack = max(record.ack, entry.own)
    record.purge = max(record.purge, entry.full)
    if record.final == UNKNOWN and record.sender in out_before:
        # Since that round nobody has taken anything from the sender itself.
        record.final = entry.maximum
        record.has_news = True
    elif entry.purge >= record.known and (record.final == UNKNOWN or knew_final):
        record.has_news = False
    verdict = intersection(entry.candidates, entry.lack)
    verdicts.candidates = difference(intersection(entry.asked, entry.lack), verdict)
    verdicts.asked = difference(difference(entry.lack, verdict), verdicts.candidates)
    return True, record.lose_all(verdict) or has_lost
