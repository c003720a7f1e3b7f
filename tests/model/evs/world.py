"""The world of the model: daemons on hosts, links with one-way cuts, routes over several hops, tokens and rounds.

Every step is a method that returns whether it did anything. Nothing here is random: chance and explorers choose the
steps. What a daemon has sent may still arrive after its crash.

Blocks of a source travel along a tree of sites, from representative to representative, each alone and past gaps. A
forwarder passes on what a site behind the link is meant to have, and SKIPs in the place of the rest, coalesced. Inside
a site everybody hands on to everybody.
"""

from __future__ import annotations

from typing import Final

from tests.model.evs.blocks import Block, GroupViewId, Join, Leave, Send, Session, View, mask_of
from tests.model.evs.daemon import ACCEPTED, ACCEPTING, GATHERING, WORKING, Daemon, Token
from tests.model.evs.ending import outcome_of
from tests.model.evs.history import Crashed, Fact, Grouped, Installed, Noted, Seeded, Started, Synced
from tests.model.evs.rules import Rules

from ordercast.wire.cuts import Ballot, Cut, Lineage, Outcome, Result, Skip, ViewId, joined

Weights = dict[tuple[int, int], int]
Item = Block | Skip

DEFAULT_WINDOW: Final = 64


class Round:
    """What one coordinator has under way, and what it knows of it."""

    __slots__ = ("accepted", "ballot", "cuts", "installed", "is_committed", "outcome", "view")

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self.cuts: dict[int, Cut] = {}  # that have arrived
        self.outcome: Outcome | None = None
        self.view: View | None = None
        self.accepted: frozenset[int] = frozenset()  # of which it has heard
        self.is_committed = False
        self.installed: frozenset[int] = frozenset()

    def clone(self) -> Round:
        other = Round(self.ballot)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.cuts = dict(self.cuts)
        return other

    def key(self) -> tuple[object, ...]:
        result = None if self.outcome is None else self.outcome
        return (self.ballot, tuple(sorted(self.cuts)), result, self.accepted, self.is_committed, self.installed)

    def result_of(self, daemon: int) -> Result:
        return self._class_of(daemon)[1]

    def came_with(self, daemon: int) -> tuple[int, ...]:
        return self._class_of(daemon)[0]

    def _class_of(self, daemon: int) -> tuple[tuple[int, ...], Result]:
        assert self.outcome is not None
        return next((members, result) for members, result in self.outcome.classes if daemon in members)


