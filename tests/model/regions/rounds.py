"""Rounds: a token around the members of a view, as docs/design/regions.md has it ("The token")."""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.regions.state import Entry, Node, Record, Stop, Token, ViewId
from tests.model.regions.world import World


def leads(world: World, node: int, view: ViewId) -> bool:
    """The first member of the first partition that has living ones, as this node sees it."""
    partitions = world.partitions(world.views[view], world.excluded[world.nodes[node].epoch])
    first = next((each for each in partitions if each), ())
    return bool(first) and first[0] == node


def start(world: World, view: ViewId, starter: int) -> Token:
    node = world.nodes[starter]
    excluded = world.excluded[node.epoch]
    partitions = world.partitions(world.views[view], excluded)
    skipped = excluded if world.rules.skip_excluded_only else excluded | world.suspects(starter)
    own = next((index for index, each in enumerate(partitions) if starter in each), 0)
    path: list[Stop] = []
    for step in range(len(partitions)):
        index = (own + step) % len(partitions)
        ring = [each for each in partitions[index] if each not in skipped]
        if starter in ring:
            at = ring.index(starter)
            ring = ring[at:] + ring[:at]
        path += [Stop(each, index, is_first=place == 0) for place, each in enumerate(ring)]
        path += [Stop(each, index, is_return=True) for each in ring[:1]]
    path.append(Stop(starter, own, is_end=True))
    clean, cleaner = node.clean.get(view, (0, 0))
    token = Token(view, starter, node.epoch, clean, cleaner, tuple(path), partitions)
    world.tokens.append(token)
    world.say("token", view, "by", starter)
    return token


def run(world: World, token: Token) -> None:
    """The rest of a round, without interruption."""
    while token in world.tokens:
        visit(world, token)


def visit(world: World, token: Token) -> None:
    stop = token.path[token.place]
    node = world.nodes[stop.node]
    is_start = not token.place
    token.place += 1
    is_void = world.rules.excluded_starter and token.starter in world.excluded[node.epoch]
    if not world.is_up(stop.node) or is_void:
        world.tokens.remove(token)
        return
    node.epoch = max(node.epoch, token.epoch)  # it keeps the token until it has that epoch
    if stop.is_end:
        world.tokens.remove(token)
        finish(world, token)
        return
    if token.view in node.forgotten:
        return  # it has had everything
    node.token_epoch[token.view] = max(node.token_epoch.get(token.view, 0), token.epoch)
    node.cleaner[token.view] = max(node.cleaner.get(token.view, 0), token.cleaner)
    for sender in range(len(world.senders)):
        record = node.records.get((token.view, sender))
        entry = token.entries.get(sender)
        if entry is None:
            if record is None or record.is_empty:
                continue
            entry = token.entries[sender] = _new_entry(world, token, sender, record, is_start)
        _visit_for(world, token, stop, node, sender, entry)
    world.deliver(node)


def _new_entry(world: World, token: Token, sender: int, record: Record, is_start: bool) -> Entry:
    entry = Entry(
        record.cutoff,
        record.ack,
        record.purge,
        record.lost | record.carried,
        set(record.gone),
        record.final,
        is_dead=sender in world.dead[token.epoch],
        is_seen=is_start,
        is_closed=is_start and record.final is not None,
        asked=set(record.asked) if is_start else set(),
        candidates=set(record.candidates) if is_start else set(),
    )
    if world.rules.seen_from_start and not is_start:
        entry.own = entry.full = 0  # those before have not answered for this sender
    return entry


def _visit_for(world: World, token: Token, stop: Stop, node: Node, sender: int, entry: Entry) -> None:
    record = node.record(token.view, sender)
    _merge(world, token, node, sender, entry, record)
    world.free(node, record, token.partitions)
    counted = world.rules.lost_counts_as_had
    cutoff = record.cutoff if world.rules.delayed_cutoff else max(record.known, entry.maximum)
    missing = [block for block in range(cutoff) if not record.has(block, counted)]
    mine = {block for block in missing if node.id in token.partitions[block % len(token.partitions)]}
    if entry.naks is not None and not stop.is_first:
        _compare(world, token, node, sender, entry, mine)
    if stop.is_return:
        if world.rules.naks:
            world.answer_nak(sender, node.id, token.view, sorted(entry.common or ()))
            entry.gone |= record.gone
        entry.naks = entry.common = None
        return
    entry.naks, entry.predecessor = mine, node.id
    entry.common = mine if stop.is_first or entry.common is None else entry.common & mine
    entry.maximum = max(entry.maximum, record.known)
    if world.rules.help_cachers:
        for block in sorted(each for each in record.kept if each < cutoff):
            if not world.answers_for(token.partitions, node.id, block):
                for leader in token.partitions[block % len(token.partitions)][:1]:
                    world.give(node.id, leader, token.view, sender, block)
    _count_prefixes(world, token, node, entry, record, cutoff)
    _ask_others(world, token, node, sender, entry, record, missing)
    _judge_missing(world, token, entry, record, cutoff)


