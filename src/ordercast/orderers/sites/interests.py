"""Which sites want which groups: to these a block is sent (docs/design/sites.md, "Interest").

Spread section 3.4 prunes the tree of a source to the sites that have a member of the group. Deviation: interest belongs
to a daemon and not to its site, or the leave of one daemon would end what another one still waits for.

The engine and the roster share one object. The engine tells of each INTEREST when it receives it, in any order, and
asks for the mask of a block when it stamps it. The roster tells of joins, leaves and views when it comes to them,
which may be later: until then there is more interest than needed, never less. A group is known by a hash of its name,
because a daemon wants it before the group has a number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Final

MAX_AWAITED: Final = 1 << 17
"""Groups that one daemon has declared interest in and not joined. At the bound its site gets everything until the next
view: to forget an interest would lose messages."""

MAX_SITES: Final = 64
EVERY_SITE: Final = (1 << MAX_SITES) - 1

_JOINED: Final = 1
"""What is known of one daemon's interest is one number: this bit, and above it the LTS of its last INTEREST."""


def group_key(name: str) -> int:
    """64 bits that name a group on the wire before it has a number."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8, person=b"oc-interest").digest(), "big")


class DeclaredInterests:
    """What this daemon wants to be sent in the present view: names of groups, and when each was stamped."""

    __slots__ = ("_stamped", "_waiting")

    def __init__(self) -> None:
        self._stamped: dict[str, int] = {}  # with their LTS
        self._waiting: dict[str, None] = {}  # for the token

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def want(self, names: Iterable[str]) -> None:
        """One that was stamped before does not count: a LEAVE may have followed it, and ended it."""
        for name in names:
            self._stamped.pop(name, None)
            self._waiting[name] = None

    def take(self, most: int) -> list[str]:
        """The next ones that are to be stamped."""
        names = list(islice(self._waiting, most))
        for name in names:
            del self._waiting[name]
        return names

    def stamped(self, names: Iterable[str], lts: int) -> None:
        for name in names:
            self._stamped[name] = lts

    def lts_of(self, name: str) -> int | None:
        """None: it was not stamped in this view."""
        return self._stamped.get(name)


class KeyInterest:
    """Who is interested in one group."""

    __slots__ = ("daemons", "key", "mask", "names")

    def __init__(self, key: int) -> None:
        self.key = key
        self.daemons: dict[int, int] = {}  # only those that are
        self.mask = 0  # of their sites
        self.names = 0  # numbers that the group has: 0 or 1, but for two names with one hash


class Interests:
    """The interest of all daemons of the view, as one daemon knows it."""

    __slots__ = ("_awaited", "_first_lts", "_full", "_keys", "_numbers", "_sites")

    def __init__(self) -> None:
        self._sites: dict[int, int] = {}  # daemon -> site
        self._first_lts = 0  # INTERESTs of the present view have this LTS at least
        self._keys: dict[int, KeyInterest] = {}
        self._numbers: dict[int, KeyInterest] = {}  # number of a group -> one of these
        self._awaited: dict[int, int] = {}  # daemon -> groups that it has not joined
        self._full = 0  # sites that get everything

    # The engine.

    def awaited(self, daemon: int) -> int:
        """How many groups a daemon has declared interest in and not joined."""
        return self._awaited.get(daemon, 0)

    def place(self, sites: Mapping[int, int]) -> None:
        """Daemons and their sites, of the view that is being installed. The roster comes to it later."""
        self._sites.update(sites)

    def received(self, daemon: int, key: int, lts: int) -> None:
        """An INTEREST of a daemon of the present view has come, or of the one that is being installed."""
        if lts < self._first_lts:
            return
        entry = self._keys.get(key)
        if entry is None:
            entry = self._keys[key] = KeyInterest(key)
        known = entry.daemons.get(daemon, 0)
        if not known:
            count = self._awaited.get(daemon, 0)
            if count >= MAX_AWAITED:
                self._full |= self._site_mask(daemon)
                if not entry.daemons and not entry.names:
                    del self._keys[key]
                return
            self._awaited[daemon] = count + 1
            entry.mask |= self._site_mask(daemon)
        entry.daemons[daemon] = max(known >> 1, lts) << 1 | known & _JOINED

    def mask(self, numbers: Iterable[int]) -> int:
        """The sites that have a daemon with interest in one of these groups. Hot: once per block."""
        found, get = self._full, self._numbers.get
        for number in numbers:
            entry = get(number)
            if entry is not None:
                found |= entry.mask
        return found

    # The roster.

    def name(self, number: int, key: int) -> None:
        """A group has this number from here on."""
        entry = self._keys.get(key)
        if entry is None:
            entry = self._keys[key] = KeyInterest(key)
        before = self._numbers.get(number)
        if before is not entry:
            if before is not None:
                before.names -= 1
            entry.names += 1
            self._numbers[number] = entry

    def unname(self, number: int) -> None:
        """The group with this number has ended."""
        entry = self._numbers.pop(number, None)
        if entry is not None:
            entry.names -= 1
            if not entry.names and not entry.daemons:
                del self._keys[entry.key]

    def keep_names(self, numbers: Collection[int]) -> None:
        """All other groups have ended."""
        for number in [number for number in self._numbers if number not in numbers]:
            self._numbers.pop(number).names -= 1
        self._drop_empty()

    def joined(self, daemon: int, key: int) -> None:
        """A session of the daemon is in the group."""
        entry = self._keys.get(key)
        if entry is None:
            entry = self._keys[key] = KeyInterest(key)
        known = entry.daemons.get(daemon, 0)
        if known and not known & _JOINED:
            self._awaited[daemon] -= 1
        entry.daemons[daemon] = known | _JOINED
        entry.mask |= self._site_mask(daemon)

    def left(self, daemon: int, key: int, lts: int) -> None:
        """The last session of the daemon has left the group, by a LEAVE that was stamped at `lts`: an INTEREST that was
        stamped later is for a join that is still to come."""
        entry = self._keys.get(key)
        known = entry.daemons.get(daemon, 0) if entry is not None else 0
        if entry is None or not known:
            return
        if known >> 1 > lts:
            if known & _JOINED:
                self._awaited[daemon] = self._awaited.get(daemon, 0) + 1
            entry.daemons[daemon] = known & ~_JOINED
            return
        if not known & _JOINED:
            self._awaited[daemon] -= 1
        del entry.daemons[daemon]
        entry.mask = self._mask_of(entry)
        if not entry.daemons and not entry.names:
            del self._keys[key]

    def begin_view(self, first_lts: int, present: Collection[int]) -> None:
        """The next view, of these daemons: INTERESTs of earlier views that no join has followed are void. Those of this
        view, which may have come before the roster did, have an LTS of at least `first_lts`."""
        self._first_lts = first_lts
        self._sites = {daemon: site for daemon, site in self._sites.items() if daemon in present}
        self._full = 0
        for entry in self._keys.values():
            entry.daemons = {
                daemon: known if known >> 1 >= first_lts else _JOINED
                for daemon, known in entry.daemons.items()
                if daemon in present and (known & _JOINED or known >> 1 >= first_lts)
            }
            entry.mask = self._mask_of(entry)
        self._drop_empty()
        self._count_awaited()

    def exchange_done(self, groups: Iterable[tuple[int, int, Collection[int]]]) -> None:
        """An exchange of rosters is over, complete or not needed any more: all groups as they are now (number, key,
        daemons that have a session in it). The INTERESTs of this view stay, because their joins are still to come."""
        before, self._keys, self._numbers = self._keys, {}, {}
        # There may be very many groups, and few different lists of daemons: these are worked out once.
        worked_out: dict[int, tuple[Collection[int], dict[int, int], int]] = {}
        for number, key, daemons in groups:
            found = worked_out.get(id(daemons))
            if found is None:
                joined = dict.fromkeys(daemons, _JOINED)
                mask = 0
                for daemon in joined:
                    mask |= self._site_mask(daemon)
                found = worked_out[id(daemons)] = (daemons, joined, mask)
            self.name(number, key)
            entry = self._keys[key]
            if entry.daemons:  # two names with one hash
                entry.daemons.update(found[1])
            else:
                entry.daemons = found[1].copy()
            entry.mask |= found[2]
        for key, old in before.items():
            for daemon, known in old.daemons.items():
                if known > _JOINED:
                    again = self._keys.get(key)
                    if again is None:
                        again = self._keys[key] = KeyInterest(key)
                    again.daemons[daemon] = again.daemons.get(daemon, 0) | known & ~_JOINED
                    again.mask |= self._site_mask(daemon)
        self._count_awaited()

    # In detail.

    @property
    def size(self) -> int:
        """Groups that something is known of."""
        return len(self._keys)

    def is_interested(self, daemon: int, key: int) -> bool:
        """Whether blocks to the group are sent to the daemon for its own sake."""
        entry = self._keys.get(key)
        return entry is not None and daemon in entry.daemons

    def _site_mask(self, daemon: int) -> int:
        site = self._sites.get(daemon)
        return 1 << site if site is not None else EVERY_SITE  # where it is not known, everybody gets it

    def _mask_of(self, entry: KeyInterest) -> int:
        mask, sites = 0, self._sites
        for daemon in entry.daemons:
            site = sites.get(daemon)
            mask |= 1 << site if site is not None else EVERY_SITE
        return mask

    def _drop_empty(self) -> None:
        self._keys = {key: entry for key, entry in self._keys.items() if entry.daemons or entry.names}

    def _count_awaited(self) -> None:
        counts: dict[int, int] = {}
        for entry in self._keys.values():
            for daemon, known in entry.daemons.items():
                if not known & _JOINED:
                    counts[daemon] = counts.get(daemon, 0) + 1
        self._awaited = counts
