"""What a daemon says of itself when a client asks: its sessions, its groups and their members, as JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from ordercast.daemon.seat import Seats, SessionSeat
from ordercast.groups.records import GroupRecord
from ordercast.view import View
from ordercast.wire.client_frames import Question

MAX_LISTED: Final = 20_000
"""Sessions, or groups, in one answer; it says how many there are."""


def answer(seats: Seats, question: Question) -> str:
    """The answer to one query; `error` where it cannot be answered."""
    known = {"status": _status, "groups": _groups, "members": _members}
    teller = known.get(question.what)
    if teller is None:
        words = ", ".join(known)
        return json.dumps({"error": f"no daemon answers to {question.what!r}: ask for {words}"})
    return json.dumps(teller(seats, question.argument))


def _status(seats: Seats, _argument: str) -> dict[str, Any]:
    host = seats.host
    base = next((port for port in host.session.places if port.underlay == seats.underlay), None)
    view = base.view if base is not None else None
    found = base.channel.watching.status_of(base) if base is not None else None
    text, waiting_for = (found.text, found.waiting_for) if found is not None else ("", ())
    if base is not None and not text and not base.channel.engine.is_working:
        # Nobody waits for anything, so nobody has asked yet why nothing goes on.
        waiting = base.channel.engine.waiting(seats.passes.now_ns())
        text, waiting_for = (waiting.text, waiting.waiting_for) if waiting is not None else ("", ())
    sessions = seats.all
    limits = seats.limits
    return {
        "daemon": str(host.me),
        "address": f"{host.me.address[0]}:{host.me.address[1]}",
        "underlay": seats.underlay,
        "orderer": seats.config.orderer,
        "view": view.id if view is not None else None,
        "daemons": [str(member) for member in view.members] if view is not None else [],
        "state": str(found.state) if found is not None else "left",
        "text": text,
        "waiting_for": list(waiting_for),
        "groups": len(_records(seats)),
        "sessions": len(sessions),
        "held_bytes": seats.held_bytes,
        "limits": {
            "session_bytes": limits.session_bytes,
            "total_bytes": limits.total_bytes,
            "max_sessions": limits.max_sessions,
            "blocking": limits.is_blocking,
        },
        "ended": {str(why): count for why, count in seats.endings.items() if count},
        "refused": seats.refused,
        "session_list": [_session(seat) for seat in sessions[:MAX_LISTED]],
    }


def _session(seat: SessionSeat) -> dict[str, Any]:
    stream = seat.base.stream
    return {
        "name": str(seat.member),
        "groups": len(stream.ports),
        "held_bytes": seat.held_bytes,
        "queued_messages": stream.queue.count,
        "queued_bytes": stream.queue.queued_bytes,
        "unconfirmed": seat.next_number - seat.delivered_number,
        "sent": seat.next_number,
    }


def _groups(seats: Seats, _argument: str) -> dict[str, Any]:
    records = [record for record in _records(seats).values() if record.members]
    listed = sorted([(record.name, len(record.members)) for record in records])[:MAX_LISTED]
    return {"groups": [{"name": name, "members": count} for name, count in listed], "count": len(records)}


def _members(seats: Seats, group: str) -> dict[str, Any]:
    record = _records(seats).get(group)
    if record is None or not record.members:
        return {"error": f"no session is in {group!r}"}
    view = _view(seats)
    names = {member.id: str(member) for member in view.members} if view is not None else {}
    members = []
    for node, label in record.members[:MAX_LISTED]:
        name = names.get(node, f"{node:016x}")
        members.append(f"{label}@{name}" if label else name)
    return {"group": group, "members": members, "count": len(record.members)}


def knows_groups(seats: Seats) -> bool:
    """Whether the node has been told of the groups of the underlay: one that has just come has not."""
    base = next((port for port in seats.host.session.places if port.underlay == seats.underlay), None)
    shared = base.channel.shared if base is not None else None
    return shared is not None and base is not None and base.view is not None and shared.roster.is_seeded


def _records(seats: Seats) -> dict[str, GroupRecord]:
    base = next((port for port in seats.host.session.places if port.underlay == seats.underlay), None)
    shared = base.channel.shared if base is not None else None
    return shared.roster.groups if shared is not None else {}


def _view(seats: Seats) -> View | None:
    return next((port.view for port in seats.host.session.places if port.underlay == seats.underlay), None)
