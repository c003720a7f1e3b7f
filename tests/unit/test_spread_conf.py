"""`spread.conf` of versions 4 and 5: what it becomes, what is passed over, and what the errors say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.errors import UsageError
from ordercast.sites import DaemonSpec, Site
from ordercast.sites.spread_conf import SpreadConf, parse_spread_conf

FOUR = """\
# Two networks
Spread_Segment  10.1.255.255:4913 {
    ann     10.1.0.1
    bob     10.1.0.2 {
        D 192.168.0.2
        C 10.1.0.2
        C 0.0.0.0
        M 10.1.0.2
    }
}
Spread_Segment 239.192.7.1 {
    cec.example.org
    10.2.0.9
}
DebugFlags = { PRINT EXIT }
EventLogFile = "/var/log/spread_%h.log"
EventTimeStamp
MaxSessionMessages = 500
AllowedAuthMethods = "NULL IP"
Window = 120
PersonalWindow = 15
"""

FIVE = """\
ActiveIPVersion = IPv4
Spread_Segment 127.0.0.255:4803 10.9.255.255 {
    a 127.0.0.1 VirtualID = 7;
    b 127.0.0.2 VirtualID = 8 { D 127.0.0.2 C 127.0.0.3 } ;
    c 127.0.0.4;
}
RequiredAuthMethods = 'IP'
AcceleratedRing = TRUE
TokenTimeout = 500
BrandNewThing = { a { b } c }
AnotherThing = 7 8
"""


def parse(text: str) -> SpreadConf:
    return parse_spread_conf(text, "spread.conf")


def test_segments_of_version_4_become_sites() -> None:
    conf = parse(FOUR)
    assert conf.sites.sites == (
        Site("segment1", 0, None, 120, 15),
        Site("segment2", 1, ("239.192.7.1", 4804), 120, 15),
    )
    assert conf.sites.daemons == (
        DaemonSpec("ann", "segment1", "10.1.0.1", 4913),
        DaemonSpec("bob", "segment1", "192.168.0.2", 4913),
        DaemonSpec("cec.example.org", "segment2", "cec.example.org", 4803),
        DaemonSpec("10.2.0.9", "segment2", "10.2.0.9", 4803),
    )
    assert conf.client_hosts == {"bob": ("10.1.0.2", "0.0.0.0")}
    assert conf.allowed_methods == ("NULL", "IP")
    assert conf.required_methods == ()
    assert conf.max_session_messages == 500
    assert conf.warnings == (
        "spread.conf:15: DebugFlags has no effect: use --log of the daemon",
        "spread.conf:16: EventLogFile has no effect: redirect the daemon's output",
        "spread.conf:17: EventTimeStamp has no effect: log lines have the time already",
    )


def test_the_form_of_version_5_is_read() -> None:
    conf = parse(FIVE)
    assert [(daemon.name, daemon.host) for daemon in conf.sites.daemons] == [
        ("a", "127.0.0.1"),
        ("b", "127.0.0.2"),
        ("c", "127.0.0.4"),
    ]
    assert (conf.allowed_methods, conf.required_methods) == ((), ("IP",))
    assert conf.client_hosts == {"b": ("127.0.0.3",)}
    assert conf.warnings == (
        "spread.conf:2: only 127.0.0.255 of 2 addresses of the segment is used",
        "spread.conf:8: AcceleratedRing has no effect: it belongs to Spread's own ring",
        "spread.conf:9: TokenTimeout has no effect: failures are detected by measured round trips",
        "spread.conf:10: BrandNewThing is not known, and passed over",
        "spread.conf:11: AnotherThing is not known, and passed over",
    )


def test_what_is_not_said_is_as_spread_has_it() -> None:
    conf = parse("Spread_Segment 127.0.0.255 { lochost 127.0.0.1 }")
    assert conf.allowed_methods == ("NULL",)
    assert conf.max_session_messages == 1000
    assert conf.sites.daemons == (DaemonSpec("lochost", "segment1", "127.0.0.1", 4803),)
    assert conf.warnings == ()


def test_a_long_name_is_cut_as_spread_cuts_it() -> None:
    conf = parse("Spread_Segment 127.0.0.255 { abcdefghijklmnopqrstuvwxyz 127.0.0.1 }")
    assert conf.sites.daemons[0].name == "abcdefghijklmnopqrs"
    assert conf.warnings[0].startswith("spread.conf:1: the daemon 'abcdefghijklmnopqrstuvwxyz' is called")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "spread.conf:1: there is no Spread_Segment"),
        ("# nothing\n", "spread.conf:1: there is no Spread_Segment"),
        ("Spread_Segment 127.0.0.255 {\n}\n", "spread.conf:1: site segment1 has no daemons"),
        ("Spread_Segment {\n a 127.0.0.1\n}", "spread.conf:1: a Spread_Segment needs an address"),
        ("Spread_Segment 127.0.0.255 {\n a 127.0.0.1\n", "spread.conf:1: the brace of this Spread_Segment"),
        ("Spread_Segment 127.0.0.255\n", "spread.conf:1: a Spread_Segment needs an address and its daemons"),
        ("Spread_Segment 300.0.0.255 { a 127.0.0.1 }", "spread.conf:1: an address is written as"),
        ("Spread_Segment 127.0.0.255:99999 { a 127.0.0.1 }", "spread.conf:1: a port is a whole number"),
        ("\nSpread_Segment [ff02::1]:4803 { a 127.0.0.1 }", "spread.conf:2: '[ff02::1]:4803' is an IPv6 address"),
        ("Spread_Segment 1.2.3.255 {\n a 1.2.3.4\n a 1.2.3.5\n}", "spread.conf:3: there are two daemons 'a'"),
        ("Spread_Segment 1.2.3.255 {\n a 1.2.3.4\n b 1.2.3.4\n}", "spread.conf:3: 1.2.3.4:4803 is the address"),
        ("Spread_Segment 1.2.3.255 {\n a!b 1.2.3.4\n}", "spread.conf:2: 'a!b' is no name of a daemon"),
        ("Spread_Segment 1.2.3.255 {\n a 1.2.3.4 { D\n", "spread.conf:3: an address is written as"),
        ("Spread_Segment 1.2.3.255 {\n a 1.2.3.4 { D 1.2.3.4\n", "spread.conf:2: the brace of the interfaces of a"),
        ("Spread_Segment 1.2.3.255 {\n = 1.2.3.4\n}", "spread.conf:2: a daemon is written as its name"),
        ("RequiredAuthMethods = PWORD\n", "spread.conf:1: there is no authentication method 'PWORD'"),
        ("\nAccessControlPolicy = DENY\n", "spread.conf:2: there is no access policy 'DENY'"),
        ("MaxSessionMessages = many\n", "spread.conf:1: MaxSessionMessages is a whole number"),
        ("MaxSessionMessages\n", "spread.conf:2: MaxSessionMessages needs '='"),
        ("MaxSessionMessages =", "spread.conf:1: MaxSessionMessages has no value"),
        ("Window = 10\nPersonalWindow = 11\nSpread_Segment 1.2.3.255 { a }", "spread.conf:2: PersonalWindow is 11"),
        ("ActiveIPVersion = IPv6\n", "spread.conf:1: ActiveIPVersion is 'IPv6'"),
        ("EventLogFile = \"half\n", "spread.conf:1: a text that begins with"),
        ("}\n", "spread.conf:1: '}' is no key"),
        ("Thing = {\n a\n", "spread.conf:1: the brace that opens here is never closed"),
        ("Thing = }\n", "spread.conf:1: there is nothing that this brace closes"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_file_and_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    assert str(raised.value).startswith(complaint)


def test_a_password_that_is_only_allowed_is_a_warning() -> None:
    conf = parse("AllowedAuthMethods = NULL PWORD\nSpread_Segment 1.2.3.255 { a 1.2.3.4 }")
    assert conf.allowed_methods == ("NULL",)
    assert "no authentication method 'PWORD'" in conf.warnings[0]


WORDS = st.sampled_from([*FOUR.split(), *FIVE.split(), "\n", "{", "}", "=", ";", "#", '"', "[::1]", "0.0.0.0"])


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=40).map(" ".join) | st.text(max_size=200))
def test_random_words_are_read_or_refused_with_a_line(text: str) -> None:
    problem = ""
    try:
        parse(text)
    except UsageError as error:
        problem = str(error)
    assert not problem or problem.startswith("spread.conf:")
