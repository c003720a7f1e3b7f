"""Values of the public API: what `repr` shows, and that every field is documented."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ordercast
from ordercast import AGREED, RESILIENT, SAFE, Answer, Batch, Member, Message, Request, Service, View


def test_repr_of_a_service_is_what_a_program_writes() -> None:
    assert [repr(service) for service in (AGREED, RESILIENT(2), SAFE)] == ["AGREED", "RESILIENT(2)", "SAFE"]


def test_repr_of_a_message_shows_the_beginning_of_its_payload() -> None:
    message = Message(b"hello", "ann/1", 3, 17, AGREED, 0, "chat", "1@ann/1")
    assert repr(message) == "<Message 'ann/1' #3, AGREED, position 17: b'hello'>"
    large = Message(bytes(1 << 20), "ann/1", 4, -1, SAFE, 7, "chat", "1@ann/1")
    assert len(repr(large)) < 250
    assert repr(large).endswith("... 1048576 bytes>")
    assert "type 7" in repr(large)


def test_repr_of_calls_and_answers_says_what_they_are() -> None:
    request = Request(b"x", "bob/2", 0, 5, AGREED, 0, "chat", "1@ann/1", 2, None)
    assert repr(request) == "<Request 'bob/2' #0, AGREED, position 5, handler 2: b'x'>"
    answer = Answer(b"y", "ann/1", 1, 6, AGREED, 0, "chat", "1@ann/1", ("bob/2", 0))
    assert repr(answer) == "<Answer 'ann/1' #1, AGREED, position 6, answers 'bob/2' #0: b'y'>"


def test_repr_of_a_batch_does_not_open_it() -> None:
    batch = Batch(b"not a block", "chat", "1@ann/1", "ann/1", 10, 3, 20, AGREED)
    assert repr(batch) == "<Batch of 3 from 'ann/1' #10, AGREED, position 20>"


def test_a_view_tells_what_a_service_comes_to_in_it() -> None:
    """RMP section 3.2: k others hold a message, and there are only so many."""
    members = tuple(Member(number, name, 1, ("127.0.0.1", number)) for number, name in enumerate("abc", start=1))
    view = View(1, "a/1", 1, 0, 0, 0, members, {})
    assert [view.given(RESILIENT(k)) for k in (0, 1, 2, 3, 255)] == [RESILIENT(k) for k in (0, 1, 2, 2, 2)]
    assert (view.given(AGREED), view.given(SAFE)) == (AGREED, SAFE)


def definition_of(kind: type) -> ast.ClassDef:
    """A class as its file has it: a compiled one knows neither its source nor its docstring."""
    path = Path(ordercast.__file__).parents[1].joinpath(*kind.__module__.split(".")).with_suffix(".py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return next(each for each in body if isinstance(each, ast.ClassDef) and each.name == kind.__name__)


@pytest.mark.parametrize("kind", [Message, View, Member, Service])
def test_every_field_has_a_docstring(kind: type) -> None:
    definition = definition_of(kind)
    documented: list[str] = []
    bare: list[str] = []
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            (documented if is_text else bare).append(statement.target.id)
    assert not bare
    assert len(documented) >= 2


def test_every_field_of_a_batch_is_documented() -> None:
    text = ast.get_docstring(definition_of(Batch), clean=False) or ""
    for name in ("group", "view", "sender", "first", "count", "position", "service"):
        assert f"    {name}: " in text
