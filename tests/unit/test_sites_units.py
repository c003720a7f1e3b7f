"""Rates, sizes, times and shares as people write them; and on which line of a TOML text a key stands."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.sites.lines import KeyLines, KeyPath
from ordercast.sites.units import parse_bytes, parse_duration, parse_rate, parse_share


@pytest.mark.parametrize(
    ("parse", "value", "result"),
    [
        (parse_rate, "2Mbit", 2_000_000),
        (parse_rate, "2.5 Mbit", 2_500_000),
        (parse_rate, "2Mbit/s", 2_000_000),
        (parse_rate, "250kB/s", 2_000_000),
        (parse_rate, "1KiB/s", 8_192),
        (parse_rate, "9600bit", 9_600),
        (parse_bytes, 65_536, 65_536),
        (parse_bytes, "64kB", 64_000),
        (parse_bytes, "64KiB", 65_536),
        (parse_bytes, "1.5MB", 1_500_000),
        (parse_bytes, 0, 0),
        (parse_duration, "35ms", 35_000_000),
        (parse_duration, "1.5s", 1_500_000_000),
        (parse_duration, "0.1us", 100),
        (parse_duration, 0, 0),
        (parse_share, 0.05, 0.05),
        (parse_share, "5%", 0.05),
        (parse_share, "0.1%", 0.001),
        (parse_share, 0, 0.0),
    ],
)
def test_what_people_write_is_read(parse: Callable[[object], Any], value: object, result: object) -> None:
    assert parse(value) == result


@pytest.mark.parametrize(
    ("parse", "value"),
    [
        (parse_rate, 2_000_000),
        (parse_rate, "2"),
        (parse_rate, "2Mb"),
        (parse_rate, "2mbit"),
        (parse_rate, "-2Mbit"),
        (parse_rate, "2e3Mbit"),
        (parse_rate, "1" * 19 + "bit"),
        (parse_rate, "٣Mbit"),
        (parse_rate, None),
        (parse_bytes, -1),
        (parse_bytes, True),
        (parse_bytes, "64"),
        (parse_bytes, "64kbit"),
        (parse_bytes, "64kB/s"),
        (parse_bytes, 6.4),
        (parse_duration, 35),
        (parse_duration, "35"),
        (parse_duration, "35 minutes"),
        (parse_duration, "35ms/s"),
        (parse_duration, False),
        (parse_share, 1),
        (parse_share, -0.1),
        (parse_share, "100%"),
        (parse_share, "5"),
        (parse_share, True),
        (parse_share, float("nan")),
    ],
)
def test_what_cannot_be_read_says_what_to_write(parse: Callable[[object], Any], value: object) -> None:
    with pytest.raises(ValueError, match="write"):
        parse(value)


TRICKY = '''\
# [not.a.table]
top = 1
text = """
[site]
name = "no"
\\""" = 2
"""
raw = \'\'\'
[[site]] # none
\'\'\'
list = [ # [[x]]
  "a = [", "]",
  2,
]
table = { a = 1, b = "}" }
[defaults]
"quoted key" = 1
dotted.key = 2
[[site]]
name = "east # no comment"
  [site.more]
  deep = 1
[[site]]
name = 'west'
[a . b]
c = """ends at once"""
d = 1
'''


def test_keys_of_a_tricky_text_have_their_lines() -> None:
    lines = KeyLines(TRICKY)
    tomllib.loads(TRICKY)
    found: dict[KeyPath, int] = {
        ("top",): 2,
        ("text",): 3,
        ("raw",): 8,
        ("list",): 11,
        ("table",): 15,
        ("defaults",): 16,
        ("defaults", "quoted key"): 17,
        ("defaults", "dotted"): 18,
        ("defaults", "dotted", "key"): 18,
        ("site",): 19,
        ("site", 0): 19,
        ("site", 0, "name"): 20,
        ("site", 0, "more"): 21,
        ("site", 0, "more", "deep"): 22,
        ("site", 1): 23,
        ("site", 1, "name"): 24,
        ("a", "b"): 25,
        ("a", "b", "c"): 26,
        ("a", "b", "d"): 27,
    }
    assert {path: lines.of(path) for path in found} == found


def test_what_is_inside_a_value_has_the_line_of_the_value() -> None:
    lines = KeyLines(TRICKY)
    assert lines.of(("table", "b")) == 15
    assert lines.of(("list", 1)) == 11


def test_what_is_not_there_has_the_line_of_the_table_around_it() -> None:
    lines = KeyLines(TRICKY)
    assert lines.of(("site", 1, "multicast")) == 23
    assert lines.of(("nowhere", "at all")) == 1
    assert lines.of(()) == 1


_NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=4)
_VALUES = st.one_of(
    st.integers(-9, 9).map(str),
    st.text(string.ascii_letters + " #[]={}'", max_size=8).map(lambda text: f'"{text}"'),
    st.text(string.ascii_letters + ' #[]={}"', max_size=8).map(lambda text: f"'{text}'"),
    st.text(string.ascii_letters + "\n#[]={} ", max_size=12).map(lambda text: f'"""{text}"""'),
    st.lists(st.sampled_from(["1", '"]"', "'['", "# [\n2"]), max_size=4).map(
        lambda items: "[" + ",\n".join(items) + "\n]"
    ),
)
_TABLES = st.lists(st.tuples(_NAMES, st.dictionaries(_NAMES, _VALUES, max_size=4)), max_size=6)


@given(_TABLES)
def test_every_key_that_tomllib_finds_has_the_line_on_which_it_was_written(
    tables: list[tuple[str, dict[str, str]]],
) -> None:
    """Arrays of tables with values of all kinds, written while their lines are counted."""
    text, wanted, counts = "", dict[KeyPath, int](), dict[str, int]()
    for name, values in tables:
        index = counts[name] = counts.get(name, -1) + 1
        wanted[name, index] = text.count("\n") + 1
        text += f"[[{name}]]\n"
        for key, value in values.items():
            wanted[name, index, key] = text.count("\n") + 1
            text += f"{key} = {value}\n"
    tomllib.loads(text)
    lines = KeyLines(text)
    assert {path: lines.of(path) for path in wanted} == wanted
