"""The leader's side of joining: who may come in, and welcoming them until they are heard in the ring.

Amoeba's JoinGroup fails where the newcomer cannot meet the group's parameters (section 3).
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS, GroupConfig
from ordercast.engine import NEVER, Outbox
from ordercast.view import Address, View, id_of
from ordercast.wire.header import Kind
from ordercast.wire.views import Asking, encode_welcome
from ordercast.wire.writer import DatagramWriter

WELCOME_NS: Final = 40 * MS
MAX_NONCES: Final = 1_024  # attempts remembered; at the bound all are forgotten


class _Welcome:
    __slots__ = ("address", "body", "due_ns", "nonce")

    def __init__(self, address: Address, body: bytes, nonce: int, due_ns: int) -> None:
        self.address = address
        self.body = body
        self.nonce = nonce
        self.due_ns = due_ns


class Admission:
    __slots__ = ("_admitted", "_group", "_welcomes", "_writer")

    def __init__(self, group: str, writer: DatagramWriter) -> None:
        self._group = group
        self._writer = writer
        self._welcomes: dict[int, _Welcome] = {}  # in the view, and not heard in the ring yet
        self._admitted: dict[int, int] = {}  # newcomer -> the last attempt that led to a join

    def is_over(self, asking: Asking) -> bool:
        """Whether this attempt has led to a join before: what comes of it now is an echo, perhaps of a dead one."""
        return self._admitted.get(asking.member.id) == asking.nonce

    def refusal(self, asking: Asking, config: GroupConfig, view: View) -> str:
        """Why a newcomer cannot be admitted; empty if it can."""
        if len(view.members) >= config.max_members:
            return f"the group {self._group!r} is full: it was created with max_members={config.max_members}"
        return asking.demands.refusal(config)

    def again(self, now_ns: int, asking: Asking) -> None:
        """A member that is in asks: its welcome was lost, if it is the same attempt."""
        welcome = self._welcomes.get(asking.member.id)
        if welcome is not None and welcome.nonce == asking.nonce:
            welcome.due_ns = now_ns

    def admitted(self, view: View) -> None:
        """A join has been ordered, by whomever."""
        if len(self._admitted) >= MAX_NONCES:
            self._admitted.clear()
        self._admitted[id_of(view.subject)] = view.serial

    def welcome(self, now_ns: int, view: View, config: GroupConfig, out: Outbox) -> None:
        """Somebody is new in `view`: tell it, until it speaks."""
        joiner = next(member for member in view.members if str(member) == view.subject)
        nonce = view.serial
        body = encode_welcome(self._group, nonce, config, view)
        self._welcomes[joiner.id] = _Welcome(joiner.address, body, nonce, now_ns + WELCOME_NS)
        out.sends.append(self._writer.control(joiner.address, Kind.WELCOME, body))

    def is_expected(self, member: int) -> bool:
        """Whether it is in the view and has not spoken in the ring yet."""
        return member in self._welcomes

    def heard(self, member: int) -> None:
        self._welcomes.pop(member, None)

    def expire(self, now_ns: int, out: Outbox) -> None:
        for welcome in self._welcomes.values():
            if welcome.due_ns <= now_ns:
                welcome.due_ns = now_ns + WELCOME_NS
                out.sends.append(self._writer.control(welcome.address, Kind.WELCOME, welcome.body))

    def deadline_ns(self) -> int:
        return min([welcome.due_ns for welcome in self._welcomes.values()]) if self._welcomes else NEVER

    def addresses(self) -> list[Address]:
        return [welcome.address for welcome in self._welcomes.values()]

    def clear(self) -> None:
        self._welcomes.clear()

    def __bool__(self) -> bool:
        return bool(self._welcomes)
