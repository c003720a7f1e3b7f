"""Bodies that are too long for one parcel: cut into pages, and put together again.

A parcel of a courier has at most 256 datagrams, and what waits for one peer is bounded, too. 100,000 names of groups
take a megabyte and more. Layout of a page, little-endian: serial (64 bits), page and number of pages (16 each),
checksum of the whole body (32), then bytes. The checksum tells two bodies with one serial apart: an answer may be made
twice.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from ordercast.errors import InvariantViolation, WireError

Buffer = bytes | bytearray | memoryview

PAGE_BYTES: Final = 32_768  # of a body in one page
MAX_PAGES: Final = 1_024  # of one body: 32 MiB
MAX_BODIES: Final = 4  # of one peer that are not whole; the oldest goes, and is asked for again

PAGE: Final = Struct("<QHHI")  # serial, page, pages, checksum
if PAGE.size != 16:
    raise AssertionError("the head of a page is 16 bytes on the wire")


class Page(NamedTuple):
    """One page of a body."""

    serial: int
    page: int
    pages: int
    checksum: int
    piece: bytes


def cut_pages(serial: int, body: bytes) -> list[bytes]:
    """The pages of a body, each as the body of a parcel."""
    pages = max(1, -(-len(body) // PAGE_BYTES))
    if pages > MAX_PAGES:
        raise InvariantViolation(f"a body of {len(body)} bytes takes more than {MAX_PAGES} pages")
    checksum = crc32(body)
    return [
        PAGE.pack(serial, page, pages, checksum) + body[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
        for page in range(pages)
    ]


def read_page(body: Buffer) -> Page:
    if len(body) < PAGE.size:
        raise WireError("page shorter than its head")
    serial, page, pages, checksum = PAGE.unpack_from(body)
    piece = bytes(body[PAGE.size :])
    if not 0 <= page < pages <= MAX_PAGES:
        raise WireError("page with impossible numbers")
    if not piece or len(piece) > PAGE_BYTES or (page < pages - 1 and len(piece) != PAGE_BYTES):
        raise WireError("page of an impossible size")
    return Page(serial, page, pages, checksum, piece)


class PagedBodies:
    """Bodies of one peer of which some pages have come; bounded, the oldest goes first."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[tuple[int, int, int], list[bytes | None]] = {}  # serial, pages, checksum -> pieces

    def add(self, page: Page) -> bytes | None:
        """Keep a page; the whole body once nothing is missing. Raises WireError where it is not what was sent."""
        if page.pages == 1:
            whole = page.piece
        else:
            key = (page.serial, page.pages, page.checksum)
            pieces = self._open.get(key)
            if pieces is None:
                pieces = self._open[key] = [None] * page.pages
                while len(self._open) > MAX_BODIES:
                    del self._open[next(iter(self._open))]
            pieces[page.page] = page.piece
            found = [piece for piece in pieces if piece is not None]
            if len(found) < page.pages:
                return None
            del self._open[key]
            whole = b"".join(found)
        if crc32(whole) != page.checksum:
            raise WireError("pages that do not belong together")
        return whole

    def prefix(self, page: Page) -> int:
        """How many pages of the body that a page is of have come without a gap; all, where none is missing."""
        pieces = self._open.get((page.serial, page.pages, page.checksum))
        if pieces is None:
            return page.pages
        return next((index for index, piece in enumerate(pieces) if piece is None), page.pages)

    @property
    def has_open(self) -> bool:
        """Whether a body waits for more of its pages."""
        return bool(self._open)

    def clear(self) -> None:
        self._open.clear()
