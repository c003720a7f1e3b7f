"""Files and classes stay small, the core slotted and flat, and a name stands for one class.

`python -m tests.tidy.limits` names what is above the limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from tests.tidy import limits

# measure -> (how it is measured, the goal)
GOALS: Final[dict[str, tuple[Callable[[], int], int]]] = {
    "lines of the longest file": (lambda: max(limits.lines().values()), limits.MAX_LINES),
    "files above 600 lines": (lambda: len(limits.too_long()), 0),
    "fields of the widest class": (lambda: max(limits.too_wide().values(), default=0), limits.MAX_FIELDS),
    "classes above 25 fields": (lambda: len(limits.too_wide()), 0),
    "classes of the deepest inheritance in the core": (
        lambda: max(limits.too_deep().values(), default=0),
        limits.MAX_DEPTH,
    ),
    "classes of the core deeper than 2": (lambda: len(limits.too_deep()), 0),
    "classes of the core without slots": (lambda: len(limits.without_slots()), 0),
    "names of three classes or more": (lambda: sum(len(files) > 2 for files in limits.shared_names().values()), 0),
    "names of two classes": (lambda: sum(len(files) == 2 for files in limits.shared_names().values()), 0),
}


@pytest.mark.parametrize("measure", GOALS)
def test_nothing_grows_beyond_its_limit(measure: str) -> None:
    measured, goal = GOALS[measure]
    assert measured() <= goal, f"{measure}: see python -m tests.tidy.limits"
