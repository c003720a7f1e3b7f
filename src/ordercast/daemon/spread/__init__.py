"""Spread's own client protocol, so that programs written for Spread connect unchanged (docs/design/spread-clients.md).

`handshake.py`, `frames.py`, `encoding.py` and `membership.py` are sans-I/O; `session.py` joins them to a seat of the
daemon.
"""
