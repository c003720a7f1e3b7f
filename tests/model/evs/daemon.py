"""One daemon of the model, in one life: what it knows, its clients, what it stamps and delivers."""

from __future__ import annotations

from typing import Final

from tests.model.evs.blocks import (
    AGREED,
    DATA,
    FIFO,
    INTEREST,
    JOIN,
    LEAVE,
    ROSTER,
    Block,
    Join,
    Leave,
    Roster,
    Send,
    Session,
    View,
    Wish,
    mask_of,
)
from tests.model.evs.history import (
    Fact,
    Given,
    Grouped,
    Installed,
    Processed,
    Received,
    Signalled,
    Stamped,
    Synced,
    Told,
)
from tests.model.evs.knowledge import Knowledge
from tests.model.evs.roster import GroupView, Interests, Rosters
from tests.model.evs.rules import Rules

from ordercast.membership.components.classes import lineage_after
from ordercast.wire.cuts import Ballot, Cut, Lineage, Result, ViewId

WORKING: Final = "working"
GATHERING: Final = "gathering"  # has promised a ballot and told its cut
ACCEPTING: Final = "accepting"  # fetches what it lacks of its remainder
ACCEPTED: Final = "accepted"

EVERYTHING: Final = 1 << 20


class Token:
    """The token of one site in one view. It is never made anew."""

    __slots__ = ("clock", "holder", "reports", "seq")

    def __init__(self, holder: int, clock: int) -> None:
        self.holder = holder
        self.seq = 0
        self.clock = clock
        self.reports: dict[int, int] = {}  # by daemon

    def clone(self) -> Token:
        other = Token(self.holder, self.clock)
        other.seq = self.seq
        other.reports = dict(self.reports)
        return other

    def key(self) -> tuple[object, ...]:
        return (self.holder, self.seq, self.clock, tuple(sorted(self.reports.items())))


