"""Who may connect by Spread's client protocol: authentication methods, and the addresses of the method IP.

Sections 3.3 and 9 of the reference. `NULL` lets everybody in. `IP` asks the list of addresses (`spread.access_ip`): one
rule a line, `local`, `unix`, or an address with an optional prefix; `#` begins a comment. What no line names is denied.
Deviation: a `unix` line admits clients of the unix socket; Spread 5.0.1 denies them. Passwords (PWORD) are left out:
they travel in clear text.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final

from ordercast.errors import UsageError

METHODS: Final = ("NULL", "IP")
MAX_RULES: Final = 4_096
MAX_METHODS: Final = 3  # slots of the client's choice
SLOT_BYTES: Final = 30
CHOICE_BYTES: Final = MAX_METHODS * SLOT_BYTES

AnyNetwork = IPv4Network | IPv6Network

_LOCAL: Final[tuple[AnyNetwork, ...]] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@dataclass(frozen=True, slots=True)
class AuthRules:
    """Which methods are offered, and which of them run whatever the client chooses."""

    allowed: tuple[str, ...] = ("NULL",)
    required: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for method in (*self.allowed, *self.required):
            if method not in METHODS:
                raise UsageError(f"there is no authentication method {method!r}; choose of {', '.join(METHODS)}")

    @property
    def offered(self) -> tuple[str, ...]:
        """All that a client may name, in the order of the configuration."""
        return tuple(dict.fromkeys((*self.allowed, *self.required)))

    def admits(self, choice: bytes, is_address_admitted: bool) -> bool:
        """Whether a client that chose these 90 bytes gets in: each method that it names, or that is required, runs."""
        named = []
        for start in range(0, CHOICE_BYTES, SLOT_BYTES):
            method = choice[start : start + SLOT_BYTES].partition(b"\0")[0].decode("latin-1")
            if not method:
                break
            named.append(method)
        if not named or any(method not in self.offered for method in named):
            return False
        return is_address_admitted or "IP" not in (*named, *self.required)

    def admits_old(self, is_address_admitted: bool) -> bool:
        """Clients before 3.16 choose nothing: IP runs where it is offered, else NULL must be (section 3.7)."""
        return is_address_admitted if "IP" in self.offered else "NULL" in self.offered


@dataclass(frozen=True, slots=True)
class AccessList:
    """The addresses that the method IP admits."""

    networks: tuple[AnyNetwork, ...] = ()
    has_unix: bool = False

    def admits(self, host: str | None) -> bool:
        """Whether a client of this address gets in; None: it came by the unix socket."""
        if host is None:
            return self.has_unix
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self.networks if network.version == address.version)


def load_access(path: str | Path) -> AccessList:
    """Read a file of addresses; `UsageError` names it and the line."""
    try:
        return parse_access(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def parse_access(text: str, name: str) -> AccessList:
    """Read a list of addresses. `name` stands for it in errors."""
    networks: list[AnyNetwork] = []
    has_unix = False
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip()
        if not word:
            continue
        if word.lower() == "unix":
            has_unix = True
        elif word.lower() == "local":
            networks += _LOCAL
        else:
            try:
                networks.append(ip_network(word, strict=False))
            except ValueError:
                what = 'write "unix", "local", or an address with an optional prefix, as in 10.1.0.0/16'
                raise UsageError(f"{name}:{number}: {word!r} is no rule; {what}") from None
        if len(networks) > MAX_RULES:
            raise UsageError(f"{name}:{number}: more than {MAX_RULES} addresses; use prefixes")
    return AccessList(tuple(networks), has_unix)
