"""QSM's regions: lanes of senders, views of members, the token (docs/design/regions.md)."""
