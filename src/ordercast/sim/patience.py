"""Random scenarios about waiting: the profile `patience` of the fuzzer.

Everything here takes long: silence of minutes, cuts of more than a minute, handlers that need longer than that for one
answer, networks whose datagrams travel for a tenth of a second and more. Groups that are re-formed by hand get resets
at the same time from members that ask for different numbers of members. Little is sent, so a run takes some hundredths
of a second all the same. A seed gives the same scenario in every release, as in `chance.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from ordercast.config import MS, SECOND
from ordercast.orderers import ORDERERS
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.scenario import (
    SERVICES,
    CallPlan,
    Load,
    LockUse,
    Scenario,
    anticipate_flags,
    check_orderer,
    node_names,
)

COMMAND: Final = "ordercast sim --profile patience --scenario-seed"
FORMED_NS: Final = 5 * SECOND  # by then the first members have found one another, also where they are far apart
EVENT_LIMIT: Final = 600_000
CALLER: Final = "caller0"


def patience_scenario(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> Scenario:
    """Draw a small group and what it has to wait for. With and without anticipation a seed gives the same scenario."""
    anticipates = check_orderer(orderer, anticipate)
    drawn = _Waits(random.Random(f"{orderer}/{seed}/patience"), orderer)
    drawn.draw()
    rng = drawn.rng
    return Scenario(
        seed=seed,
        orderer=orderer,
        nodes=drawn.names,
        starts_ns=drawn.starts_ns,
        network=drawn.network,
        loss=rng.choice((0.0, 0.0, 0.0, 0.01, 0.05)),
        duplicate=rng.choice((0.0, 0.0, 0.0, 0.02)),
        has_multicast=rng.random() < 0.85,
        anticipate=anticipates,
        recovery=drawn.recovery,
        min_members=drawn.least or "majority",
        loads=tuple(drawn.loads),
        callers=(CALLER,) if any(call.node == CALLER for call in drawn.calls) else (),
        calls=tuple(drawn.calls),
        locks=tuple(sorted(drawn.locks, key=lambda use: use.at_ns)),
        faults=tuple(sorted(drawn.faults, key=lambda fault: fault.at_ns)),
        event_limit=EVENT_LIMIT,
        command=" ".join([COMMAND, str(seed), "--orderer", orderer, *anticipate_flags(anticipate)]),
    )


class _Waits:
    """What a group has to wait for, one thing after the other."""

    __slots__ = (
        "_is_far",
        "_orderer",
        "calls",
        "faults",
        "least",
        "loads",
        "locks",
        "names",
        "network",
        "now_ns",
        "recovery",
        "rng",
        "starts_ns",
    )

    def __init__(self, rng: random.Random, orderer: str) -> None:
        self.rng = rng
        self._orderer = orderer
        self.names = node_names(rng.choice((2, 3, 3, 4, 4, 5)))
        self._is_far = rng.random() < 0.3
        self.network = rng.choice(("far", "distant")) if self._is_far else rng.choice(("lan", "lan", "ideal"))
        # They come together, or each into a group that is at rest.
        gap_ns = rng.choice((0, 20 * MS, 2 * SECOND, 7 * SECOND))
        self.starts_ns = tuple(index * gap_ns for index in range(len(self.names)))
        self.now_ns = FORMED_NS + self.starts_ns[-1] + rng.randrange(2_000) * MS
        self.recovery = "manual" if rng.random() < 0.3 else "automatic"
        self.least = 0  # members that any reset by hand asks for; 0: the usual rule
        self.loads: list[Load] = []
        self.calls: list[CallPlan] = []
        self.locks: list[LockUse] = []
        self.faults: list[Fault] = []

    def draw(self) -> None:
        rng = self.rng
        self._speak()
        kinds: list[Callable[[], None]] = [self._be_idle, self._come_or_go]
        if not self._is_far:
            kinds += [self._cut_long, self._cut_long]
        if self.recovery == "manual":
            kinds += [self._reset_together] * 3
        if ORDERERS[self._orderer].gives_locks:
            kinds += [self._call_a_slow_handler, self._call_a_slow_handler, self._hold_a_lock]
        for _ in range(rng.choice((1, 1, 2, 3))):
            kind = rng.choice(kinds)
            kind()
            self._speak()
            if kind == self._call_a_slow_handler:  # the holder of a handler keeps it for long
                kinds = [each for each in kinds if each != kind]

    # Messages. -------------------------------------------------------------------------------------------------------

    def _speak(self) -> None:
        """Some members say something."""
        rng = self.rng
        for name in rng.sample(self.names, rng.randrange(1, min(3, len(self.names)) + 1)):
            service = rng.choice(("AGREED", *SERVICES[self._orderer]))
            self.loads.append(
                Load(
                    name,
                    rng.choice((1, 3, 6)),
                    "RESILIENT(1)" if service == "RESILIENT" else service,
                    rng.choice((10, 100, 3_000)),
                    self.now_ns + rng.randrange(300) * MS,
                    rng.choice((1, 50, 500)) * MS,
                    is_confirmed=rng.random() < 0.3,
                )
            )
        self.now_ns += rng.randrange(100, 2_000) * MS

    # What takes long. ------------------------------------------------------------------------------------------------

    def _be_idle(self) -> None:
        self.now_ns += self.rng.choice((3, 10, 40, 70)) * SECOND + self.rng.randrange(SECOND)

    def _come_or_go(self) -> None:
        """A member leaves a group at rest, and comes back to it after a while."""
        rng = self.rng
        self._be_idle()
        name = rng.choice(self.names)
        self._add(FaultKind.LEAVE, (name,))
        self.now_ns += rng.choice((1, 4, 20)) * SECOND + rng.randrange(SECOND)
        self._add(FaultKind.REJOIN, (name,))
        self.now_ns += rng.randrange(2_000) * MS

    def _cut_long(self) -> None:
        """A part of the group is away for longer than anybody keeps anything for it."""
        rng = self.rng
        away = rng.sample(self.names, rng.randrange(1, max(2, (len(self.names) + 1) // 2)))
        for_ns = rng.randrange(15, 150) * SECOND
        self._add(rng.choice((FaultKind.PARTITION, FaultKind.PAUSE)), away, for_ns=for_ns)
        self.now_ns += rng.randrange(for_ns)
        if rng.random() < 0.5:
            self._speak()
        if rng.random() < 0.4:
            self._add(FaultKind.LEAVE, (rng.choice(self.names),))
        self.now_ns += rng.choice((0, for_ns))

    def _reset_together(self) -> None:
        """A member crashes. Several of the others call for a new view at once, with different demands."""
        rng, size = self.rng, len(self.names)
        victim = rng.choice(self.names)
        self._add(FaultKind.CRASH, (victim,))
        self.now_ns += rng.choice((1_600, 2_500, 7_000)) * MS + rng.randrange(500) * MS
        for name in self.names:
            if name != victim and rng.random() < 0.7:
                least = rng.randrange(1, size + 1)
                self.least = min(self.least or least, least)
                at_ns = rng.choice((0, 5, 100, 1_000)) * MS
                self._add(FaultKind.RESET, (name,), value=least, delay_ns=rng.randrange(at_ns + 1))
        self.least = self.least or (size // 2 + 1)
        self.now_ns += rng.randrange(1_000, 8_000) * MS
        if rng.random() < 0.6:
            self._add(FaultKind.RESTART, (victim,))
            self.now_ns += rng.randrange(3_000) * MS

    def _hold_a_lock(self) -> None:
        """A lock is held for long while others want it. Its holder may be gone before that."""
        rng = self.rng
        holder, *others = rng.sample(self.names, len(self.names))
        hold_ns = rng.choice((1, 8, 65)) * SECOND
        self.locks.append(LockUse(holder, "x", self.now_ns, hold_ns))
        for name in others:
            self.locks.append(LockUse(name, "x", self.now_ns + rng.randrange(1, 3_000) * MS, rng.randrange(SECOND)))
        if rng.random() < 0.4:
            self._add(FaultKind.CRASH, (holder,), delay_ns=rng.randrange(hold_ns))
        self.now_ns += rng.choice((1, 4)) * SECOND

    def _call_a_slow_handler(self) -> None:
        """Somebody calls a handler that takes long. Replies get lost, views change, and the caller waits for all that.

        RMP section 4.5: a call is carried out once, and it ends.
        """
        rng = self.rng
        holder = rng.choice(self.names)
        answer_ns = rng.choice((0, 100 * MS, 10 * SECOND, 65 * SECOND, 80 * SECOND))
        wait_ns = answer_ns + 150 * SECOND
        self.locks.append(LockUse(holder, "2", self.now_ns, wait_ns, answer_ns))
        self.now_ns += 2 * SECOND
        asker = rng.choice((CALLER, CALLER, rng.choice(self.names)))
        count = rng.choice((1, 1, 3))
        self.calls.append(
            CallPlan(asker, count, "AGREED", 100, self.now_ns, 500 * MS, handler=2, patience_ns=wait_ns + 60 * SECOND)
        )
        answered_ns = self.now_ns + answer_ns
        if asker == CALLER and rng.random() < 0.6:
            # The reply is lost, or the caller is away for so long that members forget it.
            for_ns = rng.choice((500 * MS, 3 * SECOND, 30 * SECOND, 70 * SECOND, 100 * SECOND))
            begin_ns = max(self.now_ns + 200 * MS, answered_ns - rng.randrange(200) * MS)
            self.faults.append(Fault(begin_ns, FaultKind.CUT, self.names, (CALLER,), 0.0, for_ns))
            if rng.random() < 0.5:
                self.faults.append(Fault(begin_ns, FaultKind.CUT, (CALLER,), self.names, 0.0, for_ns))
        others = [name for name in self.names if name != holder]
        if others and rng.random() < 0.7:
            # Views in the meantime, also late ones.
            name = rng.choice(others)
            at_ns = self.now_ns + rng.randrange(answer_ns + 90 * SECOND)
            self.locks.append(LockUse(name, "y", at_ns, rng.randrange(SECOND)))
        if others and rng.random() < 0.3:
            name = rng.choice(others)
            at_ns = self.now_ns + rng.randrange(answer_ns + 90 * SECOND)
            self.faults.append(Fault(at_ns, FaultKind.LEAVE, (name,)))
            self.faults.append(Fault(at_ns + rng.randrange(1, 5) * SECOND, FaultKind.REJOIN, (name,)))
        self.now_ns += rng.choice((0, answer_ns))

    def _add(
        self, kind: FaultKind, nodes: Sequence[str], *, value: float = 0.0, for_ns: int = 0, delay_ns: int = 0
    ) -> None:
        self.faults.append(Fault(self.now_ns + delay_ns, kind, tuple(nodes), (), value, for_ns))
