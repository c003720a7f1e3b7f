"""Executions to be broken, and the judgement that exactly one property is violated."""

from __future__ import annotations

from tests.unit.trace_builder import Message, World

from ordercast.sim.checkers import Verdict, check_all


def assert_only(world: World, name: str, times: int = 1, **options: object) -> Verdict:
    """Exactly this property is violated, that many times."""
    verdict = check_all(world.rows(), **options)  # type: ignore[arg-type]
    found = {key: result.total for key, result in verdict.properties.items() if result.total}
    assert found == {name: times}, "\n".join(verdict.summary())
    assert not verdict.held
    return verdict


def busy(service: str = "AGREED", *, rounds: int = 3) -> tuple[World, list[Message]]:
    """Three members, each sends in turn, then all go on to a second view and send once more."""
    world = World(*"abc")
    messages = [world.send(sender, "abc", 2, service) for _ in range(rounds) for sender in "abc"]
    world.view(2, "abc")
    messages += [world.send(sender, "abc", 2, service) for sender in "abc"]
    return world, messages
