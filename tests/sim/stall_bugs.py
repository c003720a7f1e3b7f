"""Bugs of what members say when they stand still: each is one mutation. The judge is `sim/checkers/stalled.py`."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

STALL_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a stall is noticed and not told",
        "StallWatch._follow",
        "rows.stalled(now_ns, wait_label(found))",
        "",
        "A group that is stuck is silent.",
        64,
    ),
    Bug(
        "only members that send are watched",
        "StallWatch._work_mark",
        "not sends and not channel.leaving and not self._has_too_few() and channel.engine.is_working",
        "not sends and not channel.leaving and not self._has_too_few()",
        "A member that only listens is in a group that stands still, and hears nothing of it.",
        64,
        "token",
    ),
    Bug(
        "every look is progress",
        "StallWatch._work_mark",
        "return (view.id, tuple(sends), len(channel.leaving), channel.is_leaving)",
        "return (view.id, tuple(sends), len(channel.leaving), object())",
        "Nothing ever stands still for a second.",
        64,
        "token",
    ),
    Bug(
        "a recovery is no reason",
        "waiting_of",
        "if state.recovery is not None:\n    return recovery_waits(state.orderer.view, local.me, state.recovery)",
        "if state.recovery is not None:\n    return None",
        "A group without a quorum waits, and cannot say for which members.",
        64,
    ),
    Bug(
        "a newcomer that nobody lets in knows no reason",
        "waiting_of",
        "if joining is not None:\n    return join_waits(local.name, joining)",
        "if joining is not None:\n    return None",
        "A join that is not answered is a wait without a reason.",
        64,
        "timestamp",
    ),
    Bug(
        "those that answer are called missing",
        "shortfall",
        "missing = names_of([member for member in voters.members if member not in present], known)",
        "missing = names_of([member for member in voters.members if member in present], known)",
        "The operator restarts the members that are alive.",
        64,
        "timestamp",
    ),
    Bug(
        "a silent member's application is blamed",
        "unheard",
        'return no_answer(ring, silent, "not heard for a second or longer") if silent else None',
        "return not_receiving(ring, silent) if silent else None",
        "A crash, or a cut link, looks like a program that does not receive.",
        64,
        "token",
    ),
    Bug(
        "the application of the token site is blamed whatever it says",
        "token_blocked_by",
        "site in rotation.full",
        "site not in rotation.full",
        "A member whose requests do not reach the token site accuses its application.",
        64,
        "token",
    ),
    Bug(
        "a member that waits for the others is blamed for not consuming",
        "SequencerRole.lagging",
        (
            "if self.safe < received:\n    return [], [member for member, row in rows if row.received == self.safe]",
            "self._table[member].is_behind(now_ns)",
        ),
        ("", "True"),
        "SAFE messages that others lack cannot be consumed: their receivers are accused.",
        64,
    ),
    Bug(
        "a member that does not hear what is safe is blamed for not consuming",
        "SequencerRole.lagging",
        "self._table[member].is_behind(now_ns)",
        "True",
        "A member that is heard and hears nobody looks like a program that does not receive.",
        1,
        profile="membership",
        first_seed=1_580_004_340,
    ),
    Bug(
        "what waits for others counts as left by the application",
        "Acknowledger.look",
        "delivery.consumed == delivery.delivered",
        "delivery.consumed == self._log.received",
        "The same, by its own word.",
        1,
        profile="membership",
        first_seed=1_580_004_340,
    ),
    Bug(
        "what an application takes between two looks is not seen",
        "StallWatch.after_pass",
        "self._given.update(now_ns, None)",
        "pass",
        "An application that takes everything at once is blamed for not receiving.",
        1,
        "token",
        "endurance",
        first_seed=2_750_008_526,  # each look has to find something that it has only just been given
    ),
)
