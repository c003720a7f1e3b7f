"""Which members are suspected, and how closely all are watched (RMP section 4.4; docs/design/overview.md section 7).

Silence is suspicious sooner while anything is outstanding. One rule says what is: work in the ring, and whatever an
application or a caller outside waits for, such as a lock that another member holds, or an answer. A member that waits
says so with its heartbeats, so that all of them are frequent: otherwise it would expect what the others do not give. So
does a member with work that lasts: what it has sent may be lost, and the others do not know of it.
"""

from __future__ import annotations

from typing import Final

from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.orderer import Suspicion, SuspicionReason
from ordercast.orderers.token.naks import TokenNaks
from ordercast.orderers.token.pending import ChangeRequests
from ordercast.orderers.token.rotation import Rotation
from ordercast.parts.detector import Detector
from ordercast.parts.outgoing import Outgoing
from ordercast.parts.slow import SlowReceivers

HEARSAY_BEATS: Final = 4  # heartbeats for which the word of another member counts that it waits
LONG_BEATS: Final = 3  # heartbeats after which work lasts: most of it is over sooner, and not worth a word


class Vigilance:
    __slots__ = (
        "_busy_ns",
        "_detector",
        "_heard_until_ns",
        "_naks",
        "_oldest",
        "_oldest_ns",
        "_outgoing",
        "_reminded_until_ns",
        "_requests",
        "_ring",
        "_rotation",
        "_slow",
        "_waits",
        "is_stalled",
    )

    def __init__(
        self,
        ring: RingState,
        detector: Detector,
        rotation: Rotation,
        outgoing: Outgoing,
        naks: TokenNaks,
        requests: ChangeRequests,
    ) -> None:
        self._ring = ring
        self._detector = detector
        self._rotation = rotation
        self._outgoing = outgoing
        self._naks = naks
        self._requests = requests
        self._busy_ns = -1  # since when something is outstanding in the ring, as far as we know; -1: nothing is
        self._slow = SlowReceivers(ring.config)
        self._waits = False  # our application waits for another member
        self._reminded_until_ns = 0  # until then a caller outside waits, as far as we know
        self._heard_until_ns = 0  # until then another member waits, as far as we know
        self._oldest = 0  # what our application had not taken at the last heartbeat
        self._oldest_ns = 0  # since when
        self.is_stalled = False  # it has held up the ring for longer than the others allow

    # What is outstanding

    def wait(self, is_waiting: bool) -> None:
        """Whether our application waits for something that another member has to do."""
        if is_waiting and not self._waits:
            self._rotation.waits = self._rotation.sync_now = True  # the others are to speak more often from now on
        self._waits = is_waiting

    def on_reminder(self, now_ns: int) -> None:
        """A caller outside asks again for the answer to a call that was delivered."""
        self._reminded_until_ns = now_ns + 5 * self._ring.timing.retransmit_max_ns // 4

    def on_waiting(self, now_ns: int) -> None:
        """Another member says that it waits."""
        self._heard_until_ns = now_ns + HEARSAY_BEATS * self._ring.timing.heartbeat_busy_ns

    def work(self, now_ns: int, is_busy: bool) -> None:
        """After a pass. `is_busy`: something is outstanding in the ring itself."""
        if not is_busy:
            self._busy_ns = -1
        elif self._busy_ns < 0:
            self._busy_ns = now_ns
        lasts = is_busy and now_ns - self._busy_ns >= LONG_BEATS * self._ring.timing.heartbeat_busy_ns
        waits = self._rotation.waits = lasts or self._waits or now_ns < self._reminded_until_ns
        self._detector.work(is_busy or waits or now_ns < self._heard_until_ns, now_ns)

    def watch_application(self, now_ns: int, delivery: ServiceDelivery) -> None:
        """With each heartbeat: whether our application is so far behind that it holds up the ring. Being behind for a
        moment is no fault, whatever `held_ns` says. Where blocks, or a change, wait for it, and that lasts, we say so
        with our heartbeats, and the others evict us."""
        ring, timing = self._ring, self._ring.timing
        is_overrun, oldest = delivery.is_overrun(), delivery.oldest
        self._rotation.is_full = is_overrun
        if not is_overrun or oldest != self._oldest:
            self._oldest, self._oldest_ns, self.is_stalled = oldest, now_ns, False
        else:
            self.is_stalled = now_ns - self._oldest_ns > max(timing.held_ns, timing.retransmit_max_ns)
        waits = bool(ring.log.blocks) or (bool(self._requests.pending) and delivery.is_overrun(change_waits=True))
        blocking = {ring.me.id: oldest} if is_overrun and waits and len(ring.view.members) > 1 else {}
        self._rotation.is_overdue = bool(self._slow.look(now_ns, blocking))

    # What comes of it

    def suspects(self, now_ns: int) -> list[Suspicion]:
        """Members that have been silent for too long, or did not answer ten tries (section 4.4)."""
        ring, rotation, tries = self._ring, self._rotation, self._ring.timing.tries
        if ring.is_frozen or ring.has_left:
            return []
        found = dict.fromkeys(self._detector.suspects(now_ns), SuspicionReason.SILENCE)
        if self._outgoing.is_exhausted:
            found.setdefault(rotation.site, SuspicionReason.NO_ACKNOWLEDGEMENT)
        if self._requests.is_exhausted:
            found.setdefault(rotation.site, SuspicionReason.NO_CHANGE)
        if self._naks.tries > ring.timing.nak_tries:
            found.setdefault(rotation.site, SuspicionReason.NO_REPAIR)
        if rotation.passed is not None and rotation.passed.tries > tries:
            found.setdefault(rotation.passed.site, SuspicionReason.NO_TOKEN)
        return [Suspicion(member, why) for member, why in found.items() if member and member != ring.me.id]
