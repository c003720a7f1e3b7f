"""The members' side of joining: which newcomers may come in, and their welcomes until they are heard in the ring.

Amoeba's JoinGroup fails where the newcomer cannot meet the group's parameters (section 3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ordercast.config import MS, GroupConfig
from ordercast.engine import NEVER, Change, Outbox
from ordercast.membership.quorum.joining import MAX_ATTEMPTS
from ordercast.membership.quorum.local import LocalMember
from ordercast.orderers import Orderer
from ordercast.parts.rtt import RoundTrip
from ordercast.view import Address, Reason, View, id_of
from ordercast.wire.header import Kind
from ordercast.wire.views import Asking, encode_refusal, encode_welcome, encode_withdrawal

WELCOME_NS: Final = 40 * MS  # until a welcome is repeated, while no round trip is known
WELCOMES: Final = 8  # at least so many before a newcomer is suspected: without one it cannot speak in the ring
MAX_NONCES: Final = 1_024  # newcomers whose attempts are remembered; at the bound all are forgotten


class _Welcome:
    __slots__ = ("address", "body", "due_ns", "nonce", "sent_ns", "seq", "tries")

    def __init__(self, address: Address, body: bytes, nonce: int, seq: int, sent_ns: int, due_ns: int) -> None:
        self.address = address
        self.body = body
        self.nonce = nonce
        self.seq = seq  # of the join
        self.sent_ns = sent_ns  # for the first time
        self.due_ns = due_ns
        self.tries = 0


class Admission:
    __slots__ = ("_local", "_over", "_rtt", "_welcomes")

    def __init__(self, local: LocalMember) -> None:
        self._local = local
        self._rtt = RoundTrip(local.timing, WELCOME_NS)  # from a welcome until its newcomer is heard
        self._welcomes: dict[int, _Welcome] = {}  # in the view, and not heard in the ring yet
        self._over: dict[int, deque[int]] = {}  # newcomer -> its last attempts that led to a join or were taken back

    def on_join(
        self, now_ns: int, source: Address, asking: Asking, config: GroupConfig, orderer: Orderer, out: Outbox
    ) -> None:
        """Check the parameters of a newcomer, then let its join be ordered."""
        if not orderer.standing().admits:
            return
        if orderer.view.member(asking.member.id) is not None or asking.member.id in self._welcomes:
            self.again(now_ns, asking)
        elif not self.is_over(asking):
            refusal = self.refusal(asking, config, orderer.view)
            if refusal:
                body = encode_refusal(self._local.name, refusal)
                out.sends.append(self._local.writer.control(source, Kind.REFUSE, body))
            else:
                orderer.propose(now_ns, _join_of(asking))

    def is_over(self, asking: Asking) -> bool:
        """Whether this attempt has led to a join before, or was taken back: what comes of it now is late."""
        return asking.nonce in self._over.get(asking.member.id, ())

    def refusal(self, asking: Asking, config: GroupConfig, view: View) -> str:
        """Why a newcomer cannot be admitted; empty if it can."""
        if len(view.members) >= config.max_members:
            return f"the group {self._local.name!r} is full: it was created with max_members={config.max_members}"
        return asking.demands.refusal(config)

    def again(self, now_ns: int, asking: Asking) -> None:
        """A member that is in asks: its welcome was lost, if it is the same attempt."""
        welcome = self._welcomes.get(asking.member.id)
        if welcome is not None and welcome.nonce == asking.nonce:
            welcome.due_ns = now_ns

    def admitted(self, view: View) -> None:
        """A join has been ordered, by this member or another."""
        self._remember(id_of(view.subject), view.serial)

    def on_withdraw(self, source: Address, member: int, nonces: Sequence[int], orderer: Orderer, out: Outbox) -> None:
        """A newcomer takes its request back. It is told that it will not be ordered here, unless it is in already."""
        if orderer.view.member(member) is not None:
            return
        orderer.withdraw(member)
        for nonce in nonces:
            self._remember(member, nonce)
        answer = encode_withdrawal(self._local.name, nonces, is_answer=True)
        out.sends.append(self._local.writer.control(source, Kind.WITHDRAW, answer))

    def _remember(self, member: int, nonce: int) -> None:
        if len(self._over) >= MAX_NONCES:
            self._over.clear()
        self._over.setdefault(member, deque(maxlen=MAX_ATTEMPTS)).append(nonce)

    def welcome(self, now_ns: int, view: View, config: GroupConfig, out: Outbox) -> None:
        """The subject of `view` is new: tell it, until it is heard."""
        joiner = next(member for member in view.members if str(member) == view.subject)
        nonce = view.serial
        body = encode_welcome(self._local.name, nonce, config, view)
        due_ns = now_ns + self._patience_ns(0)
        self._welcomes[joiner.id] = _Welcome(joiner.address, body, nonce, view.seq, now_ns, due_ns)
        out.sends.append(self._local.writer.control(joiner.address, Kind.WELCOME, body))

    def heard(self, now_ns: int, member: int, seq: int) -> None:
        """A member holds the change at `seq`: if that is its own join, it knows that it is in."""
        welcome = self._welcomes.get(member)
        if welcome is not None and welcome.seq <= seq:
            if not welcome.tries:
                self._rtt.sample(now_ns - welcome.sent_ns)
            del self._welcomes[member]

    def forget_gone(self, view: View | None) -> None:
        """`view`: the last one, once it is decided. A member that it is without may have a vote before: its welcome is
        repeated until then."""
        if self._welcomes and view is not None:
            welcomes = self._welcomes.items()
            self._welcomes = {member: each for member, each in welcomes if view.member(member) is not None}

    def expire(self, now_ns: int, out: Outbox) -> None:
        for welcome in self._welcomes.values():
            if welcome.due_ns <= now_ns:
                welcome.tries += 1
                self._rtt.expired()
                welcome.due_ns = now_ns + self._patience_ns(welcome.tries)
                out.sends.append(self._local.writer.control(welcome.address, Kind.WELCOME, welcome.body))

    def _patience_ns(self, tries: int) -> int:
        """Until a welcome is repeated: not later where the newcomer is far away, since the ring suspects those that are
        far away as soon as the others."""
        return min(self._rtt.timeout_ns(tries), self._local.timing.suspect_busy_ns // WELCOMES)

    def deadline_ns(self) -> int:
        return min([welcome.due_ns for welcome in self._welcomes.values()]) if self._welcomes else NEVER

    def addresses(self) -> list[Address]:
        return [welcome.address for welcome in self._welcomes.values()]

    def clear(self) -> None:
        self._welcomes.clear()

    def __bool__(self) -> bool:
        return bool(self._welcomes)


def _join_of(asking: Asking) -> Change:
    return Change(
        Reason.JOIN, asking.member, asking.header, asking.next_block, "", serial=asking.nonce, callers=asking.callers
    )
