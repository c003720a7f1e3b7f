"""`ordercast.connect`: the public API through a daemon (docs/api.md)."""

from __future__ import annotations

import asyncio
import json
import logging
import weakref
from collections.abc import Iterable
from typing import Any, Final

from ordercast.api.checks import check_timeout
from ordercast.api.node import NodeBase
from ordercast.api.shared import SharedUnderlay
from ordercast.client.addresses import DaemonAddress, parse_addresses
from ordercast.client.link import LinkKeeper
from ordercast.client.session import WINDOW_BYTES
from ordercast.errors import NotMember, UsageError
from ordercast.wire.client_frames import MAX_WINDOW
from ordercast.wire.labels import wrong_with

CONNECT_TIMEOUT_S: Final = 10.0
"""How long `connect` tries by default."""

LEAVE_TIMEOUT_S: Final = 5.0
"""How long `close` waits for the groups to see this client leave."""

_log = logging.getLogger("ordercast.client")
_open: weakref.WeakSet[ClientNode] = weakref.WeakSet()  # that were made and not closed


class ClientNode(NodeBase):
    """A node whose groups are carried by a daemon. Made by `connect`; `async with` closes it."""

    def __init__(self, keeper: LinkKeeper) -> None:
        self._keeper = keeper
        super().__init__(keeper.session)
        self._loop = asyncio.get_running_loop()
        keeper.run(self._open)
        _open.add(self)

    def __repr__(self) -> str:
        names = ", ".join(repr(group.name) for group in self.groups) or "no groups"
        state = "" if self.is_connected else " (not connected)"
        return f"<{type(self).__name__} {self.member} at {self._keeper.address}{state}: {names}>"

    @property
    def name(self) -> str:
        """The name of this client at its daemon, which `member.name` is the name of."""
        return self.member.label

    @property
    def address(self) -> DaemonAddress | None:
        """The daemon that this client is connected to, or was last."""
        return self._keeper.address

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to a daemon now."""
        return self._keeper.session.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether this client has stopped."""
        return self._keeper.is_closed

    @property
    def underlay(self) -> SharedUnderlay:
        """All groups of this client: to send to several, or to receive everything in one order."""
        return self._attached(self._keeper.session.terms.underlay)

    async def ask(self, what: str, argument: str = "") -> dict[str, Any]:
        """Ask the daemon about itself: "status", "groups", or "members" of a group. Raises UsageError where it has no
        answer."""
        self._check_running()
        query = self._keeper.session.ask(what, argument)
        query.waiter = self._loop.create_future()
        await query.waiter
        if query.error is not None:
            raise query.error
        answer: dict[str, Any] = json.loads(query.answer)
        if "error" in answer:
            raise UsageError(str(answer["error"]))
        return answer

    def _where_terms_go(self, underlay: str) -> str:
        return f"the daemon has made {underlay!r}, and a client takes it as it is: leave them out"

    async def close(self) -> None:
        """Leave all groups in order, and disconnect."""
        keeper = self._keeper
        if keeper.is_closed:
            return
        try:
            if self.is_connected:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._leave_all()
                    await keeper.say_goodbye()
        except TimeoutError:
            _log.warning("%s: disconnected without having been seen to leave %d groups", self.member, len(self.groups))
        finally:
            keeper.stop(NotMember("this client has been closed"))

    def abort(self) -> None:
        """Disconnect at once, without leaving the groups first: the daemon does that."""
        self._keeper.stop(NotMember("this client has been stopped"))


async def connect(
    address: str | Iterable[str] | None = None,
    *,
    name: str | None = None,
    timeout: float | None = CONNECT_TIMEOUT_S,
    reconnect: bool = True,
    window: int = WINDOW_BYTES,
) -> ClientNode:
    """Connect to a daemon, which does the ordering: a node with the same groups as an embedded one.

    address: "unix:PATH" or "tcp://host:port", or a list of them, which are tried in turn; without one what the
    environment variable ORDERCAST_DAEMON says, or the socket of this user's daemon. name: of this client, unique at its
    daemon; members see it as name@daemon/life. reconnect: a client whose connection is lost connects again by itself,
    and joins its groups again: they get `Left` with `returning`, and `Uncertain` for what was on its way. window: bytes
    of events that may wait in this client.

    Raises NotMember where no daemon answers within `timeout` seconds (None: each is tried once), JoinRefused where the
    name is taken, UsageError.
    """
    check_timeout(timeout)
    addresses = parse_addresses(address)
    if name is not None and not isinstance(name, str):
        raise UsageError(f"the name of a client is a text, not {name!r}")
    wrong = wrong_with(name) if name else ""
    if wrong:
        raise UsageError(f"the name of a client {wrong}")
    if not isinstance(window, int) or not 0 < window <= MAX_WINDOW:
        raise UsageError(f"a window has 1 to {MAX_WINDOW} bytes, not {window!r}")
    keeper = LinkKeeper(addresses, name or "", reconnect, window)
    await keeper.start(timeout)
    node = ClientNode(keeper)
    try:
        await node.attach(keeper.session.terms.underlay, timeout=timeout)
    except BaseException:
        node.abort()
        raise
    return node


def open_clients(loop: asyncio.AbstractEventLoop) -> list[ClientNode]:
    """The clients of a loop that are not closed."""
    return [node for node in list(_open) if node._loop is loop and not node.is_closed]
