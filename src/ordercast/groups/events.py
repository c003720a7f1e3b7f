"""What a group hands to the application, in the one order that all members share.

`View` (`ordercast.view`), `Transitional` and `Failed` (`ordercast.engine`) come through as the engine made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ordercast.engine import Buffer, Failed, Transitional
from ordercast.errors import UsageError, WireError
from ordercast.service import Service
from ordercast.view import View
from ordercast.wire.block import open_columns, open_messages

NO_POSITION = -1
"""Position of a message whose service is weaker than AGREED."""


@dataclass(slots=True)
class Message:
    """One message. `number` counts the sender's messages, `position` is its place in the total order (-1: none).

    A message that asks for an answer is a `Request`, an answer to a member an `Answer`; what they have besides is
    empty here, so that a program may look at any message.
    """

    payload: bytes
    sender: str  # name/life, as in `str(member)`
    number: int
    position: int
    service: Service
    type: int
    group: str
    view: str

    @property
    def handler(self) -> int | None:
        """Of a call: whose holder is to answer; None where an acknowledgement is enough."""
        return None

    @property
    def caller(self) -> str | None:
        """Of a call: who called, as name/life."""
        return None

    @property
    def must_answer(self) -> bool:
        """Whether this member holds the handler at this place of the order, and so is the one who answers."""
        return False

    @property
    def answers(self) -> tuple[str, int] | None:
        """Of an answer: the call that it answers, as sender and number."""
        return None

    async def reply(self, payload: bytes) -> None:  # noqa: ARG002 - a call's
        """Answer a call, once; see `Request`."""
        raise UsageError(f"message {self.number} of {self.sender} is no call: there is nobody to answer")


class Owed(Protocol):
    """An answer that this member owes somebody."""

    async def give(self, payload: bytes) -> None: ...


class Request(Message):
    """A call (RMP section 4.5), from a member or from outside, at its place in the order."""

    __slots__ = ("_handler", "_owed")

    def __init__(
        self,
        payload: bytes,
        sender: str,
        number: int,
        position: int,
        service: Service,
        type: int,
        group: str,
        view: str,
        handler: int | None,
        owed: Owed | None,
    ) -> None:
        super().__init__(payload, sender, number, position, service, type, group, view)
        self._handler = handler
        self._owed = owed

    @property
    def handler(self) -> int | None:
        return self._handler

    @property
    def caller(self) -> str | None:
        return self.sender

    @property
    def must_answer(self) -> bool:
        return self._owed is not None

    @property
    def owed(self) -> Owed | None:
        """The answer that this member owes, for programs without an event loop (`Port.answer`)."""
        return self._owed

    async def reply(self, payload: bytes) -> None:
        """Answer: to the caller alone if it is no member, else to the whole group. At most once.

        Raises UsageError where this member is not the one to answer, or has answered; NotMember where it is out.
        """
        if self._owed is None:
            raise UsageError(f"this member does not hold handler {self._handler} at this place: another one answers")
        await self._owed.give(payload)


class Answer(Message):
    """A member's answer to the call of a member, which all members see."""

    __slots__ = ("_answers",)

    def __init__(
        self,
        payload: bytes,
        sender: str,
        number: int,
        position: int,
        service: Service,
        type: int,
        group: str,
        view: str,
        answers: tuple[str, int],
    ) -> None:
        super().__init__(payload, sender, number, position, service, type, group, view)
        self._answers = answers

    @property
    def answers(self) -> tuple[str, int] | None:
        return self._answers


@dataclass(frozen=True, slots=True)
class Left:
    """This node is out of the group. `wanted`: it asked for it. `returning`: it is on its way back as a new member."""

    wanted: bool
    returning: bool
    text: str


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Own messages [first, first + count) were lost with this node's membership: others may or may not have them."""

    first: int
    count: int


