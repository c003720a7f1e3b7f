"""Which daemons outside of the view are heard, and which components may merge: those of which *every* daemon hears and
is heard by every daemon of the other.

A SHOW says whom its sender hears, and with whom it is *linked*: both hear each other, and neither keeps away from the
other. A coordinator knows by that, before it disturbs anybody, that no pair of the merged view is cut in one direction.
Deviation from Spread, which merges whoever hears whom: a pair that does not hear each other would break the view at
once, and again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ordercast.engine import NEVER, Note, Outbox
from ordercast.membership.components.daemons import ComponentView, LocalDaemon
from ordercast.membership.policy import WARNING
from ordercast.wire.components import ComponentHello, DaemonLife, encode_hello, indices_of, mask_of
from ordercast.wire.header import Kind

FRESH: Final = 4  # beacons after which a daemon that was silent is not heard any more
GAPS: Final = 10  # what has changed is told so many times in the time of one beacon, at most
FANOUT: Final = 128  # SHOWs at a time; the others have their turn in the next ones
STRANGERS: Final = 64  # lives with another configuration that are told of, once each; more of them are counted only


class _Heard(NamedTuple):
    at_ns: int
    hello: ComponentHello


class Found(NamedTuple):
    """Another component, as all of its daemons show it."""

    name: tuple[int, DaemonLife]  # of its view: counter and creator
    mask: int


class Neighbours:
    __slots__ = ("_heard", "_local", "_said", "_said_ns", "_strangers", "_turn", "due_ns")

    def __init__(self, local: LocalDaemon) -> None:
        self._local = local
        self._heard: dict[int, _Heard] = {}  # by index
        self._said: ComponentHello | None = None
        self._said_ns = 0
        self._turn = 0
        self._strangers: set[int] = set()  # ids of daemons that have another configuration
        self.due_ns = NEVER

    # Inputs

    def begin(self, now_ns: int) -> None:
        self.due_ns = now_ns

    def on_hello(self, now_ns: int, hello: ComponentHello) -> None:
        self._heard[hello.me.index] = _Heard(now_ns, hello)

    def is_strange(self, hello: ComponentHello) -> bool:
        """Whether a daemon has another configuration: its indices, sites and routes are not ours."""
        return hello.configuration != self._local.daemons.fingerprint

    def refuse(self, hello: ComponentHello, origin: int, out: Outbox) -> bool:
        """A strange daemon is told of, once, and does not become a neighbour. Whether it is one of ours all the same,
        restarted with another file."""
        local = self._local
        if origin not in self._strangers and len(self._strangers) < STRANGERS:
            self._strangers.add(origin)
            name = local.daemons.name_of(origin, hello.me.life)
            told = f"{name} has" if name else "a daemon that this configuration of sites does not name has"
            text = (
                f"{told} another configuration of sites (fingerprint {hello.configuration:016x}, here "
                f"{local.daemons.fingerprint:016x}) and is not let in: give all daemons the same file, and restart them"
            )
            out.notes.append(Note(WARNING, local.me.id, detail=text))
        return hello.me.index < len(local.daemons) and local.daemons.id(hello.me) == origin

    def forget(self, index: int) -> None:
        self._heard.pop(index, None)

    # Telling

    def tell(self, now_ns: int, view: ComponentView, is_working: bool, number: int, avoids: int, out: Outbox) -> None:
        """Show ourselves where it is time, or where something has changed since the last one."""
        hello = self._hello(now_ns, view, is_working, number, avoids)
        gap_ns = self._local.timing.beacon_ns // GAPS
        if self._said is None or hello._replace(number=0) != self._said._replace(number=0):
            self.due_ns = min(self.due_ns, max(self._said_ns + gap_ns, now_ns))
        if self.due_ns > now_ns:
            return
        self._said, self._said_ns = hello, now_ns
        beacon_ns = self._local.timing.beacon_ns
        self.due_ns = now_ns + beacon_ns + self._local.rng.randrange(beacon_ns // 8)
        outside = [index for index in range(len(self._local.daemons)) if not view.mask >> index & 1]
        if len(outside) > FANOUT:
            self._turn %= len(outside)
            outside = (outside[self._turn :] + outside[: self._turn])[:FANOUT]
            self._turn += FANOUT
        body = encode_hello(hello)
        for index in outside:
            self._local.send(index, Kind.SHOW, body, out)

    def tell_one(
        self, now_ns: int, index: int, view: ComponentView, is_working: bool, number: int, avoids: int, out: Outbox
    ) -> None:
        body = encode_hello(self._hello(now_ns, view, is_working, number, avoids))
        self._local.send(index, Kind.SHOW, body, out)

    def hears(self, now_ns: int) -> int:
        """Daemons that were heard lately."""
        return mask_of([index for index, heard in self._heard.items() if self._is_fresh(now_ns, heard)])

    # Merging

    def mergeable(self, now_ns: int, view: ComponentView, avoids: int) -> list[Found]:
        """The components that can merge with this one, and with one another; lowest daemon first."""
        linked = self._linked(now_ns, view, avoids)
        by_name: dict[tuple[int, DaemonLife], dict[int, ComponentHello]] = {}
        for index, heard in self._heard.items():
            hello = heard.hello
            if linked >> index & 1 and hello.is_working:
                by_name.setdefault((hello.counter, hello.creator), {})[index] = hello
        found: list[tuple[Found, int]] = []
        ours = view.mask
        for name, hellos in by_name.items():
            members = next(iter(hellos.values())).members
            common = -1
            for life in members:
                said = hellos.get(life.index)
                common &= said.linked if said is not None and said.me == life and said.members == members else 0
            mask = mask_of([life.index for life in members])
            if common & ours == ours and not mask & ours:
                found.append((Found(name, mask), common))
        chosen: list[Found] = []
        together, reach = ours, -1
        for each, common in sorted(found, key=_lowest):
            others = together & ~ours
            if common & others == others and reach & each.mask == each.mask:
                chosen.append(each)
                together |= each.mask
                reach &= common
        return chosen

    # Helpers

    def _is_fresh(self, now_ns: int, heard: _Heard) -> bool:
        turns = 1 + (len(self._local.daemons) - 1) // FANOUT
        return now_ns - heard.at_ns <= FRESH * turns * self._local.timing.beacon_ns

    def _hello(self, now_ns: int, view: ComponentView, is_working: bool, number: int, avoids: int) -> ComponentHello:
        hears = self.hears(now_ns) & ~view.mask & ~avoids
        linked = self._linked(now_ns, view, avoids)
        me, name = self._local.life, (view.id.counter, view.creator)
        return ComponentHello(me, is_working, number, *name, view.lives, hears, linked, self._local.daemons.fingerprint)

    def _linked(self, now_ns: int, view: ComponentView, avoids: int) -> int:
        mask = 0
        for index in indices_of(self.hears(now_ns) & ~view.mask & ~avoids):
            if self._heard[index].hello.hears >> self._local.index & 1:
                mask |= 1 << index
        return mask


def _lowest(each: tuple[Found, int]) -> int:
    return each[0].mask & -each[0].mask
