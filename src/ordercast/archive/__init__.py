"""A durable ordered log of a group: members that record it, files that any frame of can be read alone, readers."""
