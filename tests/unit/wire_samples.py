"""Values of every wire format, fixed for ever: golden bytes are made of them."""

from __future__ import annotations

from ordercast.config import Demands, GroupConfig
from ordercast.engine import Change
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.calls import IS_ANSWER, NO_HANDLER, WANTS_ACK, WANTS_AGAIN, CallHead, Reply
from ordercast.wire.ordering import Acks, Assignment, Lead, Missing
from ordercast.wire.stamps import ASKS, Acked, Bound, Bounds, Decided, Next, Stamps
from ordercast.wire.token import HOLDS, HURRY, State
from ordercast.wire.views import Asking, Ballot, Cut, Proposal, ResetDemand, Ring

ALICE = Member(node_id("alice", 0), "alice", 0, ("10.0.0.1", 7_000), 4 << 20)
BOB = Member(node_id("bob", 2), "bob", 2, ("10.0.0.2", 7_001), 212_992, has_multicast=False, ttl=8, min_members=2)
CAROL = node_id("carol", 1)  # a caller that is no member
CONFIG = GroupConfig("sequencer", 1, 16, 65_536, 128, 1 << 20, 1_400, "open", bootstrap=3)
VIEW = View(
    counter=7,
    creator="alice/0",
    ring=0x1122334455667788,
    incarnation=3,
    seq=41,
    position=1_000,
    members=(ALICE, BOB),
    numbers={ALICE.id: 12, BOB.id: 5},
    reason=Reason.JOIN,
    subject="bob/2",
    header=b"hi",
    prior=(ALICE.id,),
    prior_rules=("majority",),
    locks={"ledger": BOB.id, "2": ALICE.id},
    tokens={"ledger": 6, "2": 7},
    callers={CAROL: 4},
    awaited={ALICE.id: 14},
    lock="ledger",
    serial=3,
    largest_before=3,
)
LEAD = Lead(highest=41, stable=30, safe=35, active=2)
ACKS = Acks(received=40, consumed=38)
ASSIGNMENTS = [Assignment(41, ALICE.id, 12, 3), Assignment(44, BOB.id, 5, 1)]
MISSING = [Missing(0, 39, 2, 0, 0), Missing(BOB.id, 5, 1, 2, 4)]
HOLDING = [(ALICE.id, 15), (BOB.id, 6)]
BALLOT = Ballot(round=2, highest=40, seniority=65_535, node=ALICE.id)
PROPOSAL = Proposal(BALLOT, True, 38, (Assignment(39, BOB.id, 4, 2),), VIEW)
HELD = ((ALICE.id, 12, 2), (BOB.id, 5, 1))
CUT = Cut(
    40,
    35,
    (Assignment(42, BOB.id, 5, 1),),
    HELD,
    VIEW,
    17,
    PROPOSAL,
    (ResetDemand(3, b"hello"), ResetDemand("all", b"")),
)
DECISION = (41, True)
WITHDRAWAL = ("prices", [0x0102030405060708, 9], True)
ASKING = Asking("prices", BOB, 0x0102030405060708, 1, 5, Demands(8, None, 1 << 20), b"hi", {CAROL: 4})
CALL = CallHead(3, WANTS_ACK | WANTS_AGAIN, 2, "carol/1", ("10.0.0.3", 7_002))
ANSWER = CallHead(0, IS_ANSWER, NO_HANDLER, "bob/2", ("", 0), ALICE.id, 4, "alice/0")
REPLY = Reply(CAROL, 1, 1_000, b"42", 65_536)
RING = Ring("prices", 0x1122334455667788, 7, "alice/0", 2, True, ALICE, CONFIG)
STATE = State(turn=90, site=BOB.id, highest=44, view=41, flags=HOLDS | HURRY, rows=(44, 40, 0))
JOIN = Change(Reason.JOIN, BOB, b"hi", 5, "", 0x0102030405060708, {CAROL: 4})
LOCK = Change(Reason.LOCK, ALICE, lock="ledger", serial=3)
STAMPS = Stamps(
    view=41,
    clock=1_007,
    highest=44,
    sent=15,
    decided=13,
    rows=(44, 40),
    nexts=(Next(1, 8),),
    acks=[Acked(ALICE.id, 13, (1_004, 1_007)), Acked(BOB.id, 5, (1_000,))],
    decisions=[
        Decided(ALICE.id, 12, (1_003, BOB.id), 41, Bounds(1_006, 1, (Bound(0, 13, 1_004, 1), Bound(1, 5, 1_002, 0)))),
        Decided(ALICE.id, 13, (1_005, BOB.id), 41, Bounds(1_006, 1)),
        Decided(ALICE.id, 11, (1_001, ALICE.id), 30),
    ],
    flags=ASKS,
)
SILENT = Stamps(view=41, clock=0, highest=41, sent=0, decided=0, rows=())
