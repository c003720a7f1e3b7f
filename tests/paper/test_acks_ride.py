"""Left out: fails until a request counts as an acknowledgement for the quiet timer."""

import asyncio

from tests.paper.group import Lab, in_lab

from ordercast.config import MS, SECOND, Timing


def test_acknowledgements_ride_on_requests() -> None:
    """Section 4.1: "all messages to the sequencer carry piggybacked acknowledgements": who sends need not say more."""

    async def program(lab: Lab) -> None:
        timing = Timing(ack_quiet_ns=30 * MS, heartbeat_busy_ns=10 * SECOND, suspect_busy_ns=100 * SECOND)
        groups = await lab.form(3, timing=timing)
        quiet, busy = groups[2].stats["sent.ack"], groups[1].stats["sent.ack"]
        for _ in range(50):
            await groups[1].send(b"m", confirm=True)
            await asyncio.sleep(0.01)
        assert groups[2].stats["sent.ack"] - quiet > 10
        assert groups[1].stats["sent.ack"] - busy <= 1

    in_lab(program)
