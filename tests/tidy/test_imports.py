"""The import rules of docs/design/overview.md section 4, read off the syntax trees: who may know whom, and who may know
the time.

A *room* is a folder or a module directly under `src/ordercast`. `SEES` says which rooms each may import; it holds also
for imports inside functions and for those that only a type checker follows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "ordercast"
PACKAGE = "ordercast"

TYPES = frozenset({"errors", "service", "view", "config", "engine", "sites"})
PROTOCOL = frozenset({"wire", "parts", "membership", "orderers", "underlay"})
FACADE = "__init__"  # the public names

# wire, parts <- membership, orderers <- underlay <- groups <- api <- gms <- runtime, client <- daemon <- sim, cli.
# Where two rooms share a step at most one sees the other, so that no two rooms need each other. Rooms that are still to
# be built have their rule.
SEES: dict[str, frozenset[str]] = {
    **dict.fromkeys(TYPES, TYPES),
    "wire": TYPES,
    "parts": TYPES | {"wire"},
    "orderers": TYPES | {"wire", "parts"},
    "membership": TYPES | {"wire", "parts", "orderers"},
    "underlay": TYPES | {"wire", "parts", "membership", "orderers"},
    "trace": TYPES,
    "archive": TYPES | {"trace", "groups", "api"},  # a recorder is a member
    "groups": TYPES | PROTOCOL | {"trace"},
    "api": TYPES | {"wire", "groups"},
    "gms": TYPES | {"wire", "parts", "membership", "orderers", "groups", "api"},  # the service is a program on the API
    "runtime": TYPES | PROTOCOL | {"trace", "groups", "api", "client", "gms"},  # blocking twins of both kinds of node
    "sim": TYPES | PROTOCOL | {"trace", "groups", "api", "client", "daemon", "gms"},  # daemons and clients as they are
    "figures": TYPES | PROTOCOL | {"groups", "sim"},  # what the papers measured, again
    "explore": TYPES | {"wire", "groups"},  # real engines behind hosts, and nothing of what they decide by
    FACADE: TYPES | {"wire", "groups", "api", "runtime", "client"},
    "client": TYPES | {"wire", "groups", "api"},
    "daemon": TYPES | PROTOCOL | {"trace", "archive", "groups", "api", "runtime", "client", FACADE},
    "pipeline": TYPES | {"trace", "archive", "groups", "api", FACADE},  # the sink of streams is a member, too
    "cli": TYPES
    | PROTOCOL
    | {
        "trace",
        "archive",
        "groups",
        "api",
        "runtime",
        "gms",
        "sim",
        "figures",
        "explore",
        "daemon",
        "client",
        "pipeline",
        FACADE,
    },
}

# Time and chance are arguments in these rooms (docs/design/overview.md section 5), and nothing waits.
QUIET = TYPES | PROTOCOL | {"groups"}
WORLDLY = frozenset({"asyncio", "socket", "time", "threading"})
# What would bring the same in by another door.
ALSO_WORLDLY = frozenset({"concurrent", "datetime", "multiprocessing", "secrets", "select", "selectors", "uuid"})

# The API stands on `Seat`: one module of it knows what is below.
LOCAL = "api/local.py"
LOCAL_SEES = ("ordercast.groups.host", "ordercast.groups.port", "ordercast.groups.channel", "ordercast.groups.session")

ORDERERS = ("sequencer", "token", "timestamp", "sites", "regions")

# The judges know rows only, or they would share the protocols' errors.
JUDGES = "sim/checkers/"
JUDGES_SEE = ("ordercast.sim.checkers", "ordercast.trace", "ordercast.service", "ordercast.config", "ordercast.errors")


class Import(NamedTuple):
    """One imported module: its dotted name and the line."""

    module: str
    line: int


# The rules. ----------------------------------------------------------------------------------------------------------


def violations(path: str, source: str) -> list[str]:
    """What one module does against the rules; `path` is relative to the package, with slashes."""
    tree = ast.parse(source)
    found = []
    room = room_of_path(path)
    if room not in SEES:
        return [f"{path}: no rule says what {room!r} may import; add it to SEES"]
    for module, line in imports_of(path, tree):
        if module == PACKAGE or module.startswith(PACKAGE + "."):
            found += [f"{path}:{line}: {text}" for text in _against_order(path, room, module)]
        elif room in QUIET or room == "api":
            top = module.partition(".")[0]
            if top in WORLDLY | ALSO_WORLDLY and not (room == "api" and top == "asyncio"):
                found.append(f"{path}:{line}: {room} must not import {top}: time and the world are arguments")
    if room in QUIET:
        found += [f"{path}:{line}: {text}" for text, line in _careless_chance(tree)]
    return found


def _against_order(path: str, room: str, module: str) -> Iterator[str]:
    target = room_of_module(module)
    if target != room and target not in SEES[room]:
        yield f"{room} must not import {module}"
    if room == target == "orderers":
        mine, other = orderer_of(path.split("/")[1:]), orderer_of(module.split(".")[2:])
        if mine and other and mine != other:
            yield f"{mine} must not import {module}: what two orderers share becomes a part"
    if room == "api" and path != LOCAL and module.startswith(LOCAL_SEES):
        yield f"{path} must not import {module}: the API stands on Seat, and only {LOCAL} knows hosts and ports"
    if path.startswith(JUDGES) and not module.startswith(JUDGES_SEE):
        yield f"a checker must not import {module}: it judges rows, and knows nothing of who wrote them"


def _careless_chance(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Uses of `random` beyond the class `Random` with a seed: chance that no run could repeat."""
    names = set()  # under which the module goes
    classes = set()  # under which the class goes
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "random"}
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            for alias in node.names:
                if alias.name == "Random":
                    classes.add(alias.asname or alias.name)
                else:
                    yield f"random.{alias.name} is chance of the module, not of a random.Random argument", node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            if node.attr != "Random":
                yield f"random.{node.attr} is chance of the module, not of a random.Random argument", node.lineno
        elif isinstance(node, ast.Call) and not node.args and not node.keywords:
            called = node.func
            is_class = isinstance(called, ast.Name) and called.id in classes
            is_class |= (
                isinstance(called, ast.Attribute)
                and called.attr == "Random"
                and isinstance(called.value, ast.Name)
                and called.value.id in names
            )
            if is_class:
                yield "Random() without a seed draws it from the system", node.lineno


