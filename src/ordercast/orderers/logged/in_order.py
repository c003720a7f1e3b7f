"""Delivery in the order of the log, whatever the service (Amoeba section 4.1; SAFE after docs/design/overview.md
section 3)."""

from __future__ import annotations

from ordercast.engine import Delivery, Denied, Outbox, Run
from ordercast.orderers.logged.ring import RingState
from ordercast.parts.outgoing import Outgoing
from ordercast.service import SAFE_RANK
from ordercast.view import Reason, View
from ordercast.wire.views import open_change


class ViewDelivery:
    """Views on their way up."""

    __slots__ = ("_me", "_shown")

    def __init__(self, ring: RingState) -> None:
        self._me = str(ring.me)
        # Of the view that was delivered last. A newcomer delivers its own join like any other change.
        self._shown = "" if ring.view.reason == Reason.JOIN else ring.view.id

    def deliver(self, view: View, out: Outbox) -> None:
        """A change has its turn. Where it changed nothing, only the member that asked for it hears of it."""
        if view.id != self._shown:
            self._shown = view.id
            out.upcalls.append(view)
        elif view.reason == Reason.LOCK and view.subject == self._me:
            out.upcalls.append(Denied(view.lock))


def first_safe(view: View) -> int:
    """What all members of a ring's first view are known to hold.

    A newcomer knows nothing of the others. After a recovery a member may have accepted the view, or only be named by
    it, and not have installed it. Nobody comes or goes before all of them are heard in the new ring: only members of
    the old one can tell a straggler that it has ended.
    """
    return view.seq if view.reason == Reason.CREATE else view.seq - 1


class InOrderDelivery:
    """How far the application has the log: delivered to it, and consumed by it."""

    __slots__ = ("_log", "_me", "_outgoing", "_ring", "_views", "consumed", "delivered", "safe")

    def __init__(self, ring: RingState, outgoing: Outgoing) -> None:
        self._log = ring.log
        self._me = ring.me.id
        self._outgoing = outgoing
        self._views = ViewDelivery(ring)
        self._ring = ring
        self.delivered = ring.view.seq - 1 if ring.view.reason == Reason.JOIN else ring.view.seq
        self.consumed = self.delivered
        self.safe = first_safe(ring.view)

    def deliver(self, out: Outbox) -> None:
        """Everything received goes up in order; SAFE blocks, and all behind them, when all members have them."""
        entries = self._log.entries
        run: list[Delivery] = []
        seq = self.delivered + 1
        upto, safe = self._ring.deliverable, self.safe
        while seq <= upto:
            entry = entries[seq]
            if entry.rank == SAFE_RANK and seq > safe:
                break
            if entry.is_change:
                if run:
                    out.upcalls.append(Run(run))
                    run = []
                self._views.deliver(open_change(entry.block), out)
            else:
                run.append(Delivery(seq, entry.position, entry.origin, entry.number, entry.block))
            seq += 1
        self.delivered = seq - 1
        if run:
            out.upcalls.append(Run(run))
        self._skip_changes()

    def consume(self, seq: int) -> None:
        """The application has taken everything up to and including `seq`."""
        self.consumed = max(self.consumed, min(seq, self.delivered))
        self._skip_changes()

    def _skip_changes(self) -> None:
        """Nobody consumes a view."""
        entries = self._log.entries
        while self.consumed < self.delivered and entries[self.consumed + 1].is_change:
            self.consumed += 1

    def purge(self, stable: int) -> int:
        """Forget what everybody has consumed, as far as we have ourselves; the bytes that this frees."""
        freed_bytes = 0
        for entry in self._log.purge(min(stable, self.consumed)):
            freed_bytes += entry.cost
            if entry.origin == self._me:
                self._outgoing.stable(entry.number)
        return freed_bytes