class World:
    __slots__ = (
        "_routes",
        "components",
        "cut_ways",
        "daemons",
        "facts",
        "hosts",
        "rounds",
        "rules",
        "site_of",
        "tokens",
        "weights",
        "window",
    )

    def __init__(self, rules: Rules, sites: tuple[int, ...], weights: Weights, window: int = DEFAULT_WINDOW) -> None:
        """`sites`: of each host. Each begins with a daemon that is alone in its view."""
        self.rules = rules
        self.window = window
        self.weights = weights  # of links between sites; 1 where none is given
        self.hosts = sites
        self.components = [0] * len(sites)  # of each host: which part of the network it is in
        self.cut_ways: frozenset[tuple[int, int]] = frozenset()  # (from, to): nothing gets through
        self.site_of: dict[int, int] = {}  # by daemon
        self.facts: list[Fact] = []
        self.daemons: dict[int, Daemon] = {}
        self.tokens: dict[tuple[ViewId, int], Token] = {}
        self.rounds: list[Round] = []
        self._routes: dict[tuple[int, ...], dict[int, dict[int, int]]] = {}
        for host in range(len(sites)):
            self._start(host)

    def clone(self) -> World:
        other = World.__new__(World)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.components = list(self.components)
        other.site_of = dict(self.site_of)
        other.facts = list(self.facts)
        other.daemons = {name: daemon.clone(other.facts, other.site_of) for name, daemon in self.daemons.items()}
        other.tokens = {key: token.clone() for key, token in self.tokens.items()}
        other.rounds = [each.clone() for each in self.rounds]
        return other

    def key(self) -> int:
        return hash(
            (
                tuple(daemon.key() for daemon in self.daemons.values()),
                tuple((key, token.key()) for key, token in sorted(self.tokens.items())),
                tuple(each.key() for each in self.rounds),
                tuple(self.components),
                self.cut_ways,
            )
        )

    # ---- the network

    @property
    def alive(self) -> list[Daemon]:
        return [daemon for daemon in self.daemons.values() if daemon.is_alive]

    def reaches(self, sender: int, receiver: int, *, in_flight: bool = False) -> bool:
        """Whether something gets from one daemon to another. In flight: the sender may have crashed since."""
        a, b = self.daemons[sender], self.daemons[receiver]
        return (
            (a.is_alive or in_flight)
            and b.is_alive
            and self.components[a.host] == self.components[b.host]
            and (a.host, b.host) not in self.cut_ways
        )

    def talk(self, a: int, b: int) -> bool:
        return self.reaches(a, b) and self.reaches(b, a)

    def neighbours(self, daemon: int) -> tuple[int, ...]:
        """Whom it can talk with, itself included."""
        return tuple(sorted(each.id for each in self.alive if self.talk(daemon, each.id)))

    def crash(self, name: int) -> None:
        self.daemons[name].is_alive = False
        self.facts.append(Crashed(name))

    def restart(self, host: int) -> bool:
        """A crashed daemon comes back, with a new life and without memory."""
        if any(daemon.is_alive and daemon.host == host for daemon in self.daemons.values()):
            return False
        self._start(host)
        return True

    def _start(self, host: int) -> None:
        name = len(self.daemons)
        self.site_of[name] = site = self.hosts[host]
        daemon = self.daemons[name] = Daemon(self.rules, self.site_of, self.facts, name, host)
        view = View(ViewId(1, name), (name,), (site,), 1, ((name,),))
        daemon.enter(view, self.window)
        daemon.lineage = Lineage(view.id, None)
        self.tokens[view.id, site] = Token(name, view.first_lts)
        self.facts += (Started(name, site), Installed(name, view.id, view.members, (name,)), Synced(name, ()))

    def form(self, lists: dict[int, frozenset[Session]]) -> None:
        """Begin with everybody in one view, and with these groups. Only for a world in which nothing has happened."""
        members = tuple(sorted(self.daemons))
        view = View(ViewId(2, members[0]), members, tuple(sorted(set(self.hosts))), 2, (members,))
        for daemon in self.daemons.values():
            daemon.enter(view, self.window)
            daemon.lineage = Lineage(view.id, None)
            self.facts.append(Installed(daemon.id, view.id, members, (daemon.id,)))
            daemon.rosters.lists = dict(lists)
            for group, sessions in sorted(lists.items()):
                name = GroupViewId((view.first_lts, 0), view.id if self.rules.group_view_id else view.id[1:])
                daemon.rosters.ids[group] = name
                self.facts += [Seeded(daemon.id, group, each) for each in sorted(sessions) if each[0] == daemon.id]
                self.facts.append(Grouped(daemon.id, group, name, sessions))
            daemon.interests.begin(daemon.rosters, clear=True)
            daemon._tell_synced()
        self._make_tokens(view)

    def _make_tokens(self, view: View) -> None:
        for site in view.sites:
            if (view.id, site) not in self.tokens:
                self.tokens[view.id, site] = Token(self.representative(view, site), view.first_lts)

    # ---- clients

    def wish(self, daemon: int, wish: Send | Join | Leave) -> None:
        self.daemons[daemon].wishes += (wish,)

    # ---- order

    def visit(self, name: int, most: int) -> bool:
        """The daemon has the token, and passes it on if its successor can take it."""
        daemon = self.daemons[name]
        token = self.tokens[daemon.view.id, daemon.site]
        if token.holder != name or daemon.state != WORKING or not daemon.is_alive:
            return False
        daemon.visit(token, most)
        ring = daemon.peers()
        after = ring[(ring.index(name) + 1) % len(ring)]
        heir = self.daemons[after]
        if self.reaches(name, after) and heir.view.id == daemon.view.id and heir.state == WORKING:
            token.holder = after
        return True

    def pump(self, name: int, limit: int) -> bool:
        daemon = self.daemons[name]
        return daemon.is_alive and daemon.state == WORKING and daemon.pump(limit)

    def release(self, name: int) -> bool:
        daemon = self.daemons[name]
        return daemon.is_alive and daemon.state == WORKING and daemon.known.release() > 0

    # ---- links

    def representative(self, view: View, site: int) -> int:
        return min(member for member in view.members if self.site_of[member] == site)

    def routes(self, sites: tuple[int, ...]) -> dict[int, dict[int, int]]:
        """For each source the tree of shortest paths: the parent of each other site."""
        found = self._routes.get(sites)
        if found is None:
            found = self._routes[sites] = {source: self._tree(source, sites) for source in sites}
        return found

    def _tree(self, source: int, sites: tuple[int, ...]) -> dict[int, int]:
        parents: dict[int, int] = {}
        far = {source: 0}
        while len(far) < len(sites):
            options = [
                (far[a] + self.weights.get((min(a, b), max(a, b)), 1), b, a) for a in far for b in sites if b not in far
            ]
            distance, site, parent = min(options)
            far[site] = distance
            parents[site] = parent
        return parents

    def subtree(self, sites: tuple[int, ...], source: int, site: int) -> int:
        """The mask of a site and of those behind it."""
        parents = self.routes(sites)[source]
        mask = 1 << site
        for _ in sites:
            for child, parent in parents.items():
                if mask >> parent & 1:
                    mask |= 1 << child
        return mask

    def suppliers(self, receiver: int, source: int) -> list[int]:
        """Who may hand a daemon something of a source: the others of its site, and for its representative the one of
        the site before it on the route."""
        daemon = self.daemons[receiver]
        view, site = daemon.view, daemon.site
        found = [peer for peer in daemon.peers() if peer != receiver]
        if site != source and self.representative(view, site) == receiver:
            found.append(self.representative(view, self.routes(view.sites)[source][site]))
        return found

    def items(self, sender: int, receiver: int, source: int) -> list[Item]:
        """What the sender can pass on of a source and the receiver has not: blocks, and SKIPs as long as can be."""
        a, b = self.daemons[sender], self.daemons[receiver]
        if not self._is_linked(a, b):
            return []
        behind = 1 << b.site if a.site == b.site else self.subtree(a.view.sites, source, b.site)
        blocks: list[Item] = []
        skips: list[Skip] = []
        for seq, block in a.known.passing[source].items():
            if block.mask & behind:
                if seq not in b.known.passing[source]:
                    blocks.append(block)
            else:
                skips.append(block.as_skip())
        run: list[Skip] = []
        for skip in sorted({*skips, *a.known.skips[source]}):
            both = joined(run[-1], skip) if run else None
            if both is not None:
                run[-1] = both
            else:
                run.append(skip)
        return blocks + [skip for skip in run if not b.known.has(source, skip.upto)]

    def transfer(self, sender: int, receiver: int, source: int, items: list[Item]) -> bool:
        """These arrive."""
        a, b = self.daemons[sender], self.daemons[receiver]
        if not self._is_linked(a, b):
            return False
        for item in items:
            if isinstance(item, Block):
                b.receive(item)
            elif not item.mask >> b.site & 1:
                b.known.receive_skip(source, item)
        return bool(items)

    def update(self, sender: int, receiver: int, source: int) -> bool:
        """The newest UPDATE of a source arrives, maybe ahead of blocks."""
        a, b = self.daemons[sender], self.daemons[receiver]
        if not self._is_linked(a, b) or a.known.updates[source] == b.known.updates[source]:
            return False
        b.known.receive_update(source, a.known.updates[source])
        return True

    def _is_linked(self, a: Daemon, b: Daemon) -> bool:
        if b.state != WORKING or not self.reaches(a.id, b.id, in_flight=True):
            return False
        return a.view.id == b.view.id

    def stray(self, sender: int, receiver: int, source: int) -> bool:
        """A block of another view comes late. Its view id tells it from those of this view."""
        a, b = self.daemons[sender], self.daemons[receiver]
        if a.view.id == b.view.id or source not in a.view.sites or source not in b.view.sites:
            return False
        if self.rules.view_ids or b.state != WORKING or not self.reaches(sender, receiver, in_flight=True):
            return False
        missing = [each for seq, each in a.known.passing[source].items() if not b.known.has(source, seq)]
        for block in missing:
            if not block.mask & ~mask_of(b.view.sites):
                b.receive(block)
        return bool(missing)

    # ---- rounds

    def is_off(self, name: int) -> bool:
        """Whether a daemon has a reason to begin a round: its view is not whom it can talk with, or it is in one."""
        daemon = self.daemons[name]
        return daemon.is_alive and (daemon.state != WORKING or daemon.view.members != self.neighbours(name))

    def start(self, name: int) -> int:
        number = 1 + max(self.daemons[each].promised.number for each in self.neighbours(name))
        self.rounds.append(Round(Ballot(number, name)))
        index = len(self.rounds) - 1
        self.note(f"{name} begins round {index} with ballot {number}")
        self.invite(index, name)
        self.answer(index, name)
        return index

    def leads(self, index: int) -> bool:
        ballot = self.rounds[index].ballot
        coordinator = self.daemons[ballot.coordinator]
        return coordinator.is_alive and coordinator.promised == ballot

    def invite(self, index: int, name: int) -> bool:
        """INVITE arrives: a daemon that has promised nothing higher stops, and tells its cut."""
        each, daemon = self.rounds[index], self.daemons[name]
        if (
            each.outcome is not None
            or daemon.promised >= each.ballot
            or not self.reaches(each.ballot.coordinator, name)
        ):
            return False
        daemon.promised, daemon.state, daemon.round = each.ballot, GATHERING, index
        daemon.tell_cut()
        return True

    def answer(self, index: int, name: int) -> bool:
        """The cut arrives."""
        each, daemon = self.rounds[index], self.daemons[name]
        is_late = each.outcome is not None or not self.leads(index) or name in each.cuts
        if is_late or daemon.round != index or not self.reaches(name, each.ballot.coordinator, in_flight=True):
            return False
        assert daemon.cut is not None
        each.cuts[name] = daemon.cut
        return True

    def conclude(self, index: int) -> bool:
        """The coordinator waits for nobody else. It leaves out those that it cannot talk with any more."""
        each = self.rounds[index]
        coordinator = each.ballot.coordinator
        if each.outcome is not None or not self.leads(index):
            return False
        cuts = [cut for name, cut in sorted(each.cuts.items()) if self.talk(coordinator, name)]
        each.outcome = outcome = outcome_of(self.rules, each.ballot, cuts)
        members = tuple(cut.daemon for cut in cuts)
        name = ViewId(outcome.counter, coordinator)
        sites = tuple(sorted({self.site_of[member] for member in members}))
        each.view = View(name, members, sites, outcome.first_lts, outcome.roster_groups)
        self.note(f"round {index}: view {name} of {members}, classes {[c.members for c in outcome.classes]}")
        return True

    def accept(self, index: int, name: int) -> bool:
        """The result arrives."""
        each, daemon = self.rounds[index], self.daemons[name]
        if each.view is None or name not in each.view.members or daemon.round != index or daemon.state != GATHERING:
            return False
        if not self.reaches(each.ballot.coordinator, name, in_flight=True):
            return False
        daemon.state = ACCEPTING
        if self.rules.accept_clock:
            daemon.known.raise_clock(each.view.first_lts)
        if not self.rules.bind_when_held and daemon.bound is None:
            daemon.bound = each.result_of(name)
        self.complete(index, name)
        return True

    def fetch(self, index: int, name: int, other: int) -> bool:
        """Another daemon of the old view hands over what it holds of the remainder."""
        daemon, holder = self.daemons[name], self.daemons[other]
        if daemon.round != index or daemon.state != ACCEPTING or holder.view.id != daemon.view.id:
            return False
        if not self.talk(name, other):
            return False
        remainder = self.rounds[index].result_of(name).remainder
        found = [due for due in daemon.known.lacking((*remainder.before, *remainder.after))
                 if holder.known.holds(due.site, due.seq)]  # fmt: skip
        for due in found:
            daemon.receive(holder.known.passing[due.site][due.seq])
        return self.complete(index, name) or bool(found)

    def complete(self, index: int, name: int) -> bool:
        """It holds its whole remainder: it is bound, and says so."""
        daemon = self.daemons[name]
        if daemon.round != index or daemon.state != ACCEPTING:
            return False
        result = self.rounds[index].result_of(name)
        if daemon.known.lacking((*result.remainder.before, *result.remainder.after)):
            return False
        daemon.state = ACCEPTED
        if daemon.bound is None or not self.rules.stay_bound:
            daemon.bound = result
        return True

    def confirm(self, index: int, name: int) -> bool:
        """ACCEPTED arrives."""
        each, daemon = self.rounds[index], self.daemons[name]
        if daemon.round != index or daemon.state != ACCEPTED or name in each.accepted or each.is_committed:
            return False
        if not self.reaches(name, each.ballot.coordinator, in_flight=True):
            return False
        each.accepted |= {name}
        return True

    def can_commit(self, index: int) -> bool:
        each = self.rounds[index]
        if each.view is None or each.is_committed or not self.leads(index):
            return False
        if self.rules.commit_by_all:
            return each.accepted >= set(each.view.members)
        return each.ballot.coordinator in each.accepted

    def commit(self, index: int) -> bool:
        if not self.can_commit(index):
            return False
        each = self.rounds[index]
        each.is_committed = True
        return self.install(index, each.ballot.coordinator)

    def install(self, index: int, name: int) -> bool:
        """COMMIT arrives, from the coordinator or from another that has it."""
        each, daemon = self.rounds[index], self.daemons[name]
        if not each.is_committed or each.view is None or not daemon.is_alive or name in each.installed:
            return False
        is_ready = daemon.round == index and daemon.state == ACCEPTED
        if not self.rules.promise_voids:
            is_ready = is_ready or (
                name in each.accepted and daemon.promised > each.ballot and daemon.bound is not None
            )
        if not is_ready:
            return False
        if name != each.ballot.coordinator and not any(self.reaches(other, name) for other in each.installed):
            return False
        each.installed |= {name}
        result = daemon.bound
        assert result is not None
        daemon.install(each.view, result, each.came_with(name), self.window)
        self._make_tokens(each.view)
        return True

    def note(self, text: str) -> None:
        self.facts.append(Noted(text))
