"""A light client: the public API over a connection to a daemon (docs/design/daemon.md)."""
