"""Random scenarios about membership: the profile `membership` of the fuzzer.

Groups are small, and members come, go and come back. Failures are aimed: at the moment of a join or leave, and at the
recovery from the failure before. Few messages are sent, so a run takes some hundredths of a second. A seed gives the
same scenario in every release, as in `chance.py`: the draws never change their order, and what is new draws from a
stream of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from ordercast.config import MS, MinMembers
from ordercast.orderers import ORDERERS
from ordercast.sim.faults import Fault, FaultKind
from ordercast.sim.scenario import (
    SERVICES,
    Load,
    LockUse,
    Scenario,
    anticipate_flags,
    check_orderer,
    node_names,
)

COMMAND: Final = "ordercast sim --profile membership --scenario-seed"
FORMED_NS: Final = 700 * MS  # by then the first members have found one another
EVENT_LIMIT: Final = 300_000  # a run takes some thousand
PEACEFUL_SHARE: Final = 0.15  # of the runs in which nothing fails: there, no recovery may happen
GUARDED_SHARE: Final = 0.8  # of the runs in which a minority crashes at most


def membership_scenario(seed: int, orderer: str = "sequencer", anticipate: bool | None = None) -> Scenario:
    """Draw a small group and what befalls it. With and without anticipation a seed gives the same scenario."""
    anticipates = check_orderer(orderer, anticipate)
    rng = random.Random(f"{orderer}/{seed}/membership")
    names = node_names(rng.choice((2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 6, 7)))
    is_peaceful = rng.random() < PEACEFUL_SHARE
    drawn = _Blows(rng, names, is_peaceful=is_peaceful)
    drawn.draw()
    end_ns = drawn.now_ns + rng.choice((0, 500, 2_000)) * MS
    recovery = "manual" if rng.random() < 0.08 else "automatic"
    min_members, rules = _draw_rules(rng, names)
    return Scenario(
        seed=seed,
        orderer=orderer,
        nodes=names,
        starts_ns=drawn.starts_ns,
        network=rng.choice(("lan", "lan", "ideal")),
        jitter_ns=rng.choice((-1, -1, 200_000, 5 * MS)),
        loss=rng.choice((0.0, 0.0, 0.0, 0.01, 0.05)),
        duplicate=rng.choice((0.0, 0.0, 0.0, 0.02)),
        reorder=rng.choice((0.0, 0.0, 0.0, 0.1)),
        has_multicast=rng.random() < 0.85,
        anticipate=anticipates,
        recovery=recovery,
        min_members=min_members,
        rules=rules if recovery == "automatic" else (),  # a reset by hand has a rule of its own
        loads=_draw_loads(rng, orderer, names, end_ns),
        locks=_draw_locks(rng, names, end_ns) if ORDERERS[orderer].gives_locks and rng.random() < 0.4 else (),
        faults=tuple(sorted(drawn.faults, key=lambda fault: fault.at_ns)),
        event_limit=EVENT_LIMIT,
        command=" ".join([COMMAND, str(seed), "--orderer", orderer, *anticipate_flags(anticipate)]),
    )


class _Blows:
    """What befalls a group, one blow after the other, most of them aimed at what the one before began."""

    __slots__ = ("_crashes", "_inside", "_names", "_outside", "_peaceful", "_rng", "faults", "now_ns", "starts_ns")

    def __init__(self, rng: random.Random, names: Sequence[str], *, is_peaceful: bool) -> None:
        self._rng = rng
        self._names = names
        self._peaceful = is_peaceful
        self._crashes = max(1, (len(names) - 1) // 2) if rng.random() < GUARDED_SHARE else len(names)
        # Some nodes come later, but the group begins with two if there are more.
        later = rng.randrange(0, len(names) - 1) if rng.random() < 0.6 else 0
        first = len(names) - later
        self._inside = list(names[:first])
        self._outside = [(name, FaultKind.JOIN) for name in names[first:]]
        # One after the other, so that the first named is mostly the first member.
        gap_ns = rng.choice((0, 5, 20)) * MS
        self.starts_ns = tuple(index * gap_ns if index < first else -1 for index in range(len(names)))
        self.now_ns = FORMED_NS + rng.randrange(300) * MS
        self.faults: list[Fault] = []

    def draw(self) -> None:
        rng = self._rng
        for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 5))):
            dice = rng.random()
            if self._peaceful or dice < 0.3:
                self._change()
            elif dice < 0.6:
                self._fail()
            else:
                rng.choice((self._split_a_change, self._crash_at_a_change, self._fail_in_a_recovery))()
            self.now_ns += self._pause_ns()

    def _pause_ns(self) -> int:
        """Until the next blow: in the same exchange, within what follows, or in the recovery. Silence is noticed after
        1.3 s of work or 5 s of rest; invitations and results follow within half a second."""
        rng = self._rng
        dice = rng.random()
        if dice < 0.35:
            return rng.randrange(20_000) * 1_000
        if dice < 0.55:
            return rng.randrange(20, 300) * MS
        if dice < 0.85:
            return rng.choice((1_200, 1_300, 1_300, 1_400)) * MS + rng.randrange(500 * MS)
        return rng.randrange(300, 6_000) * MS

    # Changes. --------------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        rng = self._rng
        dice = rng.random()
        if self._peaceful and dice < 0.15:
            self._add(FaultKind.PAUSE, (rng.choice(self._names),), for_ns=rng.randrange(1, 60) * MS)
        elif self._outside and (dice < 0.6 or len(self._inside) < 2):
            self._join()
        elif self._inside:
            self._leave()

    def _join(self) -> None:
        """Mostly it stays. Some cancel, and some of those that failures are aimed at never get their welcome."""
        rng = self._rng
        name, kind = self._outside.pop(rng.randrange(len(self._outside)))
        self._add(kind, (name,))
        if rng.random() < 0.4:
            delay_ns = rng.choice((1, 20, 100, 400, 1_500)) * MS
            self._add(FaultKind.LEAVE, (name,), delay_ns=rng.randrange(delay_ns))
            self._outside.append((name, FaultKind.REJOIN))
        else:
            self._inside.append(name)
        if not self._peaceful and rng.random() < 0.35 and self._inside:
            self._cut((rng.choice(self._inside),), (name,), delay_ns=rng.randrange(60 * MS))

    def _leave(self) -> None:
        rng = self._rng
        # The first member more often than others: it decides ties, and is the sequencer.
        name = self._inside[0] if rng.random() < 0.4 else rng.choice(self._inside)
        self._inside.remove(name)
        self._add(FaultKind.LEAVE, (name,))
        if rng.random() < 0.3:
            self._add(FaultKind.REJOIN, (name,), delay_ns=rng.randrange(rng.choice((10, 300, 3_000)) * MS))
            self._inside.append(name)
        else:
            self._outside.append((name, FaultKind.REJOIN))
        if not self._peaceful and rng.random() < 0.4:
            others = [each for each in self._names if each != name]
            ends = ((name,), tuple(rng.sample(others, rng.randrange(1, len(others) + 1))))
            self._cut(*(ends if rng.random() < 0.5 else ends[::-1]), delay_ns=rng.randrange(20 * MS))

    # Patterns: what breaks a protocol of membership takes several blows at the right times. --------------------------

    def _split_a_change(self) -> None:
        """Some hear of a join or leave and some do not, and then the two parts lose each other."""
        rng = self._rng
        side = rng.sample(self._names, max(1, len(self._names) // 2 - rng.choice((0, 0, 1))))
        rest = [name for name in self._names if name not in side]
        ends = (side, rest) if rng.random() < 0.5 else (rest, side)
        if rest and rng.random() < 0.8:
            self._add(FaultKind.CUT, *ends, for_ns=rng.randrange(10, 3_000) * MS)
        self.now_ns += rng.randrange(5_000) * 1_000
        self._change()
        self.now_ns += rng.randrange(60_000) * 1_000
        self._add(FaultKind.PARTITION, side, for_ns=rng.randrange(1_300, 8_000) * MS)

    def _crash_at_a_change(self) -> None:
        """A member does not hear the one that orders, somebody joins or leaves, and the one that orders crashes."""
        rng = self._rng
        if not self._inside or not self._crashes:
            self._fail()
            return
        first = self._inside[0] if rng.random() < 0.7 else rng.choice(self._inside)
        others = [name for name in self._names if name != first]
        deaf = rng.sample(others, rng.randrange(1, min(2, len(others)) + 1))
        self._add(FaultKind.CUT, (first,), deaf, for_ns=rng.randrange(50, 2_500) * MS)
        self.now_ns += rng.randrange(20_000) * 1_000
        self._change()
        self.now_ns += rng.choice((2, 30, 400)) * rng.randrange(1_000) * 1_000
        if first in self._inside:
            self._crash(first)

    def _fail_in_a_recovery(self) -> None:
        """Some members are away until they are suspected, and the next failure meets the recovery from that."""
        rng = self._rng
        away = rng.sample(self._names, rng.randrange(1, max(2, len(self._names) // 2 + 1)))
        lasting_ns = rng.randrange(1_300, 5_000) * MS
        if rng.random() < 0.7:
            self._add(FaultKind.PARTITION, away, for_ns=lasting_ns)
        else:
            self._add(FaultKind.PAUSE, away, for_ns=lasting_ns)
        if rng.random() < 0.4:
            self.now_ns += rng.randrange(5_000) * 1_000
            self._change()
        self.now_ns += rng.randrange(1_250_000, 1_900_000) * 1_000
        there = [name for name in self._inside if name not in away]
        if there and self._crashes and rng.random() < 0.5:
            self._crash(rng.choice(there))
        else:
            sources = rng.sample(self._names, rng.randrange(1, len(self._names)))
            targets = [name for name in self._names if name not in sources]
            self._cut(sources, targets)

    # Failures. -------------------------------------------------------------------------------------------------------

    def _fail(self) -> None:
        rng, names = self._rng, self._names
        dice = rng.random()
        if dice < 0.25 and self._crashes and self._inside:
            self._crash(self._inside[0] if rng.random() < 0.3 else rng.choice(self._inside))
        elif dice < 0.6:
            sources = rng.sample(names, rng.randrange(1, len(names)))
            targets = [name for name in names if name not in sources]
            if rng.random() < 0.5:
                targets = rng.sample(targets, rng.randrange(1, len(targets) + 1))
            self._cut(sources, targets)
        elif dice < 0.8:
            self._add(FaultKind.PARTITION, rng.sample(names, rng.randrange(1, len(names))), for_ns=self._lasting_ns())
        elif dice < 0.95:
            self._add(FaultKind.PAUSE, (rng.choice(names),), for_ns=self._lasting_ns())
        else:
            lost = rng.choice((0.3, 0.7))
            self._add(FaultKind.LOSSY, (rng.choice(names),), value=lost, for_ns=self._lasting_ns())

    def _crash(self, name: str) -> None:
        rng = self._rng
        self._inside.remove(name)
        self._add(FaultKind.CRASH, (name,))
        if rng.random() < 0.4:
            self._add(FaultKind.RESTART, (name,), delay_ns=rng.randrange(rng.choice((50, 1_500, 4_000)) * MS))
            self._inside.append(name)
        else:
            self._crashes -= 1
            self._outside.append((name, FaultKind.RESTART))

    def _cut(self, sources: Sequence[str], targets: Sequence[str], *, delay_ns: int = 0) -> None:
        for_ns = self._lasting_ns()
        others = [name for name in targets if name not in sources]
        if others:
            self._add(FaultKind.CUT, sources, others, for_ns=for_ns, delay_ns=delay_ns)

    def _lasting_ns(self) -> int:
        """From a few lost datagrams to more than a suspicion and its recovery."""
        rng = self._rng
        return rng.randrange(*rng.choice(((5, 100), (100, 1_300), (1_300, 3_000), (1_300, 3_000), (3_000, 7_000)))) * MS

    def _add(
        self,
        kind: str,
        nodes: Sequence[str],
        others: Sequence[str] = (),
        *,
        value: float = 0.0,
        for_ns: int = 0,
        delay_ns: int = 0,
    ) -> None:
        self.faults.append(Fault(self.now_ns + delay_ns, kind, tuple(nodes), tuple(others), value, for_ns))


def _draw_rules(rng: random.Random, names: Sequence[str]) -> tuple[MinMembers, tuple[MinMembers, ...]]:
    """One rule for all, or one for each node."""
    dice = rng.random()
    if dice < 0.6:
        return "majority", ()
    if dice < 0.7:
        return "all", ()
    if dice < 0.85:
        return rng.randrange(1, len(names) + 1), ()
    return "majority", tuple(rng.choice(("majority", "majority", 1, 2, "all")) for _ in names)


def _draw_loads(rng: random.Random, orderer: str, names: Sequence[str], end_ns: int) -> tuple[Load, ...]:
    """Few messages: enough for members to be busy, to lack something, and to have something confirmed."""
    loads = []
    for name in rng.sample(names, rng.randrange(1, min(3, len(names)) + 1)):
        count = rng.choice((1, 3, 6, 10))
        service = rng.choice(("AGREED", "AGREED", *SERVICES[orderer]))
        start_ns = FORMED_NS + rng.randrange(500) * MS
        loads.append(
            Load(
                name,
                count,
                "RESILIENT(1)" if service == "RESILIENT" else service,
                rng.choice((10, 100, 100, 3_000)),
                start_ns,
                max(1, (end_ns - start_ns) // count),
                is_confirmed=rng.random() < 0.3,
            )
        )
    return tuple(loads)


def _draw_locks(rng: random.Random, names: Sequence[str], end_ns: int) -> tuple[LockUse, ...]:
    return tuple(
        LockUse(
            rng.choice(names),
            rng.choice(("x", "2")),
            rng.randrange(FORMED_NS, max(end_ns, FORMED_NS + 1)),
            rng.randrange(rng.choice((5, 500, 2_000)) * MS),
        )
        for _ in range(rng.choice((1, 2, 4)))
    )
