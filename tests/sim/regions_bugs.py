"""Bugs of the engine of regions: each is one mutation, and a rule of docs/design/regions.md that it turns off.

Their runs are those of `tests/regions/chance.py`, from the seed that each names on. `python -m tests.regions.planted`
runs them all and says which seed catches each.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

REGIONS: Final = "regions"
ENGINE: Final = "engine"
"""In place of a profile of the fuzzer: engines over given views."""
Code = str | tuple[str, ...]


def _bug(name: str, function: str, old: Code, new: Code, breaks: str, bound: int, first: int = 1) -> Bug:
    return Bug(name, function, old, new, breaks, bound, REGIONS, ENGINE, first_seed=first)


REGIONS_BUGS: Final[tuple[Bug, ...]] = (
    # Rounds
    _bug(
        "a token leaves the last member out",
        "MemberView.way",
        "partitions_of(self.given, self._exclusions.as_of(epoch, self.given.epoch))",
        (
            "partitions_of(self.given, self._exclusions.as_of(epoch, self.given.epoch) | "
            "({self.given.members[-1].id} - {starter}))"
        ),
        "What is acknowledged, or purged, that member may lack.",
        60,
    ),
    _bug(
        "prefixes are those of the last member",
        "visit_entry",
        "own, full = min(own, entry.own), min(full, entry.full)",
        "",
        "A block is purged that others lack.",
        60,
    ),
    _bug(
        "purge takes the prefix of the own partition",
        "conclude_entry",
        "record.purge = max(record.purge, entry.full)",
        "record.purge = max(record.purge, entry.own)",
        "Cachers drop what others lack.",
        60,
    ),
    _bug(
        "only the leader starts tokens",
        "TokenDesk.step",
        "self.start(now_ns, view)\nview.expect(now_ns, interval_ns)",
        "view.expect(now_ns, interval_ns)",
        "A view whose leader is gone, or has forgotten it, never drains.",
        60,
    ),
    _bug(
        "a member leaves an old view at once",
        "RegionsEngine._install",
        "found.end(epoch.number)",
        "found.end(epoch.number)\nfound.is_drained = True",
        "What it lacks of the old view it never gets, and what it keeps nobody gets.",
        60,
    ),
    _bug(
        "partitions are made of the living",
        "partitions_of",
        "enumerate(view.members)",
        "enumerate([each for each in view.members if each.id not in excluded])",
        "Blocks are stable at cachers of before, and others are asked.",
        60,
    ),
    # Keeping and repairing
    _bug(
        "blocks of a partition without members are not asked for",
        "_ask_others",
        (
            "asks.append(Errand(sender, partition, segments))",
            "pulls.append(Errand(others[visit.number % len(others)], partition, segments))",
        ),
        (
            "pass",
            "pass",
        ),
        "Who lacks them never gets them.",
        60,
    ),
    _bug(
        "only cachers keep a block",
        "SenderRecord.take",
        "block >= self.purge and (answers or block >= self.ack)",
        "block >= self.purge and answers",
        "A block that missed all cachers of a dead sender is lost although members delivered it.",
        60,
    ),
    _bug(
        "members outside of a partition do not help it",
        "_help_cachers",
        "found.append(Errand(partitions[partition][0], partition, from_runs(runs)))",
        "",
        "A block that missed all cachers of a dead sender stays where it is.",
        60,
    ),
    _bug(
        "cachers drop what is acknowledged",
        "SenderRecord.free",
        "block < purge or (block < ack and not answered[block % count])",
        "block < purge or block < ack",
        "Other partitions cannot get it any more.",
        60,
    ),
    _bug(
        "nothing is pushed or pulled",
        "TokenDesk._carry_out",
        (
            "members.push(view, work.pushes)",
            "members.pull(view, work.pulls)",
        ),
        (
            "pass",
            "pass",
        ),
        "What some members lack is never repaired.",
        60,
    ),
    _bug(
        "the sender is not asked",
        "TokenDesk._carry_out",
        "members.ask(view, work.naks)",
        "",
        "What a whole partition lacks is never repaired.",
        60,
    ),
    _bug(
        "segments of a block that is not whole are not given",
        "MemberDesk._give",
        "found is not None",
        "False",
        "Members that have a block together never get it whole.",
        60,
    ),
    _bug(
        "PULL is not answered",
        "MemberDesk.on_pull",
        "self._give(view, record, Errand(peer, parcel.number, segments), Kind.PULLED)",
        "",
        "What other partitions keep never comes.",
        60,
    ),
    # Senders
    _bug(
        "the tail is not repeated",
        "LaneDesk.expire",
        "self._repeat_tail(now_ns, lane, out)",
        "lane.tail_ns = NEVER",
        "Of a block that nobody has nobody knows.",
        60,
    ),
    _bug(
        "CLOSE is not said",
        "LaneDesk._close",
        "node.post.send(peer, Parcel(Kind.CLOSE, given.view, node.me.id, 0, body))",
        "",
        "An old view never drains.",
        60,
    ),
    _bug(
        "an epoch leaves lanes of before live",
        "LaneDesk.install",
        "lane.given.view in ended",
        "lane.given.view in ended and lane.is_stable",
        "A message goes into a view that new members are not in.",
        60,
    ),
    # First in, first out
    _bug(
        "OPEN waits for nothing",
        "FifoDelivery._may_open",
        ("return all(self._has_finished(each.view, record.sender, each.final) for each in record.opening.earlier)"),
        "return True",
        "Messages of the next view overtake those of the one before.",
        60,
    ),
    _bug(
        "OPEN names no earlier view",
        "LaneDesk._opening",
        "[EarlierView(each.given.region, view, each.count) for view, each in self._closing.items()]",
        "[EarlierView(each.given.region, view, each.count) for view, each in self._closing.items() if not view]",
        "A member that moved gets messages in the wrong order.",
        100,
    ),
    _bug(
        "lanes are done before everybody has everything",
        "RegionLane.is_done",
        "return self.is_drained or (self.is_settled and self.purge >= self.count)",
        "return self.is_settled",
        "The next OPEN does not name them.",
        60,
    ),
    _bug(
        "what was delivered on arrival is delivered again",
        "MemberDesk._take_whole",
        "record.early.add(number)",
        "record.waiting[number] = block",
        "RELIABLE messages come twice.",
        60,
    ),
    # Lost
    _bug(
        "Lost does not count as had",
        "SenderRecord.lose",
        "self._have(block)",
        "",
        "Nothing is purged any more.",
        60,
    ),
    _bug(
        "a verdict needs one round",
        "conclude_entry",
        "intersection(entry.candidates, entry.lack)",
        "entry.lack",
        "Blocks that members keep are lost.",
        60,
    ),
)

# Chance hardly ever needs these rules: each has a script in `tests/regions/scripts.py`.
REGIONS_SCRIPTED: Final[tuple[Bug, ...]] = (
    _bug(
        "blocks of a dead sender are taken from its hand",
        "MemberDesk.on_data",
        "sender in view.stopped",
        "False",
        "Its final count is wrong: members deliver different numbers of its blocks.",
        0,
    ),
    _bug(
        "OPEN does not raise the cutoff",
        "MemberDesk._take_whole",
        "found.raise_cutoff(each.final)",
        "",
        "Blocks that nobody in the old view has are not asked for.",
        0,
    ),
    _bug(
        "an OPEN that is lost waits for nothing",
        "FifoDelivery._may_open",
        "return self._has_finished_all(view, record.sender)",
        "return True",
        "Messages of the next view overtake those of the one before.",
        0,
    ),
    _bug(
        "candidates are not refused",
        "_judge",
        "verdicts.refused[visit.starter] = refused",
        "pass",
        "A late copy of a block comes after the verdict.",
        0,
    ),
    _bug(
        "refusals do not end",
        "_merge",
        (
            "still = intersection(before, entry.candidates)",
            "del verdicts.refused[starter]",
        ),
        (
            "still = before",
            "pass",
        ),
        "A block that was found after all is never taken.",
        0,
    ),
    _bug(
        "who has delivered a block counts as keeping it",
        "SenderRecord.keeping",
        "[block for block in self.kept if contains(numbers, block)]",
        "[block for block in range(self.top) if self.has(block) and contains(numbers, block)]",
        "A block that nobody can give is never found to be lost.",
        0,
    ),
    _bug(
        "the sender's GONE is not heard",
        "MemberDesk.on_gone",
        "record.verdicts.gone = at_least(union(record.verdicts.gone, blocks), record.purge)",
        "pass",
        "A block that nobody keeps and a living sender dropped is waited for without end.",
        0,
    ),
    _bug(
        "a block that comes in its turn does not wake views that wait for it",
        "MemberDesk._take_whole",
        "node.fifo.advance(view, record, has_passed=True)",
        "node.fifo.advance(view, record)",
        "A later view that is opened by its next block overtakes one that everybody has.",
        0,
    ),
    _bug(
        "a node that comes back opens its lane at once",
        "FifoDelivery._may_open",
        "not self._has_finished_former(view, record.sender)",
        "False",
        "What it had sent before it was excluded comes behind what it sends now.",
        0,
    ),
    _bug(
        "who asks for an acknowledgement by sending again is not heard",
        "MemberDesk.on_data",
        "record.has_news = True",
        "pass",
        "A sender whose ACK is lost for good waits for ever.",
        0,
    ),
    _bug(
        "a sender accuses nobody",
        "LaneDesk._repeat_tail",
        "lane.tails >= DOUBTED_TAILS",
        "False",
        "A region of which everybody is gone stays for half a minute.",
        0,
    ),
    _bug(
        "a snapshot puts out nodes with the last exclusion",
        "Exclusions.install",
        "since or [self.epoch] * len(nodes)",
        "[self.epoch] * len(nodes)",
        "A node that is back is out of the views that it came back to.",
        0,
    ),
    _bug(
        "who was out, and is out again, was out once",
        "Exclusions.install",
        "not known or known[-1] < at",
        "not known",
        "A member waits for it in views of between.",
        0,
    ),
    _bug(
        "epochs are confirmed while lanes are open",
        "LaneDesk.to_confirm",
        "not lane.is_settled",
        "False",
        "A view is forgotten while a sender sends into it, who takes DRAINED for an acknowledgement.",
        0,
    ),
    _bug(
        "a snapshot ends lanes with itself",
        "RegionsEngine._install",
        "node.epoch + 1 if epoch.is_whole else epoch.number",
        "epoch.number",
        "The sender confirms epochs of which it does not know that they have ended its lane.",
        0,
    ),
    _bug(
        "a token that went to who is out is waited for",
        "MemberView.on_exclusions",
        "before != self._partitions",
        "False",
        "What is left of a region stands still for as long as the service was away.",
        0,
    ),
    _bug(
        "an application that lags holds a token anew with all that it receives",
        "TokenDesk._arrive",
        "min(until_ns, now_ns + LEADER_PATIENCE * node.terms.token_ns // 2)",
        "now_ns + LEADER_PATIENCE * node.terms.token_ns // 2",
        "Its region stands still for as long as it lags.",
        0,
    ),
)

# What nothing objects to, with the reason.
REGIONS_UNSEEN: Final[tuple[Bug, ...]] = (
    _bug(
        "forgotten views are silent",
        "MemberDesk.answer_drained",
        "self._node.post.send(peer, Parcel(Kind.DRAINED, view, self._node.me.id, 0, body))",
        "",
        (
            "Who is left in a view waits for others for ever. Nothing shows it: tokens go through "
            "members that have forgotten a view, and ACKs come from a courier. A lane would wait where "
            "the starter dies with its last ACK."
        ),
        0,
    ),
    _bug(
        "blocks of a partition without members are nobody's",
        "answered_by",
        "index == partition or not each",
        "index == partition",
        ("They are acknowledged although members lack them. Nothing shows it: what is lost so, no cacher lives for."),
        0,
    ),
)
