"""What a group hands to the application, in the one order that all members share.

`View` (`ordercast.view`), `Transitional` and `Failed` (`ordercast.engine`) come through as the engine made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ordercast.engine import Buffer, Failed, Transitional
from ordercast.errors import UsageError, WireError
from ordercast.groups.opened_block import OpenedBlock
from ordercast.groups.status import Resumed, Stalled
from ordercast.service import Service
from ordercast.view import View
from ordercast.wire.block import open_columns, open_messages

NO_POSITION = -1
"""Position of a message whose service is weaker than AGREED."""

HIDDEN_PREFIX = "#!"
"""A group of this prefix has no members: adapters of other protocols let its name travel with a message to several
groups, and messages do not show it (`daemon/spread/flavours.py`)."""

SHOWN_BYTES = 32
"""How much of a payload `repr` shows."""


@dataclass(slots=True, repr=False)
class Message:
    """One message.

    A message that asks for an answer is a `Request`, an answer to a member an `Answer`. The properties that only these
    have are empty here, so that a program may look at any message.
    """

    payload: bytes
    """What was sent."""
    sender: str
    """The member, or the caller from outside, that sent it: name/life, as in `str(member)`."""
    number: int
    """Counts the sender's messages to this group, from 0 on, over the life of its node."""
    position: int
    """Its position in the total order of the group; -1 where the service is weaker than AGREED."""
    service: Service
    """The service that it was sent with."""
    type: int
    """The number that the sender gave it, -32768 to 32767."""
    group: str
    """The name of the group."""
    view: str
    """The id of the view in which it was delivered."""

    def __repr__(self) -> str:
        shown, size = self.payload[:SHOWN_BYTES], len(self.payload)
        payload = repr(shown) if size <= SHOWN_BYTES else f"{shown!r}... {size} bytes"
        words = [f"{self.sender!r} #{self.number}", str(self.service)]
        if self.position != NO_POSITION:
            words.append(f"position {self.position}")
        if self.type:
            words.append(f"type {self.type}")
        if self.handler is not None:
            words.append(f"handler {self.handler}" + (", to be answered here" if self.must_answer else ""))
        if self.answers is not None:
            words.append(f"answers {self.answers[0]!r} #{self.answers[1]}")
        return f"<{self.__class__.__name__} {', '.join(words)}: {payload}>"

    @property
    def handler(self) -> int | None:
        """Of a call: the number of the handler whose holder answers; None where an acknowledgement is enough."""
        return None

    @property
    def caller(self) -> str | None:
        """Of a call: the node that called, as name/life."""
        return None

    @property
    def must_answer(self) -> bool:
        """Whether this member holds the handler at this position of the order, and so has to answer."""
        return False

    @property
    def answers(self) -> tuple[str, int] | None:
        """Of an answer: the call that it answers, as sender and number."""
        return None

    @property
    def groups(self) -> tuple[str, ...]:
        """All groups that it was sent to."""
        return (self.group,)

    async def reply(self, payload: bytes) -> None:  # noqa: ARG002 - a call's
        """Answer a call, once; see `Request`."""
        raise UsageError(f"message {self.number} of {self.sender} is no call and takes no answer")


class MultiMessage(Message):
    """A message to several groups. `group` is one of them that this session is in."""

    __slots__ = ("_groups",)

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
        groups: tuple[str, ...],
    ) -> None:
        super().__init__(payload, sender, number, position, service, type, group, view)
        self._groups = groups

    @property
    def groups(self) -> tuple[str, ...]:
        return self._groups


class Owed(Protocol):
    """An answer that this member owes."""

    async def give(self, payload: bytes) -> None: ...


