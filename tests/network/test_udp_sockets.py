"""Real sockets on loopback. Waits are for arrival, with a bound that only a failure reaches."""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from ordercast.errors import UsageError
from ordercast.runtime.addresses import AddressError, group_address
from ordercast.runtime.udp import filters
from ordercast.runtime.udp.sender import DATAGRAM_BYTES_MAX
from ordercast.runtime.udp.sockets import MulticastReceiver, UnicastSocket
from ordercast.view import Address

GROUP = group_address("tests of udp")
FAILURE_S = 60.0

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="GSO, GRO, filters and drop counters are Linux's")

Batch = tuple[Address, bytes, int]
Nodes = Callable[..., tuple[UnicastSocket, MulticastReceiver]]


def receive(sock: UnicastSocket | MulticastReceiver, datagrams: int) -> list[Batch]:
    """Batches with at least so many datagrams in all."""
    batches: list[Batch] = []
    seen = 0
    while seen < datagrams:
        assert select.select([sock], [], [], FAILURE_S)[0], f"{seen} of {datagrams} datagrams came"
        for source, data, stride in sock.drain():
            batches.append((source, bytes(data), stride))
            seen += -(-len(data) // stride)
    return batches


def split(batches: list[Batch]) -> list[tuple[Address, bytes]]:
    """The datagrams of batches, one by one."""
    return [
        (source, data[start : start + stride])
        for source, data, stride in batches
        for start in range(0, len(data), stride)
    ]


def is_quiet(sock: UnicastSocket | MulticastReceiver) -> bool:
    """Nothing has arrived: loopback delivers before `sendmsg` returns, except now and then under load."""
    return not list(sock.drain())


def repeat_until(done: Callable[[], bool], sock: UnicastSocket | MulticastReceiver, step: Callable[[], object]) -> None:
    """Take a step whenever something has arrived, or a moment has passed."""
    give_up = time.monotonic() + FAILURE_S
    while not done():
        assert time.monotonic() < give_up, sock.counters
        select.select([sock], [], [], 0.01)
        step()


def train(segments: int, stride: int, last: int) -> bytes:
    """Datagrams that differ from one another."""
    whole = b"".join(struct.pack("!I", number) * (stride // 4) for number in range(segments))
    return whole[: stride * (segments - 1) + last]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def node(stack: ExitStack) -> Nodes:
    def open_node(
        group: Address = GROUP, *, gso: bool = True, kernel_filter: bool = True
    ) -> tuple[UnicastSocket, MulticastReceiver]:
        unicast = stack.enter_context(closing(UnicastSocket(gso=gso)))
        receiver = MulticastReceiver(group, own=unicast.address, kernel_filter=kernel_filter)
        return unicast, stack.enter_context(closing(receiver))

    return open_node


def test_a_multicast_reaches_all_others_on_the_host_and_not_its_sender(node: Nodes) -> None:
    nodes = [node() for _ in range(3)]
    for index, (unicast, _) in enumerate(nodes):
        assert unicast.send(GROUP, [b"from ", str(index).encode()])
    for index, (_, receiver) in enumerate(nodes):
        expected = [(nodes[other][0].address, f"from {other}".encode()) for other in range(3) if other != index]
        assert split(receive(receiver, 2)) == expected
        assert is_quiet(receiver)


def test_a_unicast_reaches_its_address_with_the_senders_as_source(node: Nodes) -> None:
    (first, _), (second, _) = node(), node()
    assert first.send(second.address, [b"hello"])
    assert receive(second, 1) == [(first.address, b"hello", 5)]
    assert second.send(first.address, [b"x" * DATAGRAM_BYTES_MAX])
    assert receive(first, 1) == [(second.address, b"x" * DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MAX)]


@linux_only
@pytest.mark.parametrize(
    ("segments", "stride", "last"), [(44, 1400, 300), (44, 1400, 1400), (128, 500, 4), (2, 1400, 1)]
)
def test_a_train_leaves_and_arrives_in_one_call_each(node: Nodes, segments: int, stride: int, last: int) -> None:
    (sender, _), (other, receiver) = node(), node()
    data = train(segments, stride, last)
    half = len(data) // 2
    for destination, sock in ((GROUP, receiver), (other.address, other)):
        before = sender.counters.send_calls
        assert sender.send(destination, [data[:half], memoryview(data)[half:]], stride)
        assert sender.counters.send_calls == before + 1
        assert receive(sock, segments) == [(sender.address, data, stride)]
    assert sender.counters.datagrams_out == 2 * segments
    assert sender.counters.bytes_out == 2 * len(data)
    assert receiver.counters.datagrams_in == segments


@pytest.mark.parametrize("gso", [True, False])
@pytest.mark.parametrize(
    ("segments", "stride", "last"), [(1, 1400, 7), (44, 1400, 300), (129, 100, 100), (300, 1400, 1), (3, 60_000, 9)]
)
def test_both_ways_of_sending_give_the_same_datagrams(
    node: Nodes, gso: bool, segments: int, stride: int, last: int
) -> None:
    """Trains longer than a call takes are split, at whole datagrams."""
    (sender, _), (_, receiver) = node(gso=gso), node()
    data = train(segments, stride, last)
    assert sender.send(GROUP, [data], stride)
    expected = [(sender.address, data[start : start + stride]) for start in range(0, len(data), stride)]
    assert split(receive(receiver, segments)) == expected
    assert sender.counters.datagrams_out == segments
    assert sender.counters.gso_fallbacks == 0
    if not gso:
        assert sender.counters.send_calls == segments


def test_more_buffers_than_a_call_takes_are_joined(node: Nodes) -> None:
    (sender, _), (_, receiver) = node(), node()
    assert sender.send(GROUP, [b"abcd"] * 3000, 1000)
    assert b"".join(data for _, data in split(receive(receiver, 12))) == b"abcd" * 3000


def test_without_multicast_the_same_goes_to_each_address(node: Nodes) -> None:
    nodes = [node() for _ in range(4)]
    sender = nodes[0][0]
    others = [unicast for unicast, _ in nodes[1:]]
    data = train(10, 1000, 17)
    assert sender.send_many([other.address for other in others], [data], 1000)
    for other in others:
        assert b"".join(part for _, part in split(receive(other, 10))) == data


@linux_only
def test_own_multicasts_are_dropped_by_the_kernel_and_not_counted_as_losses(node: Nodes) -> None:
    (mine, my_receiver), (other, _) = node(), node()
    assert my_receiver.filters_own
    data = train(44, 1400, 300)
    for _ in range(100):
        assert mine.send(GROUP, [data], 1400)
        assert mine.send(GROUP, [data])
    assert not select.select([my_receiver], [], [], 0)[0]
    assert other.send(GROUP, [data], 1400)
    assert receive(my_receiver, 44) == [(other.address, data, 1400)]
    assert my_receiver.counters.receive_calls == 2  # what came, and the end of the pass
    assert my_receiver.read_drops() == 0
    assert my_receiver.counters.own_ignored == 0
    assert my_receiver.counters.kernel_drops == 0


def test_own_multicasts_are_left_out_without_a_filter_too(node: Nodes) -> None:
    (mine, my_receiver), (other, _) = node(kernel_filter=False), node()
    assert not my_receiver.filters_own
    assert mine.send(GROUP, [b"mine"])
    assert other.send(GROUP, [b"other's"])
    assert split(receive(my_receiver, 1)) == [(other.address, b"other's")]
    assert my_receiver.counters.own_ignored == 1


@linux_only
def test_a_node_without_the_echo_counter_gives_up_the_filter(node: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or each of its own sends would look like a loss. A kernel without SO_MEMINFO is played by a patch."""
    monkeypatch.setattr(filters.OwnEcho, "open", lambda *_: None)
    mine, my_receiver = node()
    assert not my_receiver.filters_own
    assert mine.send(GROUP, [b"mine"])
    assert is_quiet(my_receiver)
    assert my_receiver.read_drops() == 0


@linux_only
def test_every_drop_of_a_full_socket_is_counted_between_own_multicasts(node: Nodes) -> None:
    """docs/design/overview.md section 6: such a drop is a bug in flow control, so that the number must be right."""
    (sender, _), (slow, slow_receiver) = node(), node()
    data = train(44, 1400, 1400)
    sent = 2 * slow_receiver.receive_buffer_bytes // len(data)
    for _ in range(sent):
        assert sender.send(GROUP, [data], 1400)
        assert slow.send(GROUP, [b"own"])
    assert_all_arrived_or_dropped(slow_receiver, sent)


@linux_only
def test_drops_of_the_unicast_socket_are_counted(node: Nodes) -> None:
    (sender, _), (slow, _) = node(), node()
    sent = 2 * slow.receive_buffer_bytes // 60_000
    for _ in range(sent):
        assert sender.send(slow.address, [bytes(60_000)])
    assert_all_arrived_or_dropped(slow, sent)


def assert_all_arrived_or_dropped(sock: UnicastSocket | MulticastReceiver, sent: int) -> None:
    arrived = dropped = 0

    def step() -> None:
        nonlocal arrived, dropped
        arrived += sum(1 for _ in sock.drain())
        dropped += sock.read_drops()

    repeat_until(lambda: arrived + dropped >= sent, sock, step)
    assert arrived + dropped == sent
    assert dropped > 0
    assert sock.counters.kernel_drops == dropped


@linux_only
def test_two_groups_on_one_port_are_told_apart(node: Nodes) -> None:
    other_group = ("239.195.255.254", GROUP[1])
    (sender, receiver), (other, other_receiver) = node(), node(other_group)
    assert other.send(GROUP, [b"one"])
    assert sender.send(other_group, [b"two"])
    assert split(receive(receiver, 1)) == [(other.address, b"one")]
    assert split(receive(other_receiver, 1)) == [(sender.address, b"two")]
    assert is_quiet(receiver)
    assert is_quiet(other_receiver)


def test_a_pass_ends_at_its_bounds_and_the_next_goes_on(node: Nodes) -> None:
    (sender, _), (other, _) = node(), node()
    for number in range(10):
        assert sender.send(other.address, [bytes([number]) * 100])
    seen: list[int] = []

    def step() -> None:
        by_reads = [data[0] for _, data, _ in other.drain(reads=4)]
        by_bytes = [data[0] for _, data, _ in other.drain(limit_bytes=250)]
        assert len(by_reads) <= 4
        assert len(by_bytes) <= 3
        seen.extend(by_reads + by_bytes)

    repeat_until(lambda: len(seen) >= 10, other, step)
    assert seen == list(range(10))


def test_empty_datagrams_are_counted_and_not_handed_on(node: Nodes) -> None:
    (sender, _), (other, _) = node(), node()
    for payload in (b"", b"full", b""):
        assert sender.send(other.address, [payload])
    seen: list[bytes] = []
    repeat_until(
        lambda: other.counters.malformed >= 2, other, lambda: seen.extend(bytes(data) for _, data, _ in other.drain())
    )
    assert seen == [b"full"]


def test_a_peer_that_is_gone_does_not_disturb_the_others(node: Nodes) -> None:
    (sender, _), (gone, _), (other, _) = node(), node(), node()
    gone.close()
    for _ in range(3):
        assert sender.send(gone.address, [b"anyone?"])
        assert is_quiet(sender)
        assert sender.send(other.address, [b"you"])
    assert len(receive(other, 3)) == 3


@pytest.mark.parametrize("stride", [0, 1400])
def test_a_destination_that_nothing_reaches_is_counted_and_gso_survives_it(node: Nodes, stride: int) -> None:
    """A forged source port of 0 must not stop the node that answers it."""
    (sender, _), (_, receiver) = node(), node()
    before = sender.sender.uses_gso
    assert sender.send(("127.0.0.1", 0), [bytes(2800)], stride)
    assert sender.counters.undeliverable == (2 if stride else 1)
    assert sender.counters.datagrams_out == 0
    assert sender.sender.uses_gso == before
    assert sender.send(GROUP, [bytes(2800)], 1400)
    assert len(split(receive(receiver, 2))) == 2


def test_datagrams_that_cannot_be_are_the_callers_mistake(node: Nodes) -> None:
    sender, _ = node()
    for buffers, stride in (([bytes(DATAGRAM_BYTES_MAX + 1)], 0), ([b"x"], -1), ([b"x"], 70_000)):
        with pytest.raises(UsageError):
            sender.send(GROUP, buffers, stride)
    assert sender.counters.datagrams_out == 0


def test_a_second_node_cannot_take_the_same_address(node: Nodes) -> None:
    unicast, _ = node()
    with pytest.raises(AddressError, match="cannot bind"):
        UnicastSocket(*unicast.address)


@pytest.mark.parametrize("interface", ["0.0.0.0", "239.192.0.1", "::1", "localhost", ""])
def test_an_interface_is_one_ipv4_address(interface: str) -> None:
    with pytest.raises(AddressError, match="interface"):
        UnicastSocket(interface)
    with pytest.raises(AddressError, match="interface"):
        MulticastReceiver(GROUP, interface, own=None)


def test_joining_needs_a_multicast_address_and_a_local_interface() -> None:
    with pytest.raises(AddressError, match="not a multicast address"):
        MulticastReceiver(("127.0.0.1", 61_000), own=None)
    with pytest.raises(AddressError, match="cannot join"):
        MulticastReceiver(GROUP, "203.0.113.77", own=None)


def test_closing_twice_is_harmless_and_ends_a_pass(node: Nodes) -> None:
    (sender, _), (other, receiver) = node(), node()
    for _ in range(2):
        assert sender.send(other.address, [b"x"])
    seen = 0
    for _ in other.drain():
        seen += 1
        other.close()
    assert seen == 1
    for sock in (other, receiver):
        sock.close()
        sock.close()
        assert sock.fileno() == -1
        assert sock.read_drops() == 0


def test_the_receive_buffer_is_what_the_system_granted(node: Nodes) -> None:
    unicast, receiver = node()
    assert receiver.receive_buffer_bytes >= 1 << 16
    with socket.socket(fileno=socket.dup(unicast.fileno())) as same:
        assert unicast.receive_buffer_bytes == same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert unicast.send_buffer_bytes == same.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
