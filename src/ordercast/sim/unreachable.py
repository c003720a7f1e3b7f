"""What the kernel of a machine says about a process that is gone, in virtual time (docs/design/detector.md).

A unicast to a crashed process on a living machine comes back as ICMP "port unreachable": after the latency of the
link, unless it is lost. A machine that is dead says nothing. As on Linux, a machine sends another few reports at once
and then one a second, whatever they are about; only the socket that probes leave by has an error queue to find them in.

A forger sends reports that are not true. This one hears every multicast of a group, so that it knows addresses, tag and
ring. It sees no unicast, or now and then one: then it knows the nonce of one probe.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from ordercast.config import SECOND
from ordercast.engine import To
from ordercast.sim.datagrams import KIND_OFFSET, Train
from ordercast.sim.network import Network
from ordercast.view import Address
from ordercast.wire.header import HEADER, HEADER_BYTES, Kind

QUOTED_BYTES: Final = 548  # of a datagram that a report gives back: 576 bytes less the headers of IP and UDP
BURST: Final = 6  # reports to one machine that another has saved up
PAUSE_NS: Final = 1 * SECOND  # in which it saves up one


class Report(NamedTuple):
    """No process listens at `address`, says somebody."""

    address: Address
    quoted: bytes


class Reports:
    """What machines say about processes that are gone, and what forgers say."""

    __slots__ = ("_network", "_rng", "_saved", "forged", "overheard", "sent")

    def __init__(self, network: Network, rng: random.Random) -> None:
        self._network = network
        self._rng = rng
        self._saved: dict[tuple[str, str], tuple[int, int]] = {}  # (from, to) -> reports left, as of when
        self.sent = 0
        self.forged = 0
        # By a forger: the last multicast of each machine (to `To.ALL`), and its last probe to each address.
        self.overheard: dict[tuple[str, Address], bytes] = {}

    def answer(self, now_ns: int, dead: str, address: Address, batch: Train) -> list[tuple[int, Report]]:
        """Datagrams have come to a machine whose process is gone: the reports, with the time of each."""
        found: list[tuple[int, Report]] = []
        stride = batch.stride or len(batch.data)
        for index in range(batch.datagrams):
            if not self._may_send(now_ns, dead, batch.source):
                break
            self.sent += 1
            at_ns = self._network.report_ns(now_ns, dead, batch.source, self._rng)
            quoted = batch.data[index * stride : index * stride + min(stride, QUOTED_BYTES)]
            if at_ns >= 0 and len(quoted) > HEADER_BYTES and quoted[KIND_OFFSET] == Kind.PROBE:
                found.append((at_ns, Report(address, quoted)))
        return found

    def forge(self, deceived: str, address: Address, has_seen: bool = False) -> list[Report]:
        """Reports to a node about a living member, by a forger that has heard a multicast of that node. `has_seen`: and
        its last probe to that member."""
        self.forged += 1
        heard = self.overheard.get((deceived, To.ALL), b"")
        probe = self.overheard.get((deceived, address), b"") if has_seen else b""
        if len(heard) < HEADER_BYTES:
            return []
        magic, _, _, _, tag, ring, origin, number = HEADER.unpack_from(heard)
        head = HEADER.pack(magic, Kind.PROBE, 0, 0, tag, ring, origin, number)
        nonces = [self._rng.randbytes(8) for _ in range(2)]
        seen = [probe, probe] if probe else []
        quoted = [heard[:QUOTED_BYTES], *(head + nonce for nonce in nonces), *seen]
        return [Report(address, each) for each in quoted]

    def _may_send(self, now_ns: int, dead: str, source: str) -> bool:
        left, since_ns = self._saved.get((dead, source), (BURST, now_ns))
        earned = (now_ns - since_ns) // PAUSE_NS
        left, since_ns = min(left + earned, BURST), since_ns + earned * PAUSE_NS
        self._saved[dead, source] = (max(left - 1, 0), since_ns)
        return left > 0
