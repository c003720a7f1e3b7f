"""What the everyday commands share: questions, and answers for people and programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from ordercast.cli.place import through
from ordercast.errors import UsageError
from ordercast.service import Service, parse_service


def ask(args: argparse.Namespace, what: str, argument: str = "") -> dict[str, Any]:
    """One question to the daemon, or to the underlay that an embedded node is in."""
    return through(args, lambda place: place.ask(what, argument))


def show(document: dict[str, Any], as_json: bool, lines: Callable[[dict[str, Any]], list[str]]) -> None:
    """An answer as JSON, or in lines."""
    print(json.dumps(document) if as_json else "\n".join(lines(document)), flush=True)


def read_payload(text: str) -> bytes:
    """A message as it is typed."""
    return text.encode(errors="surrogateescape")


def shown_payload(payload: bytes, word: str) -> dict[str, str]:
    """A payload for a program: text, or hexadecimal where it is no UTF-8."""
    try:
        return {word: payload.decode()}
    except UnicodeDecodeError:
        return {f"{word}_hex": payload.hex()}


def read_service(text: str) -> Service:
    """A service as it is typed."""
    try:
        return parse_service(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
