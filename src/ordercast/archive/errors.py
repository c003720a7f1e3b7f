"""What can be wrong with an archive, each with a name of its own (docs/design/archive.md, *Failures*)."""

from __future__ import annotations

from ordercast.errors import OrdercastError, UsageError


class ArchiveError(OrdercastError):
    """Base of everything that archives raise on purpose."""


class NoArchive(ArchiveError, UsageError):
    """There is no such folder, or no segment in it."""


class ForeignFile(ArchiveError, UsageError):
    """The folder holds a file that does not belong to an archive, or is named like a segment and is none."""


class WrongGroup(ArchiveError, UsageError):
    """The folder is the archive of another group, or holds segments of two archives."""


class NewerFormat(ArchiveError, UsageError):
    """A segment was written by a newer version of Ordercast."""


class OtherLog(ArchiveError, UsageError):
    """The group's log is not that of the archive, and only the user can say so: `--new-epoch`."""


class ArchiveLocked(ArchiveError, UsageError):
    """Another recorder writes to the folder."""


class ArchiveDamaged(ArchiveError, UsageError):
    """Bytes inside a segment are not what was written, and good frames follow them."""


class DataLoss(ArchiveError, UsageError):
    """Positions that were asked for are not in the archive: a hole, a missing segment, or removed by retention."""


class GapGone(ArchiveError):
    """The gap that was to be filled is gone: it was filled meanwhile, or retention removed what came before it."""


class ArchiveFull(ArchiveError, OSError):
    """The disk is full, or cannot be written. What was recorded before is kept and whole."""


class SyncFailed(ArchiveFull):
    """The disk did not take what was written. Only reading the files again tells what is there, so recording ends."""
