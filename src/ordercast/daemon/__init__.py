"""A daemon: one node that does the ordering for any number of programs on its machine (docs/design/daemon.md)."""
