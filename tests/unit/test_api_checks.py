"""What callers get wrong is said at the call, with what was expected."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.fake_engine import Exchange
from tests.unit.fake_node import FakeNode

from ordercast import Timing, UsageError
from ordercast.api.checks import as_timing, check_group_name
from ordercast.cli.main import main


@pytest.mark.parametrize("name", ["a\nb", "\x00", "tab\there", "bell\x07", "\x7f", "next\x85line", "\x1b[31mred"])
def test_control_characters_in_the_name_of_a_group_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="control character"):
        check_group_name(name)


@pytest.mark.parametrize("name", ["prices", "Ünïcode €", "with space/and:more", "x" * 255])
def test_other_names_are_taken(name: str) -> None:
    check_group_name(name)


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800", 5, None, b"bytes"])
def test_what_cannot_be_a_name_is_refused(name: object) -> None:
    with pytest.raises(UsageError):
        check_group_name(name)


def test_join_and_call_refuse_control_characters() -> None:
    async def program() -> None:
        node = FakeNode("a", Exchange())
        with pytest.raises(UsageError, match="control character"):
            await node.join("a\nb")
        with pytest.raises(UsageError, match="control character"):
            await node.call("a\nb", b"x")
        assert node.groups == []

    asyncio.run(program())


def test_the_command_refuses_such_a_name_before_it_writes_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "archive"
    with pytest.raises(SystemExit) as ended:
        main(["record", "a\nb", "--out", str(folder)])
    assert ended.value.code == 2
    assert "control character" in capsys.readouterr().err
    assert not folder.exists()


def test_a_timing_goes_by_a_name_or_by_its_values_and_what_is_none_is_refused() -> None:
    own = Timing(tries=3)
    assert (as_timing(None), as_timing("usual"), as_timing(own)) == (Timing(), Timing(), own)
    assert as_timing("rmp").retransmit_min_ns < Timing().retransmit_min_ns
    for wrong in (5, "fast", {"beacon_ns": 1}):
        with pytest.raises(UsageError, match=r'timing is an ordercast\.Timing.* or "usual", "rmp"'):
            as_timing(wrong)
