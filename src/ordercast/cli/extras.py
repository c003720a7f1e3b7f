"""Which packages a command needs beyond those of `pip install ordercast`, and what to install where they are missing.

A command asks before it does anything: a run of minutes must not end in a traceback.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from ordercast.errors import UsageError

EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "trace": ("pyarrow",),
    "spark": ("pyspark", "pandas", "pyarrow"),
    "plot": ("matplotlib",),
}
"""The modules that each extra of the package brings, as `pyproject.toml` names them."""


def missing(extra: str) -> list[str]:
    """The modules of an extra that cannot be imported."""
    return [name for name in EXTRAS[extra] if not _is_importable(name)]


def advice(extra: str) -> str:
    """What to do to have an extra."""
    return f"pip install 'ordercast[{extra}]'"


def need(extra: str, what: str) -> None:
    """Raise `UsageError`, with what to install, where `what` cannot work."""
    names = missing(extra)
    if names:
        raise UsageError(f"{what} needs {', '.join(names)}: {advice(extra)}")


def _is_importable(name: str) -> bool:
    # Found, not imported: Spark takes a second to import, and a command that is refused should not wait for it.
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
