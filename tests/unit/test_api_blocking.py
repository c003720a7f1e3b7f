"""The blocking API has every name that the asyncio API has, with the same arguments."""

from __future__ import annotations

import inspect

import pytest

from ordercast import (
    BlockingClient,
    BlockingGroup,
    BlockingHandler,
    BlockingLock,
    BlockingNode,
    BlockingUnderlay,
    ClientNode,
    Group,
    Handler,
    Lock,
    Node,
    SharedUnderlay,
)

PAIRS = [
    (Node, BlockingNode),
    (ClientNode, BlockingClient),
    (Group, BlockingGroup),
    (Lock, BlockingLock),
    (Handler, BlockingHandler),
    (SharedUnderlay, BlockingUnderlay),
]

# What asyncio spells with an `a`.
SPECIAL = {"__aiter__": "__iter__", "__aenter__": "__enter__", "__aexit__": "__exit__"}


def public(kind: type) -> dict[str, object]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("asyncio_api", "blocking_api"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_name_is_there_and_of_the_same_kind(asyncio_api: type, blocking_api: type) -> None:
    names = public(blocking_api)
    assert set(public(asyncio_api)) - set(names) == set()
    for name, found in public(asyncio_api).items():
        assert isinstance(found, property) == isinstance(names[name], property), name


@pytest.mark.parametrize(("asyncio_api", "blocking_api"), PAIRS, ids=lambda kind: kind.__name__)
def test_methods_take_the_same_arguments_and_at_most_a_timeout_more(asyncio_api: type, blocking_api: type) -> None:
    methods = {"__init__"} if asyncio_api is Node else set()
    methods |= {name for name, found in public(asyncio_api).items() if inspect.isfunction(found)}
    for name in methods:
        wanted = dict(inspect.signature(getattr(asyncio_api, name)).parameters)
        given = dict(inspect.signature(getattr(blocking_api, name)).parameters)
        if "timeout" not in wanted:
            given.pop("timeout", None)
        assert list(given) == list(wanted), name
        for word, parameter in wanted.items():
            assert given[word].kind == parameter.kind, (name, word)
            assert given[word].default == parameter.default, (name, word)


@pytest.mark.parametrize(("asyncio_api", "blocking_api"), PAIRS, ids=lambda kind: kind.__name__)
def test_what_asyncio_does_with_async_for_and_async_with_blocks(asyncio_api: type, blocking_api: type) -> None:
    for asynchronous, plain in SPECIAL.items():
        assert hasattr(asyncio_api, asynchronous) == hasattr(blocking_api, plain), plain


@pytest.mark.parametrize(("asyncio_api", "blocking_api"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_public_name_has_a_docstring(asyncio_api: type, blocking_api: type) -> None:
    for kind in (asyncio_api, blocking_api):
        for name in public(kind):
            assert inspect.getdoc(getattr(kind, name)), f"{kind.__name__}.{name}"
