"""What `SiteProcesses` and `ClientProcesses` have in common: processes by name, and what is said to all of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from time import monotonic, monotonic_ns
from typing import Any, Final

from ordercast.cli.children import Child, ChildFailed, Saying

POLL_S: Final = 0.05


class ProcessCrew:
    """Processes that live, and those that were killed."""

    __slots__ = ("_answer_s", "_fallen", "_what", "children")

    def __init__(self, what: str, answer_s: float) -> None:
        """`what`: they are called in texts. `answer_s`: how long one may take to answer, or to end."""
        self._what = what
        self._answer_s = answer_s
        self._fallen: list[Child] = []
        self.children: dict[str, Child] = {}

    @property
    def everybody(self) -> list[Child]:
        """Also those that were killed."""
        return [*self.children.values(), *self._fallen]

    async def start(self, name: str, module: str, settings: Mapping[str, Any], prefix: Sequence[str] = ()) -> None:
        self.children[name] = await Child.start(name, module, settings, prefix)

    async def crash(self, names: Collection[str]) -> int:
        """SIGKILL; when the last of them had got it (`monotonic_ns`)."""
        fallen = [self.children.pop(name) for name in names]
        for child in fallen:
            child.signal(signal.SIGKILL)
        at_ns = monotonic_ns()
        for child in fallen:
            await child.fall(self._answer_s)
        self._fallen += fallen
        return at_ns

    async def await_death(self, name: str, timeout_s: float) -> int:
        """Of a process that was told to die by itself; when it was noticed (`monotonic_ns`)."""
        await self.children[name].fall(timeout_s)
        self._fallen.append(self.children.pop(name))
        return monotonic_ns()

    async def pause(self, name: str, seconds: float) -> None:
        """SIGSTOP for a while."""
        child = self.children[name]
        child.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            child.signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End every process without a warning, whatever happened before."""
        await asyncio.gather(*(child.kill() for child in self.children.values()))

    def tell(self, word: str, **fields: Any) -> None:
        for child in self.children.values():
            child.tell(word, **fields)

    async def ask(self, word: str = "ask", answer: str = "answer") -> dict[str, Saying]:
        """Where each process is; everything that was told before is done."""
        children = list(self.children.values())
        answers = await asyncio.gather(*(child.ask(word, answer, self._answer_s) for child in children))
        return {child.name: said for child, said in zip(children, answers, strict=True)}

    async def until(
        self, is_so: Callable[[Mapping[str, Saying]], bool], shown: Callable[[Saying], str], timeout_s: float
    ) -> dict[str, Saying]:
        """Wait until they answer as they should; what they said then. `shown`: an answer in few words, for an error."""
        deadline_s = monotonic() + timeout_s
        while True:
            answers = await self.ask()
            if is_so(answers):
                return answers
            if monotonic() > deadline_s:
                seen = {name: shown(said) for name, said in answers.items()}
                raise ChildFailed(f"the {self._what} are not where they should be after {timeout_s:g} s: {seen}")
            await asyncio.sleep(POLL_S)

    async def drain(self, got: Callable[[Saying], Hashable], timeout_s: float) -> dict[str, Saying]:
        """Wait until nobody sends, and all have got the same; what they said then."""
        await self.ask("quiet", "flushed")
        return await self.until(
            lambda answers: len({got(said) for said in answers.values()}) == 1,
            lambda said: f"{got(said)}",
            timeout_s,
        )
