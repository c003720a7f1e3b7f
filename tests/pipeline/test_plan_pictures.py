"""The pictures of a plan: where their axes end, who stands beside whom, who moves."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from ordercast.pipeline.regions.pictures import MOST_BARS, chain, changes_chart, ticks


def test_axes_end_at_round_numbers() -> None:
    assert ticks(7, least=1) == [0, 2, 4, 6, 8]
    assert ticks(1, least=1) == [0, 1]
    assert ticks(5, least=1) == [0, 1, 2, 3, 4, 5]
    assert ticks(384, least=1) == [0, 100, 200, 300, 400]
    assert ticks(0.178) == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    for high in (0.01, 0.3, 3, 99, 1_000, 123_456):
        found = ticks(high)
        assert found[-2] < high <= found[-1] * (1 + 1e-9)
        assert 3 <= len(found) <= 7


def test_regions_that_are_alike_are_neighbours() -> None:
    kinds = [0, 1, 2, 0, 1, 2, 0]
    overlap = np.array([[0.9 if one == other else 0.1 for other in kinds] for one in kinds])
    assert [kinds[place] for place in chain(overlap)] == [0, 0, 0, 1, 1, 2, 2]
    assert chain(np.zeros((0, 0))) == []


def test_moves_are_bars_of_the_regions_with_most_of_them() -> None:
    drawn = changes_chart([(1, 2, 30), (1, 3, 5), (2, 3, 1)])
    assert drawn.count('class="move"') == 4  # 1 loses; 2 loses and gets; 3 gets
    assert "35 nodes leave region 1" in drawn
    assert "30 nodes come to region 2" in drawn
    assert drawn.index("region 1<") < drawn.index("region 2<") < drawn.index("region 3<")
    many = changes_chart([(place, place + 1, 1) for place in range(2 * MOST_BARS)])
    assert f"{MOST_BARS + 1} regions with fewer moves are not shown" in many
