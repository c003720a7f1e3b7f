"""Workers that share tasks without a coordinator. One crashes; the others agree, without a word, who does its share.

Runs on loopback: `python examples/workers.py`; in the simulator, in virtual time: with `--sim`.
Tasks, results and views come to all in one order, so each worker can compute for itself who does what.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import ordercast
from ordercast.sim.api import SimNode, simulate

TASKS = 30
TASK, DONE = 1, 2


async def work(node: Any, group: ordercast.Group, crash: Callable[[Any], None] | None = None) -> dict[str, str]:
    """Do own tasks until all are done; who did what. With `crash`: die at the third own task."""
    members, tasks, done, own = [""], list[str](), dict[str, str](), 0
    async for event in group:
        todo: list[str] = []
        if isinstance(event, ordercast.View):  # a member that is gone leaves its tasks: deal the open ones again
            members, todo = [member.name for member in event.members], [task for task in tasks if task not in done]
        elif isinstance(event, ordercast.Message) and event.type == TASK:
            tasks.append(event.payload.decode())
            todo = tasks[-1:]
        elif isinstance(event, ordercast.Message):
            task, worker = event.payload.decode().split(" by ")
            done.setdefault(task, worker)  # done twice: the first in the order counts for all members
        for task in todo:
            if members[int(task) % len(members)] == node.name:
                own += 1
                if crash is not None and own == 3:
                    crash(node)
                    return done
                await group.send(f"{task} by {node.name}".encode(), type=DONE)
        if len(done) == TASKS:
            break
    return done


async def main(node: Callable[[str], Any], crash: Callable[[Any], None]) -> list[dict[str, str]]:
    async with node("ann") as ann, node("bob") as bob, node("cleo") as cleo:
        groups = [await each.join("tasks") for each in (ann, bob, cleo)]
        await groups[2].send_many([b"%d" % number for number in range(TASKS)], type=TASK)
        return list(await asyncio.gather(work(ann, groups[0], crash), work(bob, groups[1]), work(cleo, groups[2])))


if __name__ == "__main__":
    if "--sim" in sys.argv:
        found = simulate(lambda node: main(node, SimNode.crash))
    else:
        found = ordercast.run(main(ordercast.Node, ordercast.Node.abort))
    print("bob and cleo agree:", found[1] == found[2], "tasks done:", len(found[1]))
