"""Tokens at one node: started, held, visited, passed on, back (QSM section 2.3.2)."""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.engine import NEVER
from ordercast.orderers.regions.member_view import LEADER_PATIENCE, MemberView, Work, fitted
from ordercast.orderers.regions.partitions import partitions_of, ring_of
from ordercast.underlay.regions.node import START_SHARE, RegionNode
from ordercast.underlay.regions.receiving import MemberDesk
from ordercast.wire.courier import Parcel
from ordercast.wire.header import Kind
from ordercast.wire.regions import Accusation, Accused, RegionToken, decode_token, encode_ack, encode_token

MAX_HELD: Final = 64  # tokens that wait here, one of each view
# With a window, a token leaves so much earlier if the last round left something unacknowledged, or something has come.
HURRY: Final = 20


class HeldToken(NamedTuple):
    """A token that waits: for an epoch, for a view, or for the application."""

    token: RegionToken
    starter: int
    number: int
    until_ns: int  # then it goes on; NEVER: with an epoch


class TokenDesk:
    __slots__ = ("_accused", "_held", "_members", "_node")

    def __init__(self, node: RegionNode, members: MemberDesk) -> None:
        self._node = node
        self._members = members
        self._held: dict[int, HeldToken] = {}
        self._accused: list[Accused] = []

    # Inputs

    def on_token(self, now_ns: int, parcel: Parcel) -> None:
        token = decode_token(parcel.body)
        self._arrive(now_ns, parcel.ring, token, parcel.origin, parcel.number, NEVER)

    def _arrive(self, now_ns: int, name: int, token: RegionToken, starter: int, number: int, until_ns: int) -> None:
        """`until_ns`: it waits for the application no longer than that."""
        node = self._node
        view = node.views.get(name)
        made = view.given.epoch if view is not None else node.epoch
        if starter in node.exclusions.out_of(made) or token.epoch < node.exclusions.floor:
            return
        if token.epoch > node.epoch or (view is None and name not in node.forgotten):
            self._hold(name, HeldToken(token, starter, number, NEVER))
        elif view is None:
            self._pass_forgotten(name, token, starter, number)
        elif now_ns < until_ns and node.up.lag_bytes >= node.config.history_bytes // START_SHARE:
            # The application lags: the region goes no faster than it, as long as nobody loses patience.
            until_ns = min(until_ns, now_ns + LEADER_PATIENCE * node.terms.token_ns // 2)
            self._hold(name, HeldToken(token, starter, number, until_ns))
        else:
            self._go(now_ns, view, token, starter, number)

    def _hold(self, name: int, held: HeldToken) -> None:
        before = self._held.get(name)
        if before is not None and before.starter == held.starter and before.number > held.number:
            return
        if before is None and len(self._held) >= MAX_HELD:
            del self._held[next(iter(self._held))]
        self._held[name] = held

    def release(self, now_ns: int) -> None:
        """An epoch was installed, or the application has caught up: what waits is looked at again."""
        waiting, self._held = self._held, {}
        for name, held in waiting.items():
            self._arrive(now_ns, name, held.token, held.starter, held.number, held.until_ns)

    # Rounds

    def start(self, now_ns: int, view: MemberView) -> None:
        node = self._node
        token = view.start(now_ns, node.terms.token_ns)
        self._go(now_ns, view, token, node.me.id, view.rounds.number)

    def _go(self, now_ns: int, view: MemberView, token: RegionToken, starter: int, number: int) -> None:
        """Visits here, until the next one is somebody else's."""
        node = self._node
        me = node.me.id
        while True:
            _, stops = view.way(token.epoch, starter)
            if token.place >= len(stops) or stops[token.place].node != me:
                node.tally("strange_tokens")
                return
            if not view.is_new(starter, number, token.place):
                node.tally("old_tokens")
                return
            view.expect(now_ns, node.terms.token_ns)
            if stops[token.place].is_end:
                if number == view.rounds.number:
                    self._carry_out(view, view.finish(token))
                    if node.terms.is_windowed and view.is_behind:
                        # Senders wait for it: the token was faster than blocks, or something is lost.
                        view.next_start_ns = min(view.next_start_ns, now_ns + node.terms.token_ns // HURRY)
                return
            cleaner = view.cleaner
            token, work = view.visit(now_ns, token, starter, number, node.parts)
            self._carry_out(view, work)
            if view.cleaner != cleaner:
                node.fifo.retry()  # of a sender that nobody has spoken of there is nothing
            node.tidy_dead(view)
            token = token._replace(place=token.place + 1)
            after = stops[token.place].node
            if after != me:
                body = encode_token(fitted(token, number, node.token_bytes))
                node.post.send(after, Parcel(Kind.REGION_TOKEN, view.given.view, starter, number, body))
                return

    def _pass_forgotten(self, name: int, token: RegionToken, starter: int, number: int) -> None:
        """This member has had everything. The token goes on, and its starter hears of it."""
        node = self._node
        self._members.answer_drained(starter, name)
        given = node.forgotten[name].given
        stops = ring_of(partitions_of(given, node.exclusions.as_of(token.epoch, given.epoch)), starter)
        me = node.me.id
        place = token.place
        if place >= len(stops) or stops[place].node != me:
            return
        while place < len(stops) and stops[place].node == me:
            place += 1
        if place < len(stops):
            body = encode_token(fitted(token._replace(place=place), number, node.token_bytes))
            node.post.send(stops[place].node, Parcel(Kind.REGION_TOKEN, name, starter, number, body))

    def _carry_out(self, view: MemberView, work: Work) -> None:
        members, node = self._members, self._node
        members.push(view, work.pushes)
        members.pull(view, work.pulls)
        members.ask(view, work.naks)
        out = node.exclusions.out_of(view.given.epoch)
        for sender, ack in work.acks:
            if sender not in out:
                parcel = Parcel(Kind.REGION_ACK, view.given.view, sender, 0, encode_ack(ack))
                node.post.send(sender, parcel)
        for sender in work.changed:
            node.tidy(view, sender)
            record = view.records.get(sender)
            if record is not None:
                node.fifo.advance(view, record)
        if work.changed:
            node.fifo.retry()

    # Time

    def step(self, now_ns: int) -> None:
        """Once in a pass: tokens that are due, also by what has come."""
        node = self._node
        interval_ns = node.terms.token_ns
        if self._held and any(held.until_ns <= now_ns for held in self._held.values()):
            self.release(now_ns)
        for view in list(node.views.values()):
            rounds = view.rounds
            if view.leader == node.me.id:
                if view.fresh_bytes and node.terms.is_windowed and not rounds.is_out:
                    # Something has come after a pause: its sender may wait for the acknowledgement.
                    view.next_start_ns = min(view.next_start_ns, now_ns + interval_ns // HURRY)
                is_due = view.next_start_ns <= now_ns or view.fresh_bytes >= view.start_bytes
                if is_due and (not rounds.is_out or now_ns - rounds.out_ns >= view.patience_ns(interval_ns)):
                    self.start(now_ns, view)
            elif view.silence_ns <= now_ns:
                node.tally("silences")
                self._accused.append(Accused(view.leader, view.given.view, node.epoch, Accusation.SILENCE))
                self.start(now_ns, view)
                view.expect(now_ns, interval_ns)

    def deadline_ns(self) -> int:
        node = self._node
        due_ns = min([held.until_ns for held in self._held.values()], default=NEVER)
        for view in node.views.values():
            if view.leader == node.me.id:
                rounds = view.rounds
                next_ns = view.next_start_ns
                if rounds.is_out:
                    next_ns = max(next_ns, rounds.out_ns + view.patience_ns(node.terms.token_ns))
                due_ns = min(due_ns, next_ns)
            else:
                due_ns = min(due_ns, view.silence_ns)
        return due_ns

    def take_accused(self) -> list[Accused]:
        accused, self._accused = self._accused, []
        return accused

    @property
    def is_holding(self) -> bool:
        return bool(self._held)
