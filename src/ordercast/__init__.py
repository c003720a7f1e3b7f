"""Group communication: every member sees the same messages, joins, leaves and failures in the same order."""

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Failed, Transitional
from ordercast.errors import (
    CallTimeout,
    GroupFailed,
    InvariantViolation,
    JoinRefused,
    MessageTooLarge,
    NotEnoughMembers,
    NotMember,
    OrdercastError,
    OutcomeUnknown,
    Unhandled,
    UnsupportedService,
    UsageError,
)
from ordercast.groups.events import Answer, Batch, Event, Left, Message, Request, Uncertain
from ordercast.groups.group import Group
from ordercast.groups.locking import Handler, Lock
from ordercast.groups.transactions import Missed, Transaction, Transactions, TransactionTooLarge, publish, transactions
from ordercast.runtime.blocking import BlockingGroup, BlockingNode
from ordercast.runtime.node import Node, run
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
    "BlockingGroup",
    "BlockingNode",
    "CallTimeout",
    "Event",
    "Failed",
    "Group",
    "GroupConfig",
    "GroupFailed",
    "Handler",
    "InvariantViolation",
    "JoinRefused",
    "Left",
    "Lock",
    "Member",
    "Message",
    "MessageTooLarge",
    "Missed",
    "Node",
    "NotEnoughMembers",
    "NotMember",
    "OrdercastError",
    "OutcomeUnknown",
    "Reason",
    "Request",
    "Service",
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
    "parse_service",
    "publish",
    "run",
    "transactions",
]