def _merge(world: World, token: Token, node: Node, sender: int, entry: Entry, record: Record) -> None:
    for block in sorted(entry.lost):
        world.lose(node, token.view, sender, block)
    entry.lost |= record.lost | record.carried
    record.carried |= entry.lost
    entry.gone |= record.gone
    record.gone |= entry.gone
    record.cutoff = max(record.cutoff, entry.cutoff)
    record.ack = max(record.ack, entry.ack)
    record.purge = max(record.purge, entry.purge)
    if entry.final is None:
        entry.final = record.final
    elif record.final is None:
        record.final = entry.final
    if world.rules.refusals_end:
        for block, starters in list(record.refused.items()):
            if block not in entry.candidates:
                starters.discard(token.starter)
            starters -= world.excluded[token.clean]
            if not starters:
                del record.refused[block]


def _compare(world: World, token: Token, node: Node, sender: int, entry: Entry, mine: set[int]) -> None:
    """With the predecessor in the ring of the partition."""
    theirs, other = entry.naks or set(), entry.predecessor
    if world.rules.push:
        for block in sorted(theirs - mine):
            world.give(node.id, other, token.view, sender, block)
    if world.rules.pull:
        for block in sorted(mine - theirs):
            world.give(other, node.id, token.view, sender, block)


def _prefix(record: Record, counted: bool, passes: Sequence[bool]) -> int:
    """How many blocks from the first on it has, or need not have."""
    count = 0
    while record.has(count, counted) or (count < len(passes) and passes[count]):
        count += 1
    return count


def _count_prefixes(world: World, token: Token, node: Node, entry: Entry, record: Record, cutoff: int) -> None:
    counted = world.rules.lost_counts_as_had
    span = max(cutoff, entry.maximum)
    others = [not world.answers_for(token.partitions, node.id, block) for block in range(span)]
    own, full = _prefix(record, counted, others), _prefix(record, counted, ())
    entry.own = own if entry.own is None else min(entry.own, own)
    entry.full = full if entry.full is None else min(entry.full, full)


def _ask_others(
    world: World, token: Token, node: Node, sender: int, entry: Entry, record: Record, missing: Sequence[int]
) -> None:
    """Blocks of other partitions are pulled from their leaders; those of a partition that nobody is left of are asked
    of the sender and of everybody."""
    orphaned = []
    counted = world.rules.lost_counts_as_had
    for block in missing:
        cachers = token.partitions[block % len(token.partitions)]
        if not cachers:
            orphaned.append(block)
        elif node.id not in cachers and (block < record.ack or not world.rules.pull_after_ack):
            world.give(cachers[0], node.id, token.view, sender, block)
    if world.rules.orphans and orphaned:
        world.answer_nak(sender, node.id, token.view, orphaned)
        entry.gone |= record.gone
        for block in orphaned:
            for other in sorted(each for ring in token.partitions for each in ring):
                if not record.has(block, counted):
                    world.give(other, node.id, token.view, sender, block)


def _judge_missing(world: World, token: Token, entry: Entry, record: Record, cutoff: int) -> None:
    """The bounded way to a verdict: lack, then asked, then candidates, each through a round."""
    holds = record.kept if world.rules.kept_not_delivered else record.got
    entry.lack |= {
        block for block in range(cutoff) if not record.has(block, True) and (entry.is_dead or block in entry.gone)
    }
    entry.asked -= holds
    for block in sorted(entry.candidates):
        if block in holds:
            entry.candidates.discard(block)
        elif block not in record.got and world.rules.refuse:
            record.refused.setdefault(block, set()).add(token.starter)


def finish(world: World, token: Token) -> None:
    """The token is back at its starter: a complete round."""
    node = world.nodes[token.starter]
    if token.view in node.forgotten:
        return
    for sender, entry in token.entries.items():
        record = node.record(token.view, sender)
        record.cutoff = max(record.cutoff, entry.maximum)
        if world.rules.seen_from_start and not entry.is_seen:
            record.asked, record.candidates = set(), set()
            continue
        record.ack = max(record.ack, entry.own or 0)
        record.purge = max(record.purge, entry.full or 0)
        _acknowledge(world, token, sender, entry)
        if record.final is None and sender in world.dead[token.clean]:
            record.final = entry.maximum  # since that round nobody has taken anything from the sender itself
        _conclude(world, token, node, sender, entry, record)
    node.clean[token.view] = (token.epoch, token.clean)
    world.deliver(node)


def _acknowledge(world: World, token: Token, sender: int, entry: Entry) -> None:
    source = world.senders[sender]
    lane = source.lanes.get(token.view)
    if source.is_alive and lane is not None:
        lane.ack = max(lane.ack, entry.own or 0)
        lane.kept = {block for block in lane.kept if block >= lane.ack}
        lane.is_closed |= entry.is_closed


def _conclude(world: World, token: Token, node: Node, sender: int, entry: Entry, record: Record) -> None:
    if world.rules.refuse:
        verdict = entry.candidates & entry.lack
        record.candidates = (entry.asked & entry.lack) - verdict
    else:
        verdict = entry.asked & entry.lack
        record.candidates = set()
    record.asked = entry.lack - verdict - record.candidates
    record.carried |= verdict
    for block in sorted(verdict):
        world.lose(node, token.view, sender, block)
