"""Histories of views, made by hand for the judges. Times are milliseconds, and `a b c` are lives a/0, b/0, c/0. `a+` is
the life a/1, which was restarted with what a/0 had kept, and `a++` the next one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ordercast.config import MS, SECOND, MinMembers
from ordercast.sim.checkers.chain import branches, installed_views
from ordercast.sim.checkers.restarts import Expulsion, KeptView, ResetSpan, broken_restarts, linked_views
from ordercast.sim.checkers.stuck import Excuse, LifeSpan, Trouble, Wish, excuse_of
from ordercast.sim.checkers.views import Rules
from ordercast.trace.schema import Row


@dataclass
class History:
    """What happened, step by step."""

    rules: Rules = "majority"
    is_manual: bool = False
    lives: dict[str, LifeSpan] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    expulsions: list[Expulsion] = field(default_factory=list)
    resets: list[ResetSpan] = field(default_factory=list)
    kept: list[KeptView] = field(default_factory=list)

    def start(self, names: str, at: int = 0) -> History:
        for name in names.split():
            self.lives[name] = LifeSpan(f"{name}/0", at * MS, wishes=(Wish(at * MS, is_join=True),))
        return self

    def view(self, members: str, reason: str = "join", *, by: str = "", at: int = 100, name: str = "") -> History:
        """Installed by those named, or by all of its members. It is named after its members, if not otherwise."""
        for node in (by or members).split():
            listed = tuple(_life(each) for each in members.split())
            self._row(node, at, "view", view=name or members, members=listed, detail=reason)
        return self

    def came(self, name: str, at: int) -> History:
        """It came in, and has not installed a view yet."""
        return self._row(name, at, "join")

    def leave(self, name: str, at: int, out: int = -1) -> History:
        """It asks to leave, and is out at `out`."""
        self._wish(name, at, is_join=False)
        self.lives[name] = replace(self.lives[name], is_wanted=False)
        return self.gone(name, out) if out >= 0 else self

    def gone(self, name: str, at: int) -> History:
        return self._row(name, at, "leave")

    def expelled(self, name: str, view: str, at: int) -> History:
        """It is told that it was expelled from the view."""
        return self._row(name, at, "leave", view=view, detail="expelled by x/0: it does not receive")

    def rejoin(self, name: str, at: int) -> History:
        self._wish(name, at, is_join=True)
        self.lives[name] = replace(self.lives[name], is_wanted=True)
        return self

    def crash(self, names: str, at: int) -> History:
        for name in names.split():
            self.lives[name] = replace(self.lives[name], ended_ns=at * MS, is_wanted=False)
        return self

    def restart(self, name: str, at: int) -> History:
        """Its next life begins, with what this one kept."""
        wishes = (Wish(at * MS, is_join=True),)
        self.lives[f"{name}+"] = LifeSpan(_life(f"{name}+"), at * MS, wishes=wishes, former=_life(name))
        return self

    def stalled(self, name: str, at: int, detail: str) -> History:
        return self._row(name, at, "stalled", detail=detail)

    def resumed(self, name: str, at: int) -> History:
        return self._row(name, at, "resumed")

    def trouble(self, names: str, at: int, until: int) -> History:
        self.troubles.append(Trouble(at * MS, until * MS, frozenset(names.split())))
        return self

    def pause(self, names: str, at: int, until: int) -> History:
        self.troubles.append(Trouble(at * MS, until * MS, frozenset(names.split()), is_pause=True))
        return self

    def partition(self, side: str, at: int, until: int) -> History:
        everybody = frozenset(name.rstrip("+") for name in self.lives)
        self.troubles.append(Trouble(at * MS, until * MS, everybody, side=frozenset(side.split())))
        return self

    def may_be_expelled(self, name: str, at: int, until: int) -> History:
        self.expulsions.append(Expulsion(name, at * MS, until * MS))
        return self

    def reset(self, rule: MinMembers, size: int, at: int, until: int) -> History:
        """A member called `reset` and was told that the group has so many members."""
        self.resets.append(ResetSpan(rule, size, at * MS, until * MS))
        return self

    def keeps(self, name: str, view: str, at: int, reason: str = "restart") -> History:
        """It has stored a view that is named after its members."""
        members = tuple(_life(each) for each in view.split())
        self.kept.append(KeptView(_life(name).partition("/")[0], at * MS, view, members, reason))
        return self

    def excuse(self) -> Excuse | None:
        lives = list(self.lives.values())
        return excuse_of(self.rows, lives, self.troubles, self.rules, is_manual=self.is_manual)

    def branches(self) -> list[str]:
        return branches(installed_views(self.rows), self.rules)

    def restarts(self) -> list[str]:
        """What is wrong with the views of restarted members."""
        lives = {life.member: life for life in self.lives.values()}
        wrong = branches(linked_views(self.rows, lives, self.rules, self.kept), self.rules)
        wait_ns = 3 * SECOND
        return wrong + broken_restarts(
            self.rows, lives.values(), self.troubles, self.rules, wait_ns, self.expulsions, self.resets, self.kept
        )

    def _wish(self, name: str, at: int, *, is_join: bool) -> None:
        life = self.lives[name]
        self.lives[name] = replace(life, wishes=(*life.wishes, Wish(at * MS, is_join)))

    def _row(self, name: str, at: int, kind: str, **more: object) -> History:
        node, _, life = _life(name).rpartition("/")
        count = sum((row.node, row.life) == (node, int(life)) for row in self.rows)
        self.rows.append(Row(node, int(life), count, at * MS, kind, "sim", **more))  # type: ignore[arg-type]
        return self


def _life(name: str) -> str:
    node = name.rstrip("+")
    return f"{node}/{len(name) - len(node)}"


def group(members: str, rules: Rules = "majority", *, is_manual: bool = False) -> History:
    return History(rules, is_manual).start(members).view(members, "create")
