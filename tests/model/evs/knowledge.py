"""What a daemon of the model knows of one view: a `Horizon` of the core, blocks on their way, and switches around it.

All inputs of the horizon are written down: a copy for the explorer is made by repeating them, since objects of the core
are not copied.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.evs.blocks import Block
from tests.model.evs.rules import Rules

from ordercast.orderers.sites.horizon import Horizon
from ordercast.orderers.sites.stream import Held
from ordercast.wire.cuts import Due, Skip, SourceCut

Update = tuple[int, int, int]  # sequence number, clock, ARU
Input = tuple[object, ...]


class Knowledge:
    __slots__ = ("_first", "_horizon", "_journal", "_rules", "passing", "site", "sites", "skips", "updates", "window")

    def __init__(self, rules: Rules, site: int, sites: tuple[int, ...], first_lts: int, window: int) -> None:
        self._rules = rules
        self.site = site
        self.sites = sites
        self._first = first_lts
        self.window = window
        self._horizon = Horizon(site, sites, first_lts, window)
        self._journal: list[Input] = []
        self.passing: dict[int, dict[int, Block]] = {each: {} for each in sites}  # received, also for others
        self.skips: dict[int, list[Skip]] = {each: [] for each in sites}
        self.updates: dict[int, Update] = dict.fromkeys(sites, (0, first_lts, first_lts))  # the newest of each

    def clone(self) -> Knowledge:
        other = Knowledge(self._rules, self.site, self.sites, self._first, self.window)
        for name, *values in self._journal:
            getattr(other, f"_{name}")(*values)
        other._journal = list(self._journal)
        other.passing = {site: dict(blocks) for site, blocks in self.passing.items()}
        other.skips = {site: list(skips) for site, skips in self.skips.items()}
        other.updates = dict(self.updates)
        return other

    def key(self) -> tuple[object, ...]:
        """What tells two states apart."""
        horizon = self._horizon
        passing = tuple(tuple(sorted(blocks)) for blocks in self.passing.values())
        waiting = tuple(tuple(entry.lts for entry in stream.queue) for stream in horizon.streams.values())
        early = tuple(len(stream.early) for stream in horizon.streams.values())
        updates = tuple(self.updates.values())
        return (horizon.cuts(), horizon.arus(), horizon.clock, horizon.delivered, passing, waiting, early, updates)

    # ---- what comes

    def receive(self, block: Block) -> bool:
        """A block came, for us or for sites behind us. True: it is ours, and new."""
        self.passing[block.site].setdefault(block.seq, block)
        if not block.mask >> self.site & 1:
            self.receive_skip(block.site, block.as_skip(), is_own=False)
            return False
        self._note("add", block)
        return self._add(block)

    def receive_skip(self, site: int, skip: Skip, is_own: bool = True) -> bool:
        if is_own and skip not in self.skips[site]:
            self.skips[site].append(skip)
        if not self._rules.skipped_safe:
            skip = skip._replace(safe=0)
        self._note("skip", site, skip)
        return self._skip(site, skip)

    def receive_update(self, site: int, update: Update) -> bool:
        seq, clock, aru = update
        before = self.updates[site]
        newest = max(before[:2], (seq, clock))
        self.updates[site] = (*newest, max(aru, before[2]))
        self._note("update", site, seq, clock, aru)
        return self._update(site, seq, clock, aru)

    def raise_aru(self, site: int, aru: int) -> None:
        self._note("aru", site, aru)
        self._aru(site, aru)

    def raise_clock(self, clock: int) -> None:
        self._note("clock", clock)
        self._clock(clock)

    def take(self, limit: int) -> list[Block]:
        self._note("take", limit)
        return self._blocks(self._take(limit))

    def settle(self, dues: tuple[Due, ...]) -> list[Block]:
        self._note("settle", dues)
        return self._blocks(self._settle(dues))

    def release(self) -> int:
        self._note("release")
        return self._release()

    # ---- what is known

    @property
    def clock(self) -> int:
        return self._horizon.clock

    @property
    def stable(self) -> int:
        return self._horizon.stable

    @property
    def horizon(self) -> int:
        return self._horizon.horizon

    @property
    def delivered(self) -> int:
        return self._horizon.delivered

    @property
    def report(self) -> int:
        if not self._rules.one_aru:
            return self._horizon.streams[self.site].clock
        return self._horizon.report if self._rules.cap_report else self._horizon.horizon

    def aru(self, site: int) -> int:
        return self._horizon.aru(site)

    def room(self, seq: int) -> int:
        return self._horizon.room(seq)

    def arus(self) -> tuple[int, ...]:
        return self._horizon.arus()

    def cuts(self) -> tuple[SourceCut, ...]:
        return self._horizon.cuts()

    def lacking(self, dues: Iterable[Due]) -> list[Due]:
        return self._horizon.lacking(dues)

    def has(self, site: int, seq: int) -> bool:
        return self._horizon.streams[site].has(seq)

    def holds(self, site: int, seq: int) -> bool:
        return seq in self._horizon.streams[site].held

    def entries(self) -> int:
        """How many entries the longest cut of a stream has."""
        return max(len(cut.blocks) + len(cut.skips) for cut in self.cuts())

    # ---- helpers: the inputs as the horizon gets them

    def _note(self, name: str, *values: object) -> None:
        self._journal.append((name, *values))

    def _add(self, block: Block) -> bool:
        return self._horizon.add(block.held())

    def _skip(self, site: int, skip: Skip) -> bool:
        return self._horizon.skip(site, skip)

    def _update(self, site: int, seq: int, clock: int, aru: int) -> bool:
        before = self._horizon.clock
        if not self._rules.justified:
            seq = min(seq, self._horizon.streams[site].prefix)
        is_new = self._horizon.update(site, seq, clock, aru)
        if not self._rules.raise_clock and site != self.site:
            self._horizon.clock = before
        return is_new

    def _aru(self, site: int, aru: int) -> bool:
        return self._horizon.raise_aru(site, aru)

    def _clock(self, clock: int) -> None:
        self._horizon.raise_clock(clock)

    def _take(self, limit: int) -> list[Held]:
        return self._horizon.take(limit)

    def _settle(self, dues: tuple[Due, ...]) -> list[Held]:
        return self._horizon.settle(dues)

    def _release(self) -> int:
        if self._rules.keep_unstable:
            return self._horizon.release()
        return sum([stream.release(self._horizon.horizon) for stream in self._horizon.streams.values()])

    def _blocks(self, held: list[Held]) -> list[Block]:
        return [self.passing[each.site][each.seq] for each in held]