class Batch:
    """Consecutive messages of one sender: a block. It is opened when `messages` is first read.

    Message i has number `first + i` and, where the service is AGREED or stronger, position `position + i`.
    """

    __slots__ = ("_block", "_messages", "_types", "count", "first", "group", "position", "sender", "service", "view")

    def __init__(
        self,
        block: bytes,
        group: str,
        view: str,
        sender: str,
        first: int,
        count: int,
        position: int,
        service: Service,
        messages: Sequence[bytes] | None = None,
        types: Sequence[int] | int = 0,
    ) -> None:
        self._block = block
        self._messages = messages
        self._types = types
        self.group = group
        self.view = view
        self.sender = sender
        self.first = first
        self.count = count
        self.position = position
        self.service = service

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.messages)

    def __repr__(self) -> str:
        return f"Batch(sender={self.sender!r}, first={self.first}, count={self.count}, position={self.position})"

    @property
    def messages(self) -> Sequence[bytes]:
        """The payloads, one `bytes` each. A block that a faulty member made unreadable has none, at every member."""
        if self._messages is None:
            self._open()
        return self._messages or ()

    @property
    def type(self) -> int:
        """The type of the first message; of all of them unless the sender mixed types in one block."""
        if self._messages is None:
            self._open()
        return self._types if isinstance(self._types, int) else self._types[0]

    @property
    def types(self) -> Sequence[int]:
        """The type of each message."""
        if self._messages is None:
            self._open()
        return [self._types] * self.count if isinstance(self._types, int) else self._types

    @property
    def is_readable(self) -> bool:
        return len(self.messages) == self.count

    def columns(self) -> tuple[Sequence[int], Buffer, Sequence[int] | int]:
        """Lengths, payloads in a row, and types (one for all, or one each): for who writes messages on unopened.

        An unreadable batch has no lengths.
        """
        if self._messages is None:
            try:
                opened = open_columns(self._block)
            except WireError:
                return (), b"", 0
            kinds, index = opened.kinds, opened.index
            types = kinds[0][1] if index is None else [kinds[seq][1] for seq in index]
            return opened.lengths, opened.payloads, types
        return list(map(len, self._messages)), b"".join(self._messages), self._types

    def each(self) -> Iterator[Message]:
        """The messages one by one, for the per-message face."""
        payloads, sender, service, group, view = self.messages, self.sender, self.service, self.group, self.view
        number, position, step = self.first, self.position, 1 if self.service.is_ordered else 0
        if isinstance(self._types, int):
            type_ = self._types
            for payload in payloads:
                yield Message(payload, sender, number, position, service, type_, group, view)
                number += 1
                position += step
        else:
            for payload, type_ in zip(payloads, self._types, strict=True):
                yield Message(payload, sender, number, position, service, type_, group, view)
                number += 1
                position += step

    def after(self, taken: int) -> Batch:
        """What is left of the batch when `taken` messages were handed over one by one."""
        types = self._types if isinstance(self._types, int) else self._types[taken:]
        position = self.position + taken if self.service.is_ordered else self.position
        return Batch(
            b"",
            self.group,
            self.view,
            self.sender,
            self.first + taken,
            self.count - taken,
            position,
            self.service,
            self.messages[taken:],
            types,
        )

    def _open(self) -> None:
        try:
            opened = open_messages(self._block)
        except WireError:
            self._messages = ()
        else:
            self._messages = opened.payloads
            if opened.index is None:
                self._types = opened.kinds[0][1]
            else:
                self._types = [opened.kinds[seq][1] for seq in opened.index]
        self._block = b""


class CallBatch(Batch):
    """The batch of a call, or of an answer: one message."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        super().__init__(
            b"",
            message.group,
            message.view,
            message.sender,
            message.number,
            1,
            message.position,
            message.service,
            [message.payload],
            message.type,
        )
        self.message = message

    def each(self) -> Iterator[Message]:
        yield self.message


Event = Message | View | Transitional | Failed | Left | Uncertain
PortEvent = Batch | View | Transitional | Failed | Left | Uncertain