# Reading. ------------------------------------------------------------------------------------------------------------


def imports_of(path: str, tree: ast.AST) -> Iterator[Import]:
    """Every module that is imported anywhere in the file. `from a import b` may name a module: both are looked at."""
    package = [PACKAGE, *path.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package[: len(package) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                yield Import(f"{base}.{alias.name}" if base.startswith(PACKAGE) else base, node.lineno)


def room_of_path(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


def room_of_module(module: str) -> str:
    """The room of a dotted name; what is no room is a public name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in SEES else FACADE


def orderer_of(parts: list[str]) -> str | None:
    """Whose module it is, by its path under `orderers`; None for the contract and for what several orderers share."""
    name = parts[0].removesuffix(".py") if parts else "__init__"
    if name in ("__init__", "orderer", "logged"):
        return None
    if name not in ORDERERS:
        raise LookupError(f"orderers/{name} is neither an orderer nor shared: add it to ORDERERS")
    return name


# The house as it is. -------------------------------------------------------------------------------------------------


def test_imports_go_one_way() -> None:
    """docs/design/overview.md section 4."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        found += violations(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


def test_the_rules_themselves_have_no_circle() -> None:
    for room, seen in SEES.items():
        for other in seen - TYPES:
            assert room not in SEES[other], f"{room} and {other} may import each other"


def test_pipeline_and_client_see_what_the_design_gives_them() -> None:
    assert SEES["pipeline"] - TYPES == {"trace", "archive", "groups", "api", FACADE}
    assert SEES["client"] - TYPES == {"wire", "groups", "api"}


# The checker catches what is planted. --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("wire/block.py", "from ordercast.parts.log import Log", "wire must not import ordercast.parts.log"),
        ("parts/log.py", "from ordercast.orderers.sequencer import Sequencer", "parts must not import"),
        ("orderers/token.py", "from ordercast.membership.quorum.recovery import Recovery", "orderers must not import"),
        ("membership/quorum/recovery.py", "import ordercast.underlay", "membership must not import ordercast.underlay"),
        ("underlay/underlay.py", "from ordercast.groups.host import Host", "underlay must not import"),
        ("underlay/underlay.py", "from ordercast.trace.recorder import Recorder", "underlay must not import"),
        ("groups/host.py", "def f():\n    from ordercast.runtime.node import Node", "groups must not import"),
        ("runtime/node.py", "from ordercast.sim.world import World", "runtime must not import"),
        ("sim/world.py", "from ordercast.runtime import udp", "sim must not import ordercast.runtime.udp"),
        ("sim/world.py", "from ordercast import Node", "sim must not import ordercast.Node"),
        ("view.py", "from ordercast.wire.header import Kind", "view must not import"),
        ("groups/host.py", "from ordercast.api.group import Group", "groups must not import"),
        ("api/group.py", "from ordercast.groups.port import Port", "the API stands on Seat"),
        ("api/node.py", "from ordercast.groups.host import Host", "the API stands on Seat"),
        ("api/group.py", "import socket", "api must not import socket"),
        ("client/session.py", "from ordercast.runtime.node import Node", "client must not import"),
        ("pipeline/verify/fifo.py", "from ordercast.sim.checkers import check_all", "pipeline must not import"),
        ("pipeline/verify/fifo.py", "from ordercast.wire.header import Kind", "pipeline must not import"),
        ("wire/block.py", "from ..runtime import udp", "wire must not import ordercast.runtime.udp"),
        ("wire/block.py", "from .. import underlay", "wire must not import ordercast.underlay"),
        ("attic/old.py", "", "no rule says what 'attic' may import"),
    ],
)
def test_an_import_against_the_order_is_caught(path: str, source: str, complaint: str) -> None:
    assert any(complaint in text for text in violations(path, source)), violations(path, source)


@pytest.mark.parametrize("module", sorted(WORLDLY | ALSO_WORLDLY))
@pytest.mark.parametrize(
    "path", ["view.py", "parts/gaps.py", "orderers/token.py", "underlay/underlay.py", "groups/port.py"]
)
def test_a_clock_or_a_socket_below_the_runtime_is_caught(path: str, module: str) -> None:
    for source in (f"import {module}", f"import {module} as m", f"from {module} import anything"):
        assert len(violations(path, source)) == 1
    assert violations("runtime/node.py", f"import {module}") == []


@pytest.mark.parametrize(
    "source",
    [
        "import random\nrandom.random()",
        "import random as chance\nchance.shuffle([])",
        "from random import randint",
        "import random\nx = random.choice",
        "import random\nrandom.SystemRandom()",
        "import random\nrandom.Random()",
        "from random import Random\nRandom()",
    ],
)
def test_chance_that_is_no_argument_is_caught(source: str) -> None:
    assert len(violations("parts/gaps.py", source)) == 1
    assert violations("runtime/node.py", source) == []


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("orderers/token.py", "ordercast.orderers.sequencer"),
        ("orderers/token.py", "ordercast.orderers.sequencer.role"),
        ("orderers/sequencer/role.py", "ordercast.orderers.sites.hop"),
        ("orderers/sites/ring.py", "ordercast.orderers.regions.torus"),
    ],
)
def test_an_orderer_that_imports_another_is_caught(path: str, module: str) -> None:
    package, _, name = module.rpartition(".")
    for source in (f"import {module}", f"from {module} import Thing", f"from {package} import {name}"):
        assert len(violations(path, source)) == 1, source


def test_a_checker_that_looks_into_an_engine_is_caught() -> None:
    assert violations("sim/checkers/fifo.py", "from ordercast.engine import Outbox")
    assert violations("sim/checkers/fifo.py", "from ordercast.sim.world import World")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("orderers/sequencer/sequencer.py", "from ordercast.orderers.sequencer.role import SequencerRole"),
        ("orderers/token/token.py", "from ordercast.orderers.logged.window import SendWindow"),
        ("orderers/sites/ring.py", "from ordercast.orderers.sites.hop import Hop"),
        ("orderers/token.py", "from ordercast.parts.log import Log\nfrom ordercast.wire.writer import DatagramWriter"),
        ("underlay/underlay.py", "import random\ndef f(rng: random.Random) -> None: rng.random()"),
        ("groups/host.py", "from random import Random\nRandom(7)"),
        ("api/group.py", "import asyncio"),
        ("api/local.py", "from ordercast.groups.port import Port"),
        ("cli/member.py", "import ordercast\nfrom ordercast import Node"),
        ("pipeline/verify/fifo.py", "from ordercast.trace.schema import COLUMNS"),
    ],
)
def test_what_is_allowed_is_not_complained_of(path: str, source: str) -> None:
    assert violations(path, source) == []
