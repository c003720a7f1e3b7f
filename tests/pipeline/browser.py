"""Opens a page in a headless Chromium, where there is one, and gives back what the page has become."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1200,1600",
    "--virtual-time-budget=5000",
)


def rendered(page: Path, folder: Path, fragment: str = "") -> str:
    """The page's DOM after its script has run; the test is skipped where there is no browser."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on PATH (.ci/run installs Chromium where it can)")
    command = [found, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri() + fragment]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def script_errors(dom: str) -> str:
    found = re.search(r'<pre id="script-errors">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


def drawn(dom: str) -> str:
    """What the script has made of the data: everything before the data itself."""
    return dom.partition('<pre id="script-errors">')[0]


def text_of(markup: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", markup)))
