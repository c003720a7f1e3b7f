"""Bugs of the probes: each lets forged reports exclude a member that lives (docs/design/detector.md).

They are shown by the random scenarios of `ordercast fuzz --profile detector`, in which nothing fails.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.detecting import DETECTOR


def _bug(
    name: str,
    function: str,
    old: str | tuple[str, ...],
    new: str | tuple[str, ...],
    breaks: str,
    bound: int,
    orderer: str = "token",
) -> Bug:
    return Bug(name, function, old, new, breaks, bound, orderer, DETECTOR)


DETECTOR_BUGS: Final[tuple[Bug, ...]] = (
    _bug(
        "one report is enough",
        "Probing.on_report",
        "probed.doubted_ns < 0 or detector.heard_ns(found) > probed.doubted_ns",
        "False",
        "A forger that has seen one probe excludes a member.",
        10,
    ),
    _bug(
        "the nonce of a probe is not looked at",
        "Probing.on_report",
        ("each.address == address and nonce in each.nonces", "sent_ns = probed.nonces[nonce]"),
        ("each.address == address", "sent_ns = probed.nonces.get(nonce, now_ns)"),
        "A forger that has seen no probe excludes every member that was probed.",
        10,
    ),
    _bug(
        "a word does not make a member alive again",
        "Probing.on_report",
        "probed.doubted_ns < 0 or detector.heard_ns(found) > probed.doubted_ns",
        "probed.doubted_ns < 0",
        "A forger that sees a probe now and then excludes a member in the end.",
        10,
        "timestamp",
    ),
    _bug(
        "a probe from before the first report confirms it",
        "Probing.on_report",
        "sent_ns >= probed.doubted_ns and found not in self._gone",
        "found not in self._gone",
        "The same report twice excludes a member.",
        10,
    ),
)
