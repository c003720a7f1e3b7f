"""Which members hear multicasts, which get copies, and how far multicasts go. RMP sections 3.1 and 3.4.

Views tell which members have multicast. A member with it sends one multicast, and a copy to each member without. A
member without it asks one that has it to do so (`DatagramWriter.via`). If all have it, the common case, a send costs
nothing here: the list of copies is empty. Deviation: members that left get copies for a while, as those with multicast
listen for a while. They may lack what comes before their own leave, and not every member knows which members left.
"""

from __future__ import annotations

from ordercast.engine import NEVER
from ordercast.view import Address, Member, View
from ordercast.wire.writer import DatagramWriter


class MulticastRoutes:
    """As of the newest view that was applied. `copies` is replaced, never changed."""

    __slots__ = ("_gone", "_linger_ns", "_me", "_members", "_writer", "copies", "due_ns", "is_first", "ttl")

    def __init__(self, me: Member, writer: DatagramWriter, linger_ns: int) -> None:
        self._me = me
        self._writer = writer
        self._linger_ns = linger_ns
        self._members: list[Address] = []  # without multicast, in the view
        self._gone: dict[Address, int] = {}  # the same, lately: until when they get copies
        self.copies: list[Address] = []
        self.is_first = False  # of the members with multicast: it passes on what callers outside have multicast
        self.ttl = me.ttl
        self.due_ns = NEVER

    def begin(self, now_ns: int, view: View) -> None:
        """A ring begins. Members of the one before get nothing of it."""
        self.clear()
        self.apply(now_ns, view)

    def apply(self, now_ns: int, view: View) -> None:
        """A view of the ring is applied."""
        me = self._me
        self.ttl = view.ttl
        self.is_first = next((member.id for member in view.members if member.has_multicast), 0) == me.id
        members = [member.address for member in view.members if not member.has_multicast and member.id != me.id]
        if members or self._members:
            for address in self._members:
                if address not in members:
                    self._gone[address] = now_ns + self._linger_ns
            self._members = members
            self._count_up()
        if not me.has_multicast:
            # From our own index in the view on: members without multicast do not all burden the same one.
            start = view.index(me.id) + 1
            around = view.members[start:] + view.members[:start]
            self._writer.set_relays([member.address for member in around if member.has_multicast])

    def expire(self, now_ns: int) -> None:
        if self.due_ns <= now_ns:
            self._gone = {address: until_ns for address, until_ns in self._gone.items() if until_ns > now_ns}
            self._count_up()

    def clear(self) -> None:
        """There is no ring."""
        self._members = []
        self._gone = {}
        self.is_first = False
        self.ttl = self._me.ttl
        self._writer.set_relays([])
        self._count_up()

    def _count_up(self) -> None:
        for address in self._members:
            self._gone.pop(address, None)  # it came back
        self.copies = [*self._members, *self._gone]
        self.due_ns = min(self._gone.values(), default=NEVER)