class Daemon:
    __slots__ = (
        "_facts",
        "_rules",
        "_site_of",
        "bound",
        "cut",
        "has_signalled",
        "has_told",
        "host",
        "id",
        "interests",
        "is_alive",
        "is_synced",
        "kept",
        "known",
        "later",
        "leaving",
        "lineage",
        "pending",
        "promised",
        "rosters",
        "round",
        "site",
        "state",
        "view",
        "wishes",
    )

    def __init__(self, rules: Rules, site_of: dict[int, int], facts: list[Fact], name: int, host: int) -> None:
        self._rules = rules
        self._site_of = site_of
        self._facts = facts
        self.id = name
        self.host = host
        self.site = site_of[name]
        self.is_alive = True
        # Recovery
        self.state = WORKING
        self.promised = Ballot(0, 0)
        self.round = -1
        self.cut: Cut | None = None
        self.bound: Result | None = None
        # The view
        self.view: View
        self.known: Knowledge
        self.has_signalled = False
        self.later: tuple[Block, ...] = ()  # changes after the signal
        # Groups
        self.rosters = Rosters(rules)
        self.interests = Interests(rules, site_of)
        self.is_synced = True
        self.has_told = False  # its roster, if it speaks for its group
        self.lineage = Lineage(ViewId(0, name), None)
        # Clients
        self.wishes: tuple[Wish, ...] = ()
        self.pending: dict[
            int, tuple[Session, int | None]
        ] = {}  # joins: the LTS of the INTEREST; None: JOIN is stamped
        self.leaving: frozenset[tuple[int, Session]] = frozenset()
        self.kept: dict[Block, frozenset[Session]] = {}  # weak messages that a pending join may make ours; who had them

    def clone(self, facts: list[Fact], site_of: dict[int, int]) -> Daemon:
        other = Daemon(self._rules, site_of, facts, self.id, self.host)
        for name in self.__slots__:
            if name not in ("_facts", "_site_of", "known", "rosters", "interests", "pending", "kept"):
                setattr(other, name, getattr(self, name))
        other.known = self.known.clone()
        other.rosters = self.rosters.clone()
        other.interests = self.interests.clone(site_of)
        other.pending = dict(self.pending)
        other.kept = dict(self.kept)
        return other

    def key(self) -> tuple[object, ...]:
        return (
            self.is_alive,
            self.state,
            self.promised,
            self.round,
            None if self.bound is None else self.bound.id,
            self.view.id,
            self.known.key() if self.is_alive else None,
            self.rosters.key(),
            self.interests.key(),
            (self.is_synced, self.has_told, self.lineage, len(self.kept), len(self.later)),
            (self.wishes, tuple(sorted(self.pending.items())), tuple(sorted(self.leaving))),
        )

    # ---- views

    def enter(self, view: View, window: int) -> None:
        self.view = view
        self.known = Knowledge(self._rules, self.site, view.sites, view.first_lts, window)
        self.has_signalled = False
        self.has_told = False
        self.later = ()
        self.kept = {}
        self.leaving = frozenset()
        self.rosters.received = ()
        self.interests = Interests(self._rules, self._site_of)

    def tell_cut(self) -> Cut:
        self.cut = Cut(
            self.id,
            self.site,
            self.view.id,
            self.view.sites,
            self.known.cuts(),
            self.known.arus(),
            self.known.delivered,
            self.known.clock,
            self.is_synced,
            self.lineage,
            self.bound,
        )
        self._facts.append(Told(self.id, self.known.entries(), self.known.window))
        return self.cut

    def install(self, view: View, result: Result, came_with: tuple[int, ...], window: int) -> None:
        """Deliver the remainder of the old view with the signal, and go on in the new one."""
        for block in self.known.settle(result.remainder.before):
            self._deliver(block)
        self.has_signalled = True
        self._facts.append(Signalled(self.id))
        for block in self.known.settle(result.remainder.after):
            self._deliver(block)
        touched = self._change_late()
        if self.is_synced:
            self.rosters.touched = touched
        else:
            self.rosters.touched |= touched
        cut = self.tell_cut()
        self.lineage = lineage_after(cut, result)
        clock, pending = self.known.clock, self.pending
        self.bound, self.state, self.round, self.pending = None, WORKING, -1, {}
        self.enter(view, window)
        self.known.raise_clock(clock)
        self._facts.append(Installed(self.id, view.id, view.members, came_with))
        for group, (session, lts) in sorted(pending.items(), reverse=True):
            if session not in self.rosters.members(group):
                if self._rules.begin_again or lts is None:
                    self.wishes = (Join(group, session), *self.wishes)
                else:
                    self.pending[group] = (session, lts)
        self.is_synced = len(view.roster_groups) == 1
        if self.is_synced:
            self._show(self.rosters.on_view(view))
            self.interests.begin(self.rosters, clear=True)
            self._tell_synced()

    # ---- the token

    def visit(self, token: Token, most: int) -> None:
        """Stamp what may be stamped, at most so many wishes of clients; then report, and tell the site's UPDATE."""
        self.known.raise_clock(token.clock)
        if not self.is_synced and not self.has_told:
            for group in self.view.roster_groups:
                if group[0] == self.id and self._room(token):
                    self._stamp(token, ROSTER, roster=self.rosters.told(self.view, group))
                    self.has_told = True
        if self.is_synced:
            self._join_interested(token)
            for _ in range(min(most, len(self.wishes))):
                if not self._room(token):
                    break
                wish, self.wishes = self.wishes[0], self.wishes[1:]
                self._grant(token, wish)
        token.clock = self.known.clock
        token.reports[self.id] = self.known.report
        peers = self.peers()
        aru = self.known.aru(self.site)
        if all(peer in token.reports for peer in peers):
            aru = max(aru, min(token.reports[peer] for peer in peers))
        self.known.receive_update(self.site, (token.seq, token.clock, aru))

    def peers(self) -> list[int]:
        """The daemons of this site in the view, in the order of the ring."""
        return [member for member in self.view.members if self._site_of[member] == self.site]

    def _room(self, token: Token) -> bool:
        return self.known.room(token.seq) > 0

    def _stamp(self, token: Token, kind: str, rank: int = AGREED, groups: tuple[int, ...] = (), mask: int = -1,
               session: Session | None = None, roster: Roster | None = None) -> Block:  # fmt: skip
        """One block; by default it goes to all sites."""
        token.seq += 1
        lts = self.known.clock + 1
        self.known.raise_clock(lts)
        everywhere = mask_of(self.view.sites)
        mask = everywhere if mask < 0 else mask | 1 << self.site
        block = Block(self.view.id, self.site, token.seq, lts, self.id, kind, rank, groups, mask, session, roster)
        self._facts.append(Stamped(self.id, block))
        self.receive(block)
        return block

    def _join_interested(self, token: Token) -> None:
        for group, (session, lts) in sorted(self.pending.items()):
            is_stable = lts is not None and (self.known.stable >= lts or not self._rules.stable_interest)
            if is_stable and self._room(token):
                self._stamp(token, JOIN, groups=(group,), session=session)
                self.pending[group] = (session, None)

    def _grant(self, token: Token, wish: Wish) -> None:
        match wish:
            case Send(rank, groups):
                self._stamp(token, DATA, rank, groups, self.interests.sites(self.view, groups))
            case Join(group, session):
                if session in self.rosters.members(group):
                    return
                if group in self.pending:  # of another session of ours
                    self.wishes = (*self.wishes, wish)
                elif self._is_interested(group):
                    self._stamp(token, JOIN, groups=(group,), session=session)
                    self.pending[group] = (session, None)
                else:
                    block = self._stamp(token, INTEREST, groups=(group,))
                    self.pending[group] = (session, block.lts)
            case Leave(group, session):
                if session in self.rosters.members(group) and (group, session) not in self.leaving:
                    self._stamp(token, LEAVE, groups=(group,), session=session)
                    self.leaving |= {(group, session)}

    def _is_interested(self, group: int) -> bool:
        """Whether every daemon is sure to send us the messages of the group already."""
        if not self._rules.interest_of_daemon:
            return self.interests.of_site(self.site, group)
        own = [each for each in self.rosters.members(group) if each[0] == self.id]
        if self._rules.leaving_is_gone:
            own = [each for each in own if (group, each) not in self.leaving]
        return bool(own)

    # ---- what comes

    def receive(self, block: Block) -> None:
        if self.known.receive(block):
            self._facts.append(Received(self.id, block))
            if block.kind == INTEREST:
                self.interests.add(block.origin, block.groups[0], block.lts)

    def pump(self, limit: int = EVERYTHING) -> bool:
        """Deliver what may be delivered."""
        taken = self.known.take(limit)
        for block in taken:
            self._deliver(block)
        return bool(taken)

    def _deliver(self, block: Block) -> None:
        self._facts.append(Processed(self.id, block))
        match block.kind:
            case "join" | "leave" if self.has_signalled and self._rules.late_changes:
                self.later += (block,)
            case "join" | "leave":
                self._change(block)
                group = block.groups[0]
                self._show([self.rosters.announce(self.view, group, block.position)])
                self._give_kept(block)
            case "roster":
                assert block.roster is not None
                made = self.rosters.on_roster(self.view, block.roster, block.position)
                if made is not None:
                    self.is_synced = True
                    self._show(made)
                    self.interests.begin(self.rosters, clear=False)
                    self._tell_synced()
            case "data":
                self._give(block)

    def _change(self, block: Block) -> None:
        group, session = block.groups[0], block.session
        assert session is not None
        if block.kind == JOIN:
            self.rosters.add(group, session)
            self.interests.add(block.origin, group, 0)
            if session[0] == self.id:
                self.pending.pop(group, None)
        else:
            self.rosters.remove(group, session)
            self.leaving -= {(group, session)}
            rest = [daemon for daemon, _ in self.rosters.members(group)]
            self.interests.left(block.origin, group, block.lts, rest)

    def _change_late(self) -> frozenset[int]:
        """Changes after the signal take effect now; the groups that they touch."""
        for block in self.later:
            self._change(block)
        return frozenset(block.groups[0] for block in self.later)

    def _give(self, block: Block) -> None:
        among = frozenset(each for group in block.groups for each in self.rosters.members(group))
        sessions = frozenset(each for each in among if each[0] == self.id)
        if sessions:
            self._facts.append(Given(self.id, block, sessions, among))
        if block.rank <= FIFO and self._rules.keep_weak and any(group in self.pending for group in block.groups):
            self.kept[block] = sessions

    def _give_kept(self, join: Block) -> None:
        """A session of ours has joined: weak messages that came before its JOIN was delivered, and stand behind it."""
        group, session = join.groups[0], join.session
        if session is None or session[0] != self.id or join.kind != JOIN:
            return
        for block, had in self.kept.items():
            if group in block.groups and block.position > join.position and session not in had:
                self._facts.append(Given(self.id, block, frozenset([session]), self.rosters.members(group)))
                self.kept[block] = had | {session}
        for block in [block for block in self.kept if not any(each in self.pending for each in block.groups)]:
            del self.kept[block]

    def _show(self, made: list[GroupView]) -> None:
        for group, name, members in made:
            self._facts.append(Grouped(self.id, group, name, members))

    def _tell_synced(self) -> None:
        lists = [(g, self.rosters.ids[g], members) for g, members in sorted(self.rosters.lists.items()) if members]
        self._facts.append(Synced(self.id, tuple(lists)))
