"""Daemons and their clients in virtual time: the real daemon and the real client library over simulated streams."""
