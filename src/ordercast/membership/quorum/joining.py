"""A newcomer's way into a group: find it, ask to join, or create it (docs/design/membership.md).

Amoeba keeps CreateGroup and JoinGroup apart (section 3); `create` True, False and None say which of them is meant, None
means either. Newcomers that start together hear each other: the lowest id creates, the others wait.

A newcomer cannot know how far the group is. Its questions back off, so that an answer from far away still comes in time
(RMP section 4.6). Datagrams of a group on the same address say that there is one, and it asks on for a while. The first
answer tells the time of a round trip, and its requests go at that pace.

A group can also be joined through one of its members (RMP section 3.3, explicit naming): then only that one is asked,
and only its answer counts, although others may show rings of the same name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ordercast.config import SECOND, GroupConfig
from ordercast.engine import NEVER, Outbox, To
from ordercast.errors import WireError
from ordercast.membership.policy import Newcomer
from ordercast.membership.quorum.local import LocalMember, Wishes
from ordercast.orderers import unsupported_names
from ordercast.view import Address, Member, Reason, View, ring_id
from ordercast.wire.header import Kind
from ordercast.wire.views import Asking, Ring, decode_welcome, encode_asking

JOIN_TRIES: Final = 4  # requests to one leader, each after twice the time, before looking around again
BACK_OFF: Final = 2  # doublings of the time between questions, with the last of them
HOPE_NS: Final = 10 * SECOND  # a member that was asked may have ordered the join: so long its welcome is waited for
HEARSAY_NS: Final = 5 * SECOND  # how long traffic of others on the address keeps a newcomer from making the group
MAX_ATTEMPTS: Final = 64  # of one node whose welcome is accepted: longer than any silence before a recovery
MAX_OLD_CONTACTS: Final = 8  # members of the last view that are asked by a node that comes back
MAX_DEFERENCE: Final = 20  # times that a newcomer starts over because another with a lower id is looking as well


class Joining:
    """State from the first question to the welcome. The membership makes a view of what comes of it."""

    __slots__ = (
        "_ask_whom",
        "_asked_ns",
        "_deferred",
        "_due_ns",
        "_hope_ns",
        "_is_explicit",
        "_is_return",
        "_join_tries",
        "_local",
        "_nonces",
        "_ring",
        "_started_ns",
        "_took_ns",
        "_tries",
        "_wishes",
        "asked",
        "frozen",
        "must_create",
        "newcomer",
        "nonce",
        "refusal",
    )

    def __init__(
        self,
        local: LocalMember,
        wishes: Wishes,
        newcomer: Newcomer,
        is_return: bool = False,
        ask: Sequence[Address] = (To.ANYONE,),
        attempts: deque[int] | None = None,
    ) -> None:
        """`is_return`: this node was a member, and was put out. `ask`: the addresses that are asked for the group.
        Without `To.ANYONE` among them no other answer counts. `attempts`: those of earlier searches, to which ours are
        added: a ring may come to one of them only now."""
        self._local = local
        self._wishes = wishes
        self.newcomer = newcomer
        self._is_return = is_return
        self._ask_whom = ask
        self._is_explicit = To.ANYONE not in ask
        self.nonce = local.rng.getrandbits(63)
        self._nonces: deque[int] = attempts if attempts is not None else new_attempts()
        self._nonces.append(self.nonce)
        self._tries = 0
        self._started_ns = 0
        self._asked_ns = 0  # when the question went out that an answer is for, at the earliest
        self._took_ns = 0  # from a question to its answer, at most
        self._deferred = 0
        self._ring: Ring | None = None
        self._join_tries = 0
        self.asked: set[Address] = set()  # members that may order our join
        self._hope_ns = 0  # until then a member that we asked may have ordered it, and its welcome may come
        self._due_ns = NEVER
        self.frozen: Member | None = None  # it has answered last, and its ring did not work
        # Outcome
        self.must_create = False
        self.refusal = ""

    def start(self, now_ns: int, out: Outbox) -> None:
        self._started_ns = now_ns
        self._ask(now_ns, out)

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._due_ns > now_ns:
            return
        if self._ring is not None and self._join_tries >= JOIN_TRIES:
            self._ring = None
            self._tries = 0
            self.nonce = self._local.rng.getrandbits(63)  # a new attempt: the group takes each only once
            self._nonces.append(self.nonce)
        if self._ring is not None:
            self._join(now_ns, out)
        elif self._tries < self._local.timing.find_tries or self._waits or now_ns < self._hope_ns:
            self._ask(now_ns, out)
        elif self._is_return and self._wishes.alone == "leave":
            self._conclude(f"no member of {self._local.name!r} answers any more")
        elif self._is_explicit:
            asked = " and ".join(f"{host}:{port}" for host, port in self._ask_whom)
            self._conclude(
                f"{asked} does not answer as a member of {self._local.name!r}; without contact= it is looked for"
            )
        elif self._wishes.create is False and not self._is_return:
            self._conclude(f"there is no group {self._local.name!r} here; create=None or create=True would make it")
        else:
            self.must_create = True
            self._due_ns = NEVER

    @property
    def _waits(self) -> bool:
        """Whether the group is looked for without end: it cannot be told from one that goes on without us."""
        return self._is_return and self._wishes.alone == "wait"

    def deadline_ns(self) -> int:
        return self._due_ns

    def on_ring(self, now_ns: int, source: Address, ring: Ring, out: Outbox) -> None:
        """A member has answered, or shown its ring."""
        if self._is_explicit and source not in self._ask_whom:
            return
        if self._wishes.create is True and not self._is_return:
            self._conclude(f"a group {self._local.name!r} exists already; create=None or create=False would join it")
            return
        if not ring.is_working:
            self._tries = 0  # it exists, and may work again: ask on
            self.frozen = ring.leader
            return
        self.frozen = None
        refusal = self._refusal(ring.config)
        if refusal:
            self._conclude(refusal)
            return
        if self._ring is None:
            # One at a time: a ring that let us in after another did would miss us. Rings that meet become one anyway.
            self._ring = ring
            self._took_ns = now_ns - self._asked_ns
            self._join_tries = 0
            self._join(now_ns, out)

    def on_traffic(self, now_ns: int) -> None:
        """Datagrams of a ring that is not ours, probably of the group. Two groups may share an address: not forever."""
        if now_ns - self._started_ns < HEARSAY_NS:
            self._hope_ns = max(self._hope_ns, now_ns + self._local.timing.beacon_ns)

    def _refusal(self, config: GroupConfig) -> str:
        """Why a ring with these parameters is not for us; empty if it is."""
        name, is_shared = self._local.name, self._wishes.is_shared
        if config.shared != is_shared:
            how = f"an underlay that carries groups: join(..., underlay={name!r})" if config.shared else "a group"
            return f"{name!r} is {how}"
        return self._wishes.demands.refusal(config) or unsupported_names(config)

    def on_ended(self, now_ns: int) -> None:
        """The group that this node comes back to is no more: it is made anew if nobody else answers."""
        if self._is_return:
            self._is_return = False
            self._tries = 0
            self._due_ns = min(self._due_ns, now_ns + self._local.timing.find_ns)

    def on_find(self, asking: Asking) -> None:
        """Another newcomer is looking: the one with the lower id goes first."""
        if self._ring is None and asking.member.id < self._local.me.id and self._deferred < MAX_DEFERENCE:
            self._deferred += 1
            self._tries = 0

    @property
    def leader(self) -> Member | None:
        """The member that was asked to let us in, and has not done so yet."""
        return self._ring.leader if self._ring is not None else None

    @property
    def ask_whom(self) -> list[str]:
        """The addresses that are asked one by one, where the group is not looked for by its name."""
        return [f"{host}:{port}" for host, port in self._ask_whom] if self._is_explicit else []

    def accept(self, nonce: int) -> bool:
        """Whether a welcome is for one of our attempts: the group may have come to an earlier one only now. Each is
        accepted once."""
        if nonce not in self._nonces:
            return False
        self._nonces.remove(nonce)
        return True

    def suits(self, view: View, config: GroupConfig) -> bool:
        """Whether the view that lets us in is what we want now. An earlier attempt may have been on other terms, or we
        have sent in another ring since: then what we send would not follow."""
        me, wishes = self._local.me, self._wishes
        mine = view.member(me.id)
        follows = view.numbers.get(me.id) == self.newcomer.next_block
        has_our_terms = mine is not None and mine.min_members == me.min_members and view.header == wishes.header
        may_join = wishes.create is not True or self._is_return
        return follows and has_our_terms and may_join and not self._refusal(config)

    @property
    def nonces(self) -> list[int]:
        """Our attempts that a member may still come to."""
        return list(self._nonces)

    def on_refuse(self, name: str, text: str) -> None:
        """A member of the group `name` will not let us in: if it is the only one that we asked, nobody will."""
        if name != self._local.name:
            return
        if len(self.asked) == 1:
            self.asked.clear()
        self._conclude(text)

    def first_view(self, counter: int) -> View:
        """The view of a group that this node creates."""
        me, newcomer = self._local.me, self.newcomer
        return View(
            counter,
            str(me),
            ring_id(self._local.name, me.id, counter),
            0,
            0,
            0,
            (me,),
            {me.id: newcomer.next_block},
            Reason.CREATE,
            str(me),
            self._wishes.header,
            callers=dict(newcomer.called),
        )

    def _ask(self, now_ns: int, out: Outbox) -> None:
        # Members other than the leader answer from the second question on, which a question to one of them is.
        body = self._asking(self._tries + self._is_explicit)
        for to in self._ask_whom:
            out.sends.append(self._local.writer.control(to, Kind.FIND, body))
        timing, rng = self._local.timing, self._local.rng
        if not 0 < self._tries < timing.find_tries:
            self._asked_ns = now_ns  # the first of a few, or one after a long pause
        if self._tries >= timing.find_tries:
            self.frozen = None  # it does not answer any more
        self._tries += 1
        more = self._tries - timing.find_tries  # up to 0 while it may still make the group
        doublings = min(BACK_OFF + more // 4, 4) if more > 0 else max(0, BACK_OFF + more)
        self._due_ns = now_ns + (timing.find_ns << doublings) + rng.randrange(timing.find_ns // 4)

    def _join(self, now_ns: int, out: Outbox) -> None:
        if self._ring is None:
            return
        leader: Address = self._ring.leader.address
        self.asked.add(leader)
        self._hope_ns = now_ns + HOPE_NS
        out.sends.append(self._local.writer.control(leader, Kind.JOIN, self._asking(self._join_tries)))
        timing, rng = self._local.timing, self._local.rng
        wait_ns = min(max(timing.find_ns, self._took_ns) << self._join_tries, timing.retransmit_max_ns)
        self._join_tries += 1
        self._due_ns = now_ns + wait_ns + rng.randrange(timing.find_ns // 4)

    def _asking(self, tries: int) -> bytes:
        return encode_asking(
            Asking(
                self._local.name,
                self._local.me,
                self.nonce,
                tries,
                self.newcomer.next_block,
                self._wishes.demands,
                self._wishes.header,
                self.newcomer.called,
            )
        )

    def _conclude(self, text: str) -> None:
        self.refusal = text
        self._due_ns = NEVER


def read_welcome(body: bytes) -> tuple[str, int, GroupConfig, View]:
    """The group's name, the attempt that is welcomed, the parameters, and the view. Raises WireError on nonsense."""
    name, nonce, config, view = decode_welcome(body)
    if unsupported_names(config):
        raise WireError("a welcome to what this version does not have")
    return name, nonce, config, view


def new_attempts() -> deque[int]:
    """For the attempts of one node, over all of its searches."""
    return deque(maxlen=MAX_ATTEMPTS)


def whom_to_ask(me: Member, onward: Address | None, contact: Address | None, last: View | None) -> list[Address]:
    """The contact alone at first; after a view `last`, anybody, and known members where multicast may not help.

    `onward`: the leader of the ring that ours has dissolved into.
    """
    contacts = [address for address in (onward, contact) if address is not None]
    if last is None:
        return contacts or [To.ANYONE]
    if contacts or not me.has_multicast:
        contacts += [member.address for member in last.members if member.id != me.id][:MAX_OLD_CONTACTS]
    return list(dict.fromkeys([To.ANYONE, *contacts]))
