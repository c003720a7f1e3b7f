"""Non-blocking IPv4 UDP: trains of datagrams out in one call (GSO), in again in one call (GRO), drops counted.

A node has one `UnicastSocket`, through which it sends everything, so that the source address of a datagram names the
node (RMP section 3.1: a process *is* its address and port), and one `MulticastReceiver` for each group address that it
listens to (`sockets.py`). Both have a `fileno()` for `loop.add_reader`. Nothing here knows a loop, a clock or a
protocol.
`sender.py` sends, `reader.py` receives, `options.py` opens sockets, `filters.py` spares a node its own multicasts.

What shaped it (measured on loopback with 60 KB blocks):

- `recvmsg_into` with ancillary data costs 0.3 us more than `recvfrom_into`, of about 3.7 us; the stride is worth that.
- Socket drops are read with `SO_MEMINFO`, not with `SO_RXQ_OVFL`. Both show the same kernel counter, but the latter
  comes as ancillary data of the *next* datagram, so the drops at the end of a burst would stay unseen.
- That counter also rises for each datagram that a socket filter throws away, and the filter that spares us our own
  multicasts throws away many. `OwnEcho` counts those alone, so that the difference is exact.

Buffer sizes ask for `SO_RCVBUF`, never `SO_RCVBUFFORCE`: root may pass the limit that the operator set, but then a node
behaves differently as root, and senders fill what is announced. Raise `net.core.rmem_max` instead.

POSIX. On systems other than Linux there is no GSO, GRO, filter or drop counter: the same datagrams, one call each.
"""
