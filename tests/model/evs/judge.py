"""Judges of a run: what extended virtual synchrony promises to programs, asked of the facts alone.

They import no rule, no horizon and no class: blocks, views and sessions are names to them. `judge` goes through the
facts once, and then over what was collected. `judge_rest` is for a run that has come to rest.

| judge | asks |
|---|---|
| names | the id of a view, or of a group view, names one list; counters rise; the list in use is the one shown |
| company | `came_with` is the same for all that it names, and they come from the same view |
| order | positions rise at every daemon, over views, too; two daemons deliver common blocks of a view in one order |
| once | a session gets a message once, of the view that it is in, after it was stamped |
| hole | before the signal a session gets everything that is meant for it, in the order of positions |
| fifo, causal | nothing is given to a session before what precedes it and is meant for it |
| same set | daemons that go together show and give the same before the signal, and the same after it |
| safe | a SAFE message is given before the signal when all members of the group hold it; those that live get it |
| self | a daemon comes to its own blocks before it leaves their view |
| groups | a group whose members did not come together gets a view of its own |
| bound | a cut has at most three windows of entries for each stream |
| rest | nothing waits, all have the same groups, every wish was granted |
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from tests.model.evs.blocks import DATA, FIFO, JOIN, SAFE, Block, BlockId, GroupViewId, Position, Session
from tests.model.evs.history import (
    Crashed,
    Fact,
    Given,
    Grouped,
    Installed,
    Noted,
    Processed,
    Received,
    Seeded,
    Signalled,
    Stamped,
    Started,
    Synced,
    Told,
)

from ordercast.wire.cuts import ViewId

REST: Final = "rest"


class Violation(Exception):
    """Something that must not happen. The first word is the judge."""


class Stay(NamedTuple):
    """What a daemon showed in one view, for those that left it together."""

    before: tuple[Given | Grouped, ...]
    after: tuple[Given | Grouped, ...]


class Witness:
    """What the judges remember of one daemon."""

    __slots__ = (
        "after",
        "before",
        "came_with",
        "groups",
        "has_signalled",
        "is_alive",
        "joined",
        "last",
        "members",
        "name",
        "own",
        "past",
        "processed",
        "shown",
        "since",
        "site",
        "view",
    )

    def __init__(self, name: int, site: int) -> None:
        self.name = name
        self.site = site
        self.is_alive = True
        self.view = ViewId(0, 0)
        self.members: tuple[int, ...] = ()
        self.came_with: tuple[int, ...] = ()
        self.has_signalled = False
        self.before: list[Given | Grouped] = []
        self.after: list[Given | Grouped] = []
        self.last: Position = (0, 0)
        self.past: set[BlockId] = set()  # what causally precedes the next block
        self.own: list[Block] = []  # stamped in this view
        self.processed: set[BlockId] = set()
        self.groups: dict[int, frozenset[Session]] = {}  # in use since it was in sync last
        self.shown: dict[int, GroupViewId] = {}
        self.joined: set[tuple[int, Session]] = set()  # own sessions, by the JOINs and LEAVEs that it came to
        self.since: dict[tuple[int, Session], tuple[ViewId, Position]] = {}  # own sessions: where they joined


class Court:
    def __init__(self) -> None:
        self.witnesses: dict[int, Witness] = {}
        self.stamped: dict[BlockId, Block] = {}
        self.causes: dict[BlockId, frozenset[BlockId]] = {}
        self.holders: dict[BlockId, set[int]] = defaultdict(set)
        self.given: dict[Session, set[BlockId]] = defaultdict(set)
        self.orders: dict[ViewId, dict[int, list[BlockId]]] = defaultdict(lambda: defaultdict(list))
        self.views: dict[ViewId, tuple[int, ...]] = {}
        self.companies: dict[ViewId, dict[int, tuple[ViewId, tuple[int, ...]]]] = defaultdict(dict)
        self.stays: dict[tuple[ViewId, object], dict[int, Stay]] = defaultdict(dict)
        self.group_views: dict[tuple[int, GroupViewId], frozenset[Session]] = {}
        self.safe: list[tuple[Given, tuple[int, ...]]] = []  # given before the signal, or after it; who must get it

    # ---- facts

    def hear(self, fact: Fact) -> None:
        match fact:
            case Started(daemon, site):
                self.witnesses[daemon] = Witness(daemon, site)
            case Seeded(daemon, group, session):
                self.witnesses[daemon].joined.add((group, session))
            case Crashed(daemon):
                self.witnesses[daemon].is_alive = False
            case Stamped(daemon, block):
                self._stamped(self.witnesses[daemon], block)
            case Received(daemon, block):
                self.holders[block.id].add(daemon)
            case Processed(daemon, block):
                self._processed(self.witnesses[daemon], block)
            case Given():
                self._given(self.witnesses[fact.daemon], fact)
            case Signalled(daemon):
                self.witnesses[daemon].has_signalled = True
            case Told(daemon, entries, window):
                if entries > 3 * window:
                    raise Violation(
                        f"bound: {daemon} tells {entries} entries of one stream, and the window is {window}"
                    )
            case Installed():
                self._installed(self.witnesses[fact.daemon], fact)
            case Grouped():
                self._grouped(self.witnesses[fact.daemon], fact)
            case Synced():
                self._synced(self.witnesses[fact.daemon], fact)
            case Noted():
                pass

    def _stamped(self, who: Witness, block: Block) -> None:
        if block.id in self.stamped:
            raise Violation(f"once: two blocks are called {block}")
        self.stamped[block.id] = block
        who.own.append(block)
        self.causes[block.id] = frozenset(who.past)
        if block.kind == DATA and block.rank > FIFO:
            who.past.add(block.id)

    def _processed(self, who: Witness, block: Block) -> None:
        if block.id in who.processed:
            raise Violation(f"once: {who.name} comes to {block} twice")
        if block.view != who.view:
            raise Violation(f"once: {who.name} is in {who.view} and delivers {block}")
        who.processed.add(block.id)
        if block.session is not None and block.session[0] == who.name:
            key = (block.groups[0], block.session)
            if block.kind == JOIN:
                who.joined.add(key)
            else:
                who.joined.discard(key)
        if block.rank > FIFO:
            if block.position <= who.last:
                raise Violation(f"order: the position of {block} is not above {who.last} at {who.name}")
            who.last = block.position
            self.orders[block.view][who.name].append(block.id)

    def _given(self, who: Witness, fact: Given) -> None:
        block = fact.block
        for session in fact.sessions:
            if block.id in self.given[session]:
                raise Violation(f"once: session {session} gets {block} twice")
            self._ask_before(who, session, block)
        for session in fact.sessions:
            self.given[session].add(block.id)
        if block.rank <= FIFO:
            return
        who.past |= {block.id, *self.causes[block.id]}
        (who.after if who.has_signalled else who.before).append(fact)
        if not who.has_signalled:
            for earlier in self.stamped.values():
                if earlier.view == block.view and earlier.position < block.position and earlier.rank > FIFO:
                    self._ask_hole(who, earlier, f"gets {block}")
        if block.rank == SAFE:
            self._ask_safe(who, fact)

    def _ask_hole(self, who: Witness, block: Block, when: str) -> None:
        """Whether all sessions here that the block is meant for have got it."""
        for _, session in who.since:
            if block.kind == DATA and block.id not in self.given[session] and self._is_for(who, session, block):
                raise Violation(f"hole: session {session} {when} without {block}")

    def _ask_before(self, who: Witness, session: Session, block: Block) -> None:
        """Whether the session has got everything that precedes the block and is meant for it."""
        got = self.given[session]
        for name in self.causes[block.id]:
            cause = self.stamped[name]
            if block.rank <= FIFO and cause.origin != block.origin:
                continue
            if name not in got and cause.view == block.view and self._is_for(who, session, cause):
                raise Violation(f"causal: session {session} gets {block} without {cause}")
        for name in got:
            if self.stamped[name].rank > FIFO and block.rank > FIFO and block.id in self.causes[name]:
                raise Violation(f"causal: session {session} gets {block} after {self.stamped[name]}")
        for seq in range(1, block.seq):
            earlier = self.stamped.get((block.view, block.site, seq))
            if earlier is None or earlier.origin != block.origin or earlier.kind != DATA or earlier.id in got:
                continue
            if self._is_for(who, session, earlier):
                raise Violation(f"fifo: session {session} gets {block} without {earlier}")

    def _is_for(self, who: Witness, session: Session, block: Block) -> bool:
        """Whether the session has been in a group of the block since before it."""
        for group in block.groups:
            since = who.since.get((group, session))
            if since is not None and (since[0] != block.view or since[1] < block.position):
                return True
        return False

    def _ask_safe(self, who: Witness, fact: Given) -> None:
        daemons = {daemon for daemon, _ in fact.among}
        if who.has_signalled:
            self.safe.append((fact, ()))  # for those that came with it; known with the next view
            return
        meant = tuple(sorted(daemons & set(who.members)))
        for daemon in meant:
            if daemon not in self.holders[fact.block.id]:
                raise Violation(f"safe: {who.name} gives {fact.block}, which {daemon} does not hold")
        self.safe.append((fact, meant))

    def _installed(self, who: Witness, fact: Installed) -> None:
        if who.name not in fact.members or self.views.setdefault(fact.view, fact.members) != fact.members:
            raise Violation(f"names: {who.name} shows {fact.view} of {fact.members}, others {self.views[fact.view]}")
        if fact.view.counter <= who.view.counter:
            raise Violation(f"names: {who.name} goes from {who.view} to {fact.view}")
        if who.view.counter > 0:
            self._left(who, fact)
        who.view, who.members, who.came_with = fact.view, fact.members, fact.came_with
        who.has_signalled, who.before, who.after, who.own = False, [], [], []
        for key in [key for key in who.since if key not in who.joined]:
            del who.since[key]  # it left after the signal, and its group may be gone

    def _left(self, who: Witness, fact: Installed) -> None:
        if who.name not in fact.came_with or not set(fact.came_with) <= set(fact.members):
            raise Violation(f"company: {who.name} comes to {fact.view} of {fact.members} with {fact.came_with}")
        company = self.companies[fact.view]
        company[who.name] = (who.view, fact.came_with)
        for name in fact.came_with:
            if company.get(name, company[who.name]) != company[who.name]:
                raise Violation(f"company: {who.name} comes as {company[who.name]}, {name} as {company[name]}")
        for block in who.own:
            if block.id not in who.processed:
                raise Violation(f"self: {who.name} leaves {who.view} without its {block}")
        for index, (given, meant) in enumerate(self.safe):
            if given.daemon == who.name and not meant and given.block.view == who.view:
                daemons = {daemon for daemon, _ in given.among}
                self.safe[index] = (given, tuple(sorted(daemons & set(fact.came_with))))
        self._compare(who, (who.view, fact.view), fact.came_with)

    def _compare(self, who: Witness, way: tuple[ViewId, object], others: tuple[int, ...]) -> None:
        stays = self.stays[way]
        mine = stays[who.name] = Stay(tuple(who.before), tuple(who.after))
        for name, theirs in stays.items():
            if name == who.name or name not in others:
                continue
            for side in ("before", "after"):
                a, b = _seen(getattr(mine, side), name), _seen(getattr(theirs, side), who.name)
                if a != b:
                    raise Violation(f"same set: {who.name} and {name} leave {way[0]}, {side} the signal: {a} and {b}")

    def _grouped(self, who: Witness, fact: Grouped) -> None:
        if self.group_views.setdefault((fact.group, fact.name), fact.members) != fact.members:
            raise Violation(f"names: view {fact.name} of group {fact.group} has two lists")
        if any(daemon not in who.members for daemon, _ in fact.members):
            raise Violation(f"groups: a view of {fact.group} at {who.name} names a daemon outside of {who.members}")
        who.groups[fact.group] = fact.members
        who.shown[fact.group] = fact.name
        (who.after if who.has_signalled else who.before).append(fact)
        for session in fact.members:
            if session[0] == who.name:
                who.since.setdefault((fact.group, session), (who.view, fact.name.position))
        for group, session in list(who.since):
            if group == fact.group and session not in fact.members:
                del who.since[group, session]

    def _synced(self, who: Witness, fact: Synced) -> None:
        who.groups = {group: members for group, _, members in fact.groups}
        own = {(group, session) for group, _, all_ in fact.groups for session in all_ if session[0] == who.name}
        if own != who.joined or own != set(who.since):
            raise Violation(
                f"groups: {who.name} goes on with {sorted(own)}; joined {sorted(who.joined)}, shown {who.since}"
            )
        for group, name, members in fact.groups:
            daemons = {daemon for daemon, _ in members}
            if self.group_views.get((group, name)) != members or not daemons <= set(who.members):
                raise Violation(f"names: {who.name} goes on in view {name} of {group} with {sorted(members)}")
            if who.name in daemons and who.shown.get(group) != name:
                raise Violation(f"groups: {who.name} goes on in view {name} of {group}, which it has not shown")
            is_new = name.view == tuple(who.view)[-len(name.view) :]
            if not is_new and daemons & set(who.came_with) and not daemons <= set(who.came_with):
                raise Violation(f"groups: {group} goes on at {who.name}, and its members did not come together")

    # ---- the end

    def close(self) -> None:
        for view, orders in self.orders.items():
            names = sorted(orders)
            for a in names:
                for b in names:
                    common = set(orders[a]) & set(orders[b])
                    if [x for x in orders[a] if x in common] != [x for x in orders[b] if x in common]:
                        raise Violation(f"order: {a} and {b} deliver in two orders in {view}")

    def rest(self) -> None:
        """The run has come to rest: everybody that lives has got what it was promised."""
        alive = [each for each in self.witnesses.values() if each.is_alive]
        for given, meant in self.safe:
            for name in meant:
                if self.witnesses[name].is_alive and not any(
                    given.block.id in self.given[session] for session in given.among if session[0] == name
                ):
                    raise Violation(f"safe: {given.daemon} has given {given.block}, and {name} never did")
        for who in alive:
            self._compare(who, (who.view, REST), who.members)
            for block in who.own:
                if block.id not in who.processed:
                    raise Violation(f"rest: {who.name} never comes to its own {block}")
            for block in self.stamped.values():
                if block.view == who.view:
                    self._ask_hole(who, block, "is at rest")
                if block.view == who.view and block.mask >> who.site & 1 and block.id not in who.processed:
                    raise Violation(f"rest: {who.name} never comes to {block}")
            for other in alive:
                if other.view == who.view and _in_use(who) != _in_use(other):
                    raise Violation(f"rest: groups of {who.name}: {_in_use(who)}, of {other.name}: {_in_use(other)}")


def _seen(events: tuple[Given | Grouped, ...], by: int) -> list[object]:
    """What both of two daemons must have shown: all group views, and messages to sessions of the other."""
    return [
        (event.group, event.name, event.members) if isinstance(event, Grouped) else event.block.id
        for event in events
        if isinstance(event, Grouped) or any(daemon == by for daemon, _ in event.among)
    ]


def _in_use(who: Witness) -> dict[int, frozenset[Session]]:
    return {group: members for group, members in sorted(who.groups.items()) if members}


def judge(facts: list[Fact], *, is_at_rest: bool) -> None:
    """Raise `Violation` if something happened that must not."""
    court = Court()
    for fact in facts:
        court.hear(fact)
    court.close()
    if is_at_rest:
        court.rest()
