"""Scenarios as JSON text, for `ordercast sim --save` and `--scenario`."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any, Final

from ordercast.errors import UsageError
from ordercast.sim.faults import Fault
from ordercast.sim.scenario import CallPlan, Load, LockUse, Scenario
from ordercast.sim.topology import topology_from_json

_TUPLES: Final = ("nodes", "starts_ns", "take_delays_ns", "rules", "without_multicast", "callers", "folders")
"""Fields that are plain tuples: JSON has lists only."""

_FORMER: Final = {"deaf": "without_multicast"}
"""Fields that had another name in files of earlier releases."""


_LATER: Final = ("folders",)
"""Fields that files of earlier releases do not have: left out where they are empty, so that a scenario of then is
written as it was."""


def scenario_values(scenario: Scenario) -> dict[str, Any]:
    """Every field, of plain types. The topology is left out where there is none: runs of then keep their names."""
    values = asdict(scenario)
    del values["topology"]
    return values if scenario.topology is None else {**values, "topology": scenario.topology.as_json()}


def scenario_to_json(scenario: Scenario) -> str:
    """One line of text with every field."""
    values = scenario_values(scenario)
    return json.dumps({name: values[name] for name in values if name not in _LATER or values[name]}, sort_keys=True)


def scenario_from_json(text: str) -> Scenario:
    """Read what `scenario_to_json` wrote; `UsageError` names what does not belong there."""
    try:
        values: dict[str, Any] = json.loads(text)
        if not isinstance(values, dict):
            raise UsageError("a scenario is a JSON object")
        for former, name in _FORMER.items():
            if former in values:
                values.setdefault(name, values.pop(former))
        unknown = sorted(values.keys() - {field.name for field in fields(Scenario)})
        if unknown:
            raise UsageError(f"a scenario has no {', '.join(unknown)}")
        for name in _TUPLES:
            if name in values:
                values[name] = tuple(values[name])
        if values.get("topology") is not None:
            values["topology"] = topology_from_json(values["topology"])
        if "timing" in values:
            values["timing"] = tuple((str(name), float(factor)) for name, factor in values["timing"])
        if "loads" in values:
            values["loads"] = tuple(Load(**load) for load in values["loads"])
        if "calls" in values:
            values["calls"] = tuple(CallPlan(**call) for call in values["calls"])
        if "locks" in values:
            values["locks"] = tuple(LockUse(**use) for use in values["locks"])
        if "faults" in values:
            values["faults"] = tuple(
                Fault(**{**fault, "nodes": tuple(fault["nodes"]), "others": tuple(fault.get("others", ()))})
                for fault in values["faults"]
            )
        return Scenario(**values)
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        raise UsageError(f"this is no scenario: {error}") from error