class Request(Message):
    """A call (RMP section 4.5), from a member or from outside, at its position in the order."""

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

        Raises UsageError where another member has to answer, or this one has answered; NotMember where it is out.
        """
        if self._owed is None:
            raise UsageError(
                f"this member did not hold handler {self._handler} when the call came: another one answers"
            )
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
    """This node is out of the group."""

    wanted: bool
    """The application asked for it."""
    returning: bool
    """The node is on its way back as a new member: more events follow."""
    text: str
    """Why, in words."""
    group: str = ""
    """The group, on a shared underlay; empty where the group has an underlay of its own."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Own messages [first, first + count) were lost with this node's membership: others may or may not have them.

    With a `text`: members were restarted, and messages of any sender may be lost that only those had; how many is not
    known, and `count` is 0.
    """

    first: int
    """The number of the first of them."""
    count: int
    """How many they are."""
    group: str = ""
    """The group that they were for, on a shared underlay."""
    text: str = ""
    """What happened, where it was a restart of other members."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages of a sender on regions that will not come: the sender is gone or has forgotten them, and nobody living
    has them. It comes before what the same sender sent after them."""

    sender: str
    """The sender, as name/life."""
    first: int
    """The number of the first message that is missing; -1 where nothing had come from this sender before."""
    count: int
    """How many blocks are missing. A block holds one message or more, of any of this node's groups; the number of the
    sender's next message tells how many messages they were."""
    group: str = ""
    """The group whose handle is told; empty where all groups are received at once."""


