"""The quorum policy: of the parts that a failure leaves of a ring, at most one goes on (docs/design/overview.md section
7)."""

from ordercast.membership.quorum.membership import QuorumMembership

__all__ = ["QuorumMembership"]
