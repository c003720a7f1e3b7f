"""A real file system that is soon full."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of its own with so much room, in a new folder. Skips the test where none can be mounted."""
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("a small file system of its own needs root and mount")
    folder.mkdir()
    words = [mount, "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
