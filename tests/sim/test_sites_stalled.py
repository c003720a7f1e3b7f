"""A view of sites that works and makes no progress says for whom it waits (docs/design/stalled.md)."""

from __future__ import annotations

from ordercast.sim.script import parse_script
from ordercast.sim.transcript import run_script

DEAF = """
nodes a b; orderer sites; datagram 60000; blocks 16
site east a b
until rest
stall b
a send 200 AGREED size 50000
run 2s
b send 5 AGREED
run 6s
unstall b
until rest
"""

CUT = """
nodes a b c d; orderer sites
site east a b; site west c d
pipe all latency 20ms
until rest
cut site west -> east
a send 5 SAFE
run 4s
"""

PAUSED = """
nodes a b c d; orderer sites
site east a b; site west c d
pipe all latency 20ms
until rest
pause b
d send 5 SAFE
run 2s
"""


def said(text: str) -> list[tuple[str, str | None]]:
    """Who was told of which stall, in order."""
    rows = run_script(parse_script(text)).cluster.world.rows()
    return [(row.node, row.detail) for row in rows if row.kind == "stalled" and row.group is None]


def test_a_node_whose_own_application_does_not_receive_says_so() -> None:
    assert said(DEAF) == [("b", "not_receiving: b/0")]


def test_it_names_the_daemons_of_a_site_that_is_not_heard() -> None:
    assert said(CUT)[0] == ("a", "network: c/0, d/0")


def test_it_names_the_daemons_of_a_site_that_does_not_have_everything() -> None:
    """East speaks: one of its daemons stands still."""
    assert said(PAUSED)[0] == ("d", "network: a/0, b/0")
