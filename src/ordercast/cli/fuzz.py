"""`ordercast fuzz`: many simulated disasters. What it does is in `ordercast.sim.commands`."""

from __future__ import annotations

from ordercast.sim.commands import FUZZ_HELP as HELP
from ordercast.sim.commands import configure_fuzz as configure
from ordercast.sim.commands import run_fuzz as run

EXAMPLES = """examples:
  ordercast fuzz --runs 100
      a hundred random disasters, seeds 0 to 99
  ordercast fuzz --runs 2000 --jobs 2
      the same on two processors: the result does not depend on --jobs
  ordercast fuzz --orderer token --runs 100
      the token orderer, with locks, calls from outside and members without multicast
  ordercast fuzz --orderer timestamp --no-anticipate --runs 100
      the timestamp orderer as plain ABCAST; the same seeds have the same disasters with anticipation
  ordercast fuzz --first-seed 5000 --runs 1000 --json
      other seeds, and the failing ones as JSON, each with the command that replays it"""

__all__ = ["EXAMPLES", "HELP", "configure", "run"]
