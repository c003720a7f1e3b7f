"""Two different sets of names with the same signature: the xor of hashes is linear over bits, so a base tells how."""

from __future__ import annotations

from collections.abc import Mapping


def colliding_sets(hashes: Mapping[str, tuple[int, int]]) -> tuple[frozenset[str], frozenset[str]]:
    """Two sets of equal size whose xors of both hashes are equal. Needs some 130 names or more."""
    mask = (1 << 64) - 1
    names = list(hashes)
    base: dict[int, tuple[int, int]] = {}  # highest bit -> (value, which names gave it)
    for at, name in enumerate(names):
        # One bit more than the hashes have: every set that cancels has an even number of names.
        value = (1 << 128) | (hashes[name][0] & mask) << 64 | (hashes[name][1] & mask)
        chosen = 1 << at
        while value:
            top = value.bit_length()
            if top not in base:
                base[top] = (value, chosen)
                break
            value ^= base[top][0]
            chosen ^= base[top][1]
        else:
            cancels = [name for place, name in enumerate(names) if chosen >> place & 1]
            half = len(cancels) // 2
            return frozenset(cancels[:half]), frozenset(cancels[half:])
    raise ValueError("too few names: no set of them cancels")
