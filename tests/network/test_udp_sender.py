"""What `UdpSender` does when a socket is full or refuses: loopback never does, so that a fake socket plays it."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from ordercast.engine import Buffer
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.sender import UdpSender
from ordercast.view import Address

A: Address = ("127.0.0.1", 1)
B: Address = ("127.0.0.1", 2)
C: Address = ("127.0.0.1", 3)


class FakeSocket:
    """Records the datagrams that left. `script` holds an errno (0: success) for each call to come; then all succeed."""

    def __init__(self, *script: int, segments_max: int = 128, trains: bool = True) -> None:
        self.script = list(script)
        self.segments_max = segments_max
        self.trains = trains
        self.left: list[tuple[Address, bytes]] = []

    def sendmsg(
        self, buffers: Sequence[Buffer], ancdata: Sequence[tuple[int, int, bytes]], flags: int, address: Address, /
    ) -> int:
        assert flags == 0
        code = self.script.pop(0) if self.script else 0
        data = b"".join(buffers)
        stride = int.from_bytes(ancdata[0][2], "little") if ancdata else max(1, len(data))
        datagrams = [data[start : start + stride] for start in range(0, len(data), stride)]
        if not code and len(datagrams) > 1 and (not self.trains or len(datagrams) > self.segments_max):
            code = errno.EINVAL
        if not code and len(data) > 65_507:
            code = errno.EMSGSIZE
        if code:
            raise OSError(code, "scripted")
        self.left.extend((address, datagram) for datagram in datagrams)
        return len(data)


def sender_of(sock: FakeSocket, *, gso: bool = True) -> UdpSender:
    return UdpSender(sock, Counters(), gso=gso)


def datagrams(count: int, stride: int) -> list[bytes]:
    return [number.to_bytes(2, "big") * (stride // 2) for number in range(count)]


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOBUFS])
@pytest.mark.parametrize("stride", [0, 100])
def test_a_full_socket_leaves_the_send_with_the_caller(code: int, stride: int) -> None:
    sock = FakeSocket(code, code)  # ENOBUFS is tried once more, with care
    sender = sender_of(sock)
    parts = datagrams(3, 100)
    assert not sender.send(A, parts, stride)
    assert sock.left == []
    assert sender.counters.would_block == 1
    assert sender.counters.datagrams_out == 0
    sock.script.clear()
    assert sender.send(A, parts, stride)
    assert b"".join(data for _, data in sock.left) == b"".join(parts)


@pytest.mark.parametrize("gso", [True, False])
def test_a_long_train_that_was_refused_half_way_goes_on_where_it_stopped(gso: bool) -> None:
    parts = datagrams(300, 1000)
    sock = FakeSocket(*([errno.EMSGSIZE] if gso else []), 0, 0, errno.EAGAIN)
    sender = sender_of(sock, gso=gso)
    assert not sender.send(A, parts, 1000)
    left = len(sock.left)
    assert 0 < left < 300
    assert sender.send(A, parts, 1000)
    assert [data for _, data in sock.left] == parts
    assert sender.counters.datagrams_out == 300


def test_another_send_in_between_starts_at_its_own_beginning() -> None:
    """A half-sent train that comes later is repeated as a whole: a duplicate is harmless, a hole is not."""
    parts, others = datagrams(5, 1000), datagrams(4, 500)
    sock = FakeSocket(0, 0, errno.EAGAIN)
    sender = sender_of(sock, gso=False)
    assert not sender.send(A, parts, 1000)
    assert sender.send(A, others, 500)
    assert [data for _, data in sock.left[2:]] == others
    assert sender.send(A, parts, 1000)
    assert [data for _, data in sock.left[6:]] == parts


def test_sending_to_many_goes_on_at_the_address_that_was_refused() -> None:
    sock = FakeSocket(0, errno.EAGAIN)
    sender = sender_of(sock)
    addresses, buffers = [A, B, C], [b"x"]
    assert not sender.send_many(addresses, buffers)
    assert sender.send_many(addresses, buffers)
    assert [address for address, _ in sock.left] == [A, B, C]
    assert sender.send_many(addresses, buffers)
    assert [address for address, _ in sock.left] == [A, B, C] * 2


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EMSGSIZE, errno.EIO])
def test_a_device_that_refuses_trains_gets_single_datagrams_from_then_on(code: int) -> None:
    sock = FakeSocket(code, code, trains=False)
    sender = sender_of(sock)
    parts = datagrams(44, 1400)
    for _ in range(2):
        assert sender.send(A, parts, 1400)
    assert [data for _, data in sock.left] == parts * 2
    assert sender.counters.gso_fallbacks == 1
    assert not sender.uses_gso
    assert sender.counters.send_calls == 2 + 44 + 44


def test_an_older_kernel_gets_shorter_trains() -> None:
    sock = FakeSocket(segments_max=64)
    sender = sender_of(sock)
    parts = datagrams(128, 100)
    assert sender.send(A, parts, 100)
    assert [data for _, data in sock.left] == parts
    assert sender.uses_gso
    assert sender.counters.gso_fallbacks == 0


@pytest.mark.parametrize("stride", [0, 100])
def test_the_error_of_an_earlier_datagram_does_not_swallow_this_one(stride: int) -> None:
    sock = FakeSocket(errno.ECONNREFUSED)
    sender = sender_of(sock)
    assert sender.send(A, datagrams(2, 100), stride)
    assert sender.counters.refused == 1
    assert b"".join(data for _, data in sock.left) == b"".join(datagrams(2, 100))


@pytest.mark.parametrize("code", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM, errno.ECONNREFUSED])
def test_what_cannot_be_delivered_is_lost_as_on_the_network_and_counted(code: int) -> None:
    sock = FakeSocket(code, code, code)
    sender = sender_of(sock)
    assert sender.send(A, datagrams(5, 100), 100)
    assert sock.left == []
    assert sender.counters.undeliverable == 5


def test_an_error_that_nobody_expects_is_raised() -> None:
    sender = sender_of(FakeSocket(errno.EBADF, errno.EBADF))
    with pytest.raises(OSError, match="scripted"):
        sender.send(A, [b"x"])


def test_many_strides_in_turn_all_work() -> None:
    sock = FakeSocket()
    sender = sender_of(sock)
    for stride in range(2, 402, 2):
        assert sender.send(A, [bytes(2 * stride)], stride)
    assert len(sock.left) == 400
