"""A planted bug as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bug:
    """One mutation of one function of the core: `old` becomes `new`.

    `function` is the name of a function or method, or `Class.method` where several methods of that name contain `old`.
    `old` and `new` are code, compared as syntax trees: module, indentation, line breaks and comments do not matter.
    `old` must occur exactly once. It is an expression, an argument `name=value` of a call, or one or more consecutive
    statements (with everything below them). An empty `new` removes statements. Where several pieces of one function
    change together, both are tuples of the same length.

    `bound`: seeds of the orderer, from its first seed on, within which it must be caught; 0 for one that is known
    not to be, and `breaks` says why. `profile`: what these seeds are about. `first_seed`: where they begin, if not
    where those of the profile do. `is_slow`: the run that catches it takes seconds, as one that never comes to rest
    does; it is in no sample.
    """

    name: str
    function: str
    old: str | tuple[str, ...]
    new: str | tuple[str, ...]
    breaks: str
    bound: int
    orderer: str = "sequencer"
    profile: str = "all"
    first_seed: int = 0
    is_slow: bool = False

    def edits(self) -> Iterator[tuple[str, str]]:
        """Each piece of code and what takes its place."""
        olds = (self.old,) if isinstance(self.old, str) else self.old
        news = (self.new,) if isinstance(self.new, str) else self.new
        return zip(olds, news, strict=True)
