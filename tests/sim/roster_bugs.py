"""Bugs of the roster, and of what channels do with it: many lightweight groups on one underlay (docs/design/roster.md).

They are shown by the random scenarios of `ordercast fuzz --many-groups`.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.many_groups import MANY_GROUPS


def _bug(
    name: str,
    function: str,
    old: str | tuple[str, ...],
    new: str | tuple[str, ...],
    breaks: str,
    bound: int,
    orderer: str = "sequencer",
) -> Bug:
    return Bug(name, function, old, new, breaks, bound, orderer, MANY_GROUPS)


ROSTER_BUGS: Final[tuple[Bug, ...]] = (
    # Numbers and names
    _bug(
        "the number of a group that ended is given again",
        "GroupTable._drop",
        "del self.numbers[record.number]",
        "del self.numbers[record.number]; self.next_number = min(self.next_number, record.number)",
        "A message to the group that ended would come to the new one.",
        30,
    ),
    _bug(
        "a name that comes back has its old number",
        "GroupTable._make",
        ("number = self.next_number", "self.next_number = number + 1"),
        (
            "number = next((one for one, ended in self.ended.items() if ended == name), self.next_number)",
            "self.next_number = max(self.next_number, number + 1)",
        ),
        "The same.",
        30,
        "token",
    ),
    _bug(
        "a namer does not keep its group",
        "GroupTable._leave",
        "if not record.members and not record.namers: self._drop(record)",
        "if not record.members: self._drop(record)",
        "The group ends while a message to it is under way, and the number of the message is nobody's.",
        40,
    ),
    _bug(
        "an open send does not wait for the names of all its groups",
        "GroupNames.numbers",
        "return None if NO_NUMBER in numbers else numbers",
        "return [number for number in numbers if number != NO_NUMBER]",
        "The message goes to those groups only that have a number already.",
        30,
        "token",
    ),
    _bug(
        "names of groups are looked up in the roster of now",
        "Reception._run_shared",
        "shared.roster.current_names",
        "lambda number: getattr(shared.roster.at(number), 'name', '')",
        "A message that is opened late does not know the names of groups that have ended since.",
        30,
        "timestamp",
    ),
    # Joins and leaves
    _bug(
        "an own join is applied when it is offered",
        "SharedGroups.offer",
        "for body in encode_joins(label, header, groups, JOINS_BYTES): queue.offer_operation(body)",
        """
        for body in encode_joins(label, header, groups, JOINS_BYTES):
            queue.offer_operation(body)
            self.roster.apply(self._seq, self._channel.me.id, body)
        """,
        "It has no place in the order: rosters differ.",
        30,
    ),
    _bug(
        "a second join makes another view",
        "GroupTable._join",
        "if new is old: continue",
        "",
        "A group view that changes nothing.",
        60,
        "token",
    ),
    _bug(
        "a leave does not wait for what was sent before",
        "Port.may_leave",
        "self.stream.lowest_undelivered",
        "(1 << 62)",
        "The leaver does not get its own messages, and others get them in a view without their sender.",
        60,
    ),
    _bug(
        "a join that was given up is not taken back",
        "SharedGroups._on_own",
        "self._leaving.append((label, record.number, why))",
        "pass",
        "The roster has a member that is not there.",
        100,
    ),
    _bug(
        "a leave is not told to the port",
        "SharedGroups._on_own",
        "self._on_left(now_ns, port)",
        "pass",
        "The port stays where its session is not any more.",
        30,
        "timestamp",
    ),
    # Views of the underlay
    _bug(
        "sessions of a node that is gone stay",
        "GroupTable.on_view",
        "return self._take_out(gone, view) if gone else []",
        "return []",
        "A crash takes nobody out of any group.",
        30,
    ),
    _bug(
        "namers of a node that is gone stay",
        "GroupTable._take_out",
        "record.namers = self._without(record.namers, gone)",
        "pass",
        "Groups that nobody is in, and nobody sends to, never end; a newcomer's roster is another.",
        30,
    ),
    _bug(
        "a member comes with all others",
        "SharedGroups._on_change",
        "came_with = stayed if mine in change.before else (mine,)",
        "came_with = change.after",
        "A session that joins comes from the same view as the others.",
        30,
    ),
    _bug(
        "changes of one view of the underlay share an id",
        "GroupTable._take_out",
        "changes += 1",
        "pass",
        "Group views of one group have one id, and different members.",
        30,
        "timestamp",
    ),
    # Newcomers
    _bug(
        "newcomers count as seeded",
        "GroupTable.on_view",
        "self.unseeded.update((node, seq) for node in self.members if node not in before)",
        "",
        "Nobody seeds them.",
        30,
    ),
    _bug(
        "operations of nodes that are gone count",
        "GroupTable.apply",
        "origin not in self.members or origin in self.unseeded",
        "origin in self.unseeded",
        "A node that crashed comes into groups that nobody takes it out of.",
        230,
        "token",
    ),
    _bug(
        "a seed serves also those that came later",
        "GroupTable.on_seed",
        "came > as_of",
        "False",
        "Nodes that came while it was under way are not seeded by anybody.",
        120,
    ),
    _bug(
        "a newcomer applies what its seed has already",
        "UnseededNode.on_seed",
        "self._go_over(table, part.as_of)",
        "self._go_over(table, -1)",
        "Views, joins and leaves from before the seed count twice.",
        30,
    ),
    _bug(
        "a newcomer begins one behind the place of its seed",
        "UnseededNode.on_seed",
        "self._go_over(table, part.as_of)",
        "self._go_over(table, part.as_of + 1)",
        "The first operation behind the seed is missing in the newcomer's roster.",
        30,
        "token",
    ),
    _bug(
        "a newcomer passes over what it has kept",
        "UnseededNode._go_over",
        "table.apply(origin, read_operation(seq, entry))",
        "table.passed_over += 1",
        "Operations between the seed and its last part are missing in the newcomer's roster.",
        70,
    ),
    _bug(
        "parts of a seed are not counted",
        "Candidate.add",
        "self._part += 1",
        "",
        "A roster that takes several parts never comes to newcomers.",
        60,
    ),
    _bug(
        "a seed has no next number",
        "GroupTable.restore",
        "self.next_number = state.next_number",
        "self.next_number = max([0, *self.numbers]) + 1",
        "The newcomer gives the number of a group that has ended.",
        60,
    ),
    _bug(
        "a seed does not count changes",
        "GroupTable.restore",
        "self.changes = state.changes",
        "",
        "The newcomer gives other ids to group views.",
        40,
        "timestamp",
    ),
    _bug(
        "a seed has no namers",
        "Roster.seed",
        "namers = [record.namers for record in records]",
        "namers = [() for record in records]",
        "The newcomer lets groups end that others keep.",
        30,
        "token",
    ),
    _bug(
        "operations take no sequence number",
        "SharedGroups.on_operation",
        "self._seq += 1",
        "",
        "A seed does not say behind which of them it stands.",
        30,
    ),
    # One roster after the other
    _bug(
        "a port keeps its number out of the underlay",
        "SharedGroups.on_departed",
        "port.number = NO_NUMBER",
        "pass",
        "Messages of the next stay go to whatever group has that number there.",
        240,
        "token",
    ),
    # What a session receives
    _bug(
        "a message to several groups comes once for each",
        "Reception._parts",
        "found.setdefault(id(port.stream), port)",
        "found.setdefault(id(port), port)",
        "A session that is in two of them gets it twice.",
        30,
    ),
    _bug(
        "a message to several groups goes to the first",
        "Reception._parts",
        "for number in groups: \n for port in routes.get(number, ()): found.setdefault(id(port.stream), port)",
        "for number in groups[:1]: \n for port in routes.get(number, ()): found.setdefault(id(port.stream), port)",
        "Sessions in the other groups do not get it.",
        30,
        "token",
    ),
    _bug(
        "a group is not wanted when it is joined",
        "Reception.attach",
        "port.stream.wanted.add(port.number)",
        "",
        "A session that receives all groups in one order does not get its messages.",
        30,
    ),
    _bug(
        "a group is wanted when it was left",
        "Reception.detach",
        "port.stream.wanted.discard(port.number)",
        "",
        "The session goes on getting its messages.",
        30,
        "timestamp",
    ),
    _bug(
        "messages to wanted groups come in the wrong order",
        "WantedGroups.pick",
        "np.flatnonzero(found).tolist()",
        "np.flatnonzero(found)[::-1].tolist()",
        "A session that receives all groups in one order has another one than the others.",
        30,
    ),
    _bug(
        "the column of a batch is turned round",
        "Stretch.column",
        "groups.numbers[self.at : self.at + count]",
        "groups.numbers[self.at : self.at + count][::-1]",
        "Messages come to each other's groups.",
        30,
    ),
    _bug(
        "a block that mixes groups has too few rows",
        "row_runs",
        "is_other = column[1:] != column[:-1]",
        "is_other = column[1:] > column[:-1]",
        "The trace shows a message under a group that it was not for.",
        30,
        "token",
    ),
    # Locks and calls
    _bug(
        "a lock has the name of its group's remainder",
        "Port.take_steps",
        'named = f"{self.number}:{key}" if channel.shared is not None else key',
        'named = f"{self.number // 2}:{key}" if channel.shared is not None else key',
        "Locks of different groups are one.",
        30,
        "token",
    ),
    _bug(
        "locks of a port that ended stay",
        "SharedLocks.detach",
        "self.unlocking.update({lock: None for lock in self._own if lock.startswith(prefix)})",
        "",
        "Nobody gives them back.",
        180,
        "token",
    ),
    _bug(
        "a call goes to any group",
        "Reception.run",
        "port.calls.deliver(call)",
        "next(iter(routes.values()))[0].calls.deliver(call)",
        "The holder of another group's handler answers.",
        30,
        "token",
    ),
)
