"""`ordercast sim`: one simulated disaster. What it does is in `ordercast.sim.commands`."""

from __future__ import annotations

from ordercast.sim.commands import SIM_HELP as HELP
from ordercast.sim.commands import configure_sim as configure
from ordercast.sim.commands import run_sim as run

EXAMPLES = """examples:
  ordercast sim --nodes 5 --messages 2000 --seed 7
      a quiet run: five members, nothing goes wrong
  ordercast sim --seed 7 --loss 0.05 --duplicate 0.01 --reorder 0.05 --crash 1 --restart 1 --pause 1 --partition 1
      a bad day; the same seed gives the same day again, byte for byte
  ordercast sim --service SAFE --size 1000 --trace /tmp/safe --json
      keep the trace, and print the result for a program
  ordercast sim --scenario-seed 42
      what `ordercast fuzz` did with seed 42
  ordercast sim --orderer timestamp --no-anticipate --senders 3
      the timestamp orderer as plain ABCAST
  ordercast sim --ladder
      what each service costs: latency and throughput of eight members
  ordercast sim --figures --json
      the measurements of the RMP paper on a 10 Mb/s segment, as numbers for a plot"""

__all__ = ["EXAMPLES", "HELP", "configure", "run"]
