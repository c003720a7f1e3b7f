"""Group communication: every member sees the same messages, joins, leaves and failures in the same order."""

from ordercast.api.feeding import Feed
from ordercast.api.group import Group
from ordercast.api.locking import Handler, Lock, LockHolder
from ordercast.api.resolved import ResolvedGroups
from ordercast.api.shared import SharedUnderlay
from ordercast.api.transactions import Missed, Transaction, Transactions, TransactionTooLarge, publish, transactions
from ordercast.client.node import ClientNode, connect
from ordercast.config import GroupConfig, Timing
from ordercast.engine import Failed, StallReason, Transitional
from ordercast.errors import (
    CallTimeout,
    GroupFailed,
    InvariantViolation,
    JoinRefused,
    LockDenied,
    MessageTooLarge,
    NotEnoughMembers,
    NotMember,
    OrdercastError,
    OutcomeUnknown,
    OutOfDescriptors,
    Unhandled,
    UnsupportedService,
    UsageError,
)
from ordercast.groups.events import Answer, Batch, Event, Left, Lost, Message, MixedBatch, Request, Uncertain
from ordercast.groups.status import GroupState, GroupStatus, Resumed, Stalled
from ordercast.runtime.blocking import BlockingNode
from ordercast.runtime.blocking_client import BlockingClient, connect_blocking
from ordercast.runtime.blocking_group import BlockingFeed, BlockingGroup, BlockingHandler, BlockingLock
from ordercast.runtime.blocking_shared import BlockingUnderlay
from ordercast.runtime.node import Node
from ordercast.runtime.running import run
from ordercast.service import (
    AGREED,
    CAUSAL,
    FIFO,
    MAJORITY,
    RELIABLE,
    RESILIENT,
    SAFE,
    UNRELIABLE,
    Service,
    parse_service,
)
from ordercast.view import Member, Reason, View

__all__ = [
    "AGREED",
    "CAUSAL",
    "FIFO",
    "MAJORITY",
    "RELIABLE",
    "RESILIENT",
    "SAFE",
    "UNRELIABLE",
    "Answer",
    "Batch",
    "BlockingClient",
    "BlockingFeed",
    "BlockingGroup",
    "BlockingHandler",
    "BlockingLock",
    "BlockingNode",
    "BlockingUnderlay",
    "CallTimeout",
    "ClientNode",
    "Event",
    "Failed",
    "Feed",
    "Group",
    "GroupConfig",
    "GroupFailed",
    "GroupState",
    "GroupStatus",
    "Handler",
    "InvariantViolation",
    "JoinRefused",
    "Left",
    "Lock",
    "LockDenied",
    "LockHolder",
    "Lost",
    "Member",
    "Message",
    "MessageTooLarge",
    "Missed",
    "MixedBatch",
    "Node",
    "NotEnoughMembers",
    "NotMember",
    "OrdercastError",
    "OutOfDescriptors",
    "OutcomeUnknown",
    "Reason",
    "Request",
    "ResolvedGroups",
    "Resumed",
    "Service",
    "SharedUnderlay",
    "StallReason",
    "Stalled",
    "Timing",
    "Transaction",
    "TransactionTooLarge",
    "Transactions",
    "Transitional",
    "Uncertain",
    "Unhandled",
    "UnsupportedService",
    "UsageError",
    "View",
    "connect",
    "connect_blocking",
    "parse_service",
    "publish",
    "run",
    "transactions",
]
