"""Group communication: every member sees the same messages, joins, leaves and failures in the same order."""

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Failed, Transitional
from ordercast.errors import (
    GroupFailed,
    InvariantViolation,
    JoinRefused,
    MessageTooLarge,
    NotEnoughMembers,
    NotMember,
    OrdercastError,
    OutcomeUnknown,
    UnsupportedService,
    UsageError,
)
from ordercast.groups.events import Batch, Event, Left, Message, Uncertain
from ordercast.groups.group import Group
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
    "Batch",
    "BlockingGroup",
    "BlockingNode",
    "Event",
    "Failed",
    "Group",
    "GroupConfig",
    "GroupFailed",
    "InvariantViolation",
    "JoinRefused",
    "Left",
    "Member",
    "Message",
    "MessageTooLarge",
    "Node",
    "NotEnoughMembers",
    "NotMember",
    "OrdercastError",
    "OutcomeUnknown",
    "Reason",
    "Service",
    "Timing",
    "Transitional",
    "Uncertain",
    "UnsupportedService",
    "UsageError",
    "View",
    "parse_service",
    "run",
]
