"""What comes from outside the ring's members, or has to be multicast for them: calls and forwarded datagrams.

Calls of nodes that are no members: RMP section 4.5. Members without multicast: section 3.4.
"""

from __future__ import annotations

from ordercast.engine import Outbox, RepeatedCall, Send, To
from ordercast.membership.policy import Membership, Phase
from ordercast.orderers import LoggedOrderer
from ordercast.orderers.orderer import CallTaker
from ordercast.underlay.routes import MulticastRoutes
from ordercast.underlay.vacancy import Vacancy
from ordercast.view import Address, Member, View
from ordercast.wire.calls import FIRST, RELAY, allow, decode_call, encode_call, open_call
from ordercast.wire.header import Kind
from ordercast.wire.writer import DatagramWriter


class Outside:
    __slots__ = ("_counters", "_me", "_name", "_routes", "_writer")

    def __init__(
        self, name: str, me: Member, writer: DatagramWriter, routes: MulticastRoutes, counters: dict[str, int]
    ) -> None:
        self._name = name
        self._me = me
        self._writer = writer
        self._routes = routes
        self._counters = counters

    def on_call(
        self,
        now_ns: int,
        source: Address,
        ring: int,
        origin: int,
        number: int,
        body: bytes,
        is_short: bool,
        membership: Membership[LoggedOrderer],
        orderer: LoggedOrderer | Vacancy,
        out: Outbox,
    ) -> None:
        """From a caller that is no member: by our name, or by a ring that is or was ours. `is_short`: the view has too
        few members for us to take part."""
        flags, name, block = decode_call(body)
        if not membership.is_whole or membership.phase is not Phase.MEMBER or is_short:
            return  # it will come again
        if name == self._name if name else ring == membership.ring or membership.was_in(ring):
            self._take(now_ns, source, origin, number, flags, block, body, orderer.calls, orderer.view, out)
        else:
            self._count("foreign")

    def _take(
        self,
        now_ns: int,
        source: Address,
        origin: int,
        number: int,
        flags: int,
        block: bytes,
        body: bytes,
        calls: CallTaker | None,
        view: View,
        out: Outbox,
    ) -> None:
        """A call to our ring. `body` is the whole CALL, as it is passed on."""
        if calls is None:
            self._count("strange_calls")
            return
        open_call(block)  # raises here what would break us later
        is_new = calls.on_call(now_ns, origin, number, bool(flags & FIRST), block, out)
        if not is_new:
            out.upcalls.append(RepeatedCall(origin, number, block))
        if flags & RELAY and len(view.members) > 1:
            again = encode_call(flags & ~RELAY, self._name, block)
            out.sends.append(self._writer.call(To.ALL, origin, number, again))
        elif self._routes.is_first and all(member.address != source for member in view.members):
            # The caller itself has multicast it, and does not know which members that does not reach.
            for address in self._routes.copies:
                out.sends.append(self._writer.call(address, origin, number, body))

    def reply(self, to: Address, number: int, body: bytes, calls: CallTaker | None, out: Outbox) -> None:
        """Answer a call. What the caller may send next is written in here: the handler does not know it."""
        body = allow(body, calls.allowance if calls is not None else 0)
        out.sends.append(self._writer.control(to, Kind.REPLY, body, number=number))

    def forward(self, source: Address, data: bytes | bytearray, stride: int, out: Outbox) -> bool:
        """Multicast what a member without multicast sent us for all; whether it is to be taken as from that member.

        The mark has been cleared, so that it is not forwarded once more. Only members are served: otherwise we would
        multiply a stranger's datagrams. Our own multicast does not come back to us.
        """
        copies = self._routes.copies
        if source not in copies or not self._me.has_multicast:
            self._count("strange_forwards")
            return False
        self._count("forwarded", -(-len(data) // stride) if stride else 1)
        out.sends.append(Send(To.MULTICAST, (data,), stride))
        for address in copies:
            if address != source:
                out.sends.append(Send(address, (data,), stride))
        return True

    def _count(self, name: str, count: int = 1) -> None:
        self._counters[name] = self._counters.get(name, 0) + count