class Batch:
    """Consecutive messages of one sender: a block. It is opened when `messages` is first read.

    group: the name of the group.
    view: the id of the view in which it was delivered.
    sender: the member that sent it, as name/life.
    first: the number of its first message; message i has number `first + i`.
    count: how many messages it has, as `len(batch)`.
    position: the position of its first message in the total order, -1 where the service is weaker than AGREED;
    message i has position `position + i`.
    service: the service of all its messages.
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
        at = f", position {self.position}" if self.position != NO_POSITION else ""
        return f"<Batch of {self.count} from {self.sender!r} #{self.first}, {self.service}{at}>"

    @property
    def messages(self) -> Sequence[bytes]:
        """The payloads, one `bytes` each. A block that a faulty member made unreadable has none, at every member."""
        if self._messages is None:
            self._open()
        return self._messages or ()

    @property
    def block(self) -> bytes:
        """The block as it came, for who passes it on unopened; empty where it was opened, or is a part of one."""
        return self._block

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
        """Whether the block could be opened."""
        return len(self.messages) == self.count

    def columns(self) -> tuple[Sequence[int], Buffer, Sequence[int] | int]:
        """Lengths, payloads in a row, and types (one for all, or one each), to write messages on without opening them.

        An unreadable batch has no lengths.
        """
        if self._messages is None:
            try:
                opened = open_columns(self._block)
            except WireError:
                return (), b"", 0
            return opened.lengths, opened.payloads, opened.type
        return list(map(len, self._messages)), b"".join(self._messages), self._types

    def each(self) -> Iterator[Message]:
        """The messages one by one."""
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

    def runs(self) -> Iterator[Batch]:
        """The same messages in batches of one group each, whose numbers and positions have no holes."""
        yield self

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
            self._types = opened.type
        self._block = b""


class MixedBatch(Batch):
    """Messages of a block to several groups: those to one of them, or to all. Numbers and positions have holes."""

    __slots__ = ("_groups", "_index", "_is_multi", "_opened")

    def __init__(
        self,
        opened: OpenedBlock,
        group: str,
        index: Sequence[int] | None,
        groups: Sequence[int] | None,
        *,
        is_multi: bool = True,
    ) -> None:
        """`index`: which messages of the block, if not all. `groups`: all groups that all of them go to; without
        `is_multi` the group of each message of the block."""
        head, start = opened.head, index[0] if index else 0
        is_ordered = opened.service.is_ordered
        super().__init__(
            b"",
            group,
            opened.view,
            opened.sender,
            head.first + start,
            len(index) if index is not None else head.count,
            opened.position + start if is_ordered else NO_POSITION,
            opened.service,
        )
        self._opened = opened
        self._index = index
        self._groups = groups
        self._is_multi = is_multi

    @property
    def part_of(self) -> OpenedBlock | None:
        """The block, where this is its messages to one group; None where it is more."""
        return self._opened if self._groups is None else None

    def with_parts(self, others: Sequence[MixedBatch]) -> MixedBatch:
        """These messages and those to other groups of the same block, in their order."""
        if not others:
            return self
        index = sorted([at for part in (self, *others) for at in part._at])
        return MixedBatch(self._opened, "", index, self._opened.column(), is_multi=False)

    @property
    def block(self) -> bytes:
        """The block as it came, where all of its messages are in the batch."""
        return self._opened.block if self._index is None and self._groups is not None else b""

    @property
    def table(self) -> dict[int, str]:
        """The names of the groups in the block, by their numbers."""
        numbers = list(dict.fromkeys(self._groups if self._groups is not None else self._opened.column()))
        return dict(zip(numbers, self._opened.names(numbers), strict=True))

    @property
    def is_multi(self) -> bool:
        """Whether all messages go to all of `groups`, and not each to one of them."""
        return self._is_multi and self._groups is not None

    @property
    def groups(self) -> Sequence[str]:
        """The name of the group of each message; where all go to several groups, their names instead."""
        if self._groups is None:
            return [self.group] * self.count
        if self._is_multi:
            return self._opened.names(self._groups)
        numbers = self._groups
        return self._opened.names([numbers[at] for at in self._at])

    @property
    def numbers(self) -> Sequence[int]:
        """The number of each message."""
        first = self._opened.head.first
        return [first + at for at in self._at]

    @property
    def positions(self) -> Sequence[int]:
        """The position of each message."""
        if not self.service.is_ordered:
            return [NO_POSITION] * self.count
        return [self._opened.position + at for at in self._at]

    @property
    def _at(self) -> Sequence[int]:
        return self._index if self._index is not None else range(self.count)

    def columns(self) -> tuple[Sequence[int], Buffer, Sequence[int] | int]:
        messages = self.messages
        return list(map(len, messages)), b"".join(messages), self.type

    def each(self) -> Iterator[Message]:
        opened, group, view, sender = self._opened, self.group, self.view, self.sender
        payloads, first, service, type_ = opened.payloads, opened.head.first, self.service, self.type
        base, step = (opened.position, 1) if service.is_ordered else (NO_POSITION, 0)
        if not payloads:
            return
        if self._groups is None:
            for at in self._at:
                yield Message(payloads[at], sender, first + at, base + step * at, service, type_, group, view)
            return
        if not self._is_multi:
            for at, name in zip(self._at, self.groups, strict=True):
                yield Message(payloads[at], sender, first + at, base + step * at, service, type_, name, view)
            return
        names = tuple([name for name in opened.names(self._groups) if not name.startswith(HIDDEN_PREFIX)])
        for at in self._at:
            yield MultiMessage(payloads[at], sender, first + at, base + step * at, service, type_, group, view, names)

    def runs(self) -> Iterator[Batch]:
        messages, at, names = self.messages, self._at, self.groups
        if not messages:
            yield self  # unreadable
            return
        is_one = self._groups is None or self._is_multi
        first, base, step = self._opened.head.first, self._opened.position, 1
        if not self.service.is_ordered:
            base, step = NO_POSITION, 0
        start = 0
        for stop in range(1, self.count + 1):
            if stop < self.count and at[stop] == at[stop - 1] + 1 and (is_one or names[stop] == names[start]):
                continue
            yield Batch(
                b"",
                self.group if is_one else names[start],
                self.view,
                self.sender,
                first + at[start],
                stop - start,
                base + step * at[start],
                self.service,
                messages[start:stop],
                self.type,
            )
            start = stop

    def after(self, taken: int) -> Batch:
        return MixedBatch(self._opened, self.group, self._at[taken:], self._groups, is_multi=self._is_multi)

    def _open(self) -> None:
        payloads = self._opened.payloads
        if not payloads:
            self._messages = ()
        else:
            self._messages = payloads if self._index is None else [payloads[at] for at in self._index]
        self._types = self._opened.type


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


Event = Message | View | Transitional | Failed | Left | Uncertain | Lost | Stalled | Resumed
PortEvent = Batch | View | Transitional | Failed | Left | Uncertain | Lost | Stalled | Resumed
