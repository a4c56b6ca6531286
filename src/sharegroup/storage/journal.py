"""A small durable list of payloads: what topics and settings exist.

    length (uint32) | crc32c (uint32) | durable (uint64) | payload        ... repeated

The checksum covers ``durable`` and the payload.  ``durable`` is how many bytes of the file were
on disk for sure when the frame was written, and tells a torn end from damage: where a frame is
not whole and nothing behind it says that this place had been durable, writing stopped, and the
file is cut.  Otherwise something that was promised is broken, and the journal refuses to open:
a topic that is forgotten by mistake would have its records deleted.

Payloads are appended and never changed; ``rewrite`` replaces all of them, in a new file that
takes the old one's name.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Sequence

import crc32c

from sharegroup.errors import KafkaStorageError
from sharegroup.storage.checkpoint_files import replace_file
from sharegroup.storage.stored_file import OpenFiles, StoredFile
from sharegroup.storage.syncer import Syncer, SyncWork
from sharegroup.storage.tickets import Ticket, TicketQueue

log = logging.getLogger(__name__)

PAYLOAD_BYTES_MAX = 16 * 1024 * 1024

_FRAME = struct.Struct(">IIQ")
_CHECKED_FROM = 8


class Journal:
    """See the module's text.  A journal always waits for the disk, whatever the durability."""

    __slots__ = (
        "_durable",
        "_file",
        "_name",
        "_opened",
        "_payloads",
        "_pending",
        "_root",
        "_size",
        "_syncer",
        "_syncing",
        "_unsynced_names",
        "was_cut",
    )

    def __init__(self, opened: OpenFiles, syncer: Syncer, root: str, name: str) -> None:
        """Open or make the journal; KafkaStorageError if it is damaged."""
        self._opened = opened
        self._syncer = syncer
        self._root = root
        self._name = name
        self._file = StoredFile(opened, f"{root}/{name}")
        self._pending = TicketQueue()
        self._unsynced_names: tuple[str, ...] = ()
        self.was_cut = False
        """The end was torn, or damaged where nobody can tell the difference."""
        if not opened.files.exists(self._file.path):
            self._unsynced_names = (root,)
            self._file.fd(create=True)
        self._payloads, self._size = self._load()
        if self._size:
            # After `kill -9` it may be in the system's memory only, and it counts from now on.
            self._file.sync_now()
        self._durable = self._syncing = (len(self._payloads), self._size)

    @property
    def payload_count(self) -> int:
        return len(self._payloads)

    def payloads(self) -> Sequence[bytes]:
        """All payloads, oldest first."""
        return tuple(self._payloads)

    def append(self, payload: bytes) -> Ticket:
        """Write one payload; it counts when the ticket is done."""
        assert 0 < len(payload) <= PAYLOAD_BYTES_MAX
        frame = _frame(payload, durable=self._durable[1])
        try:
            self._file.write(frame, self._size)
        except OSError as error:
            raise KafkaStorageError(f"{self._file.path}: a write failed: {error}") from error
        ticket = Ticket(len(self._payloads), len(self._payloads) + 1)
        self._payloads.append(payload)
        self._size += len(frame)
        self._pending.add(ticket)
        self._syncer.request(self)
        return ticket

    async def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Replace all payloads, durably; nothing may be appended meanwhile."""
        assert not self._pending
        kept, content = list(payloads), bytearray()
        for payload in kept:
            content += _frame(payload, durable=len(content))  # The file appears as a whole.
        try:
            await self._syncer.in_thread(
                lambda: replace_file(self._opened.files, self._root, self._name, bytes(content))
            )
        except OSError as error:
            raise KafkaStorageError(f"{self._file.path}: a rewrite failed: {error}") from error
        self._file.close()
        self._payloads, self._size = kept, len(content)
        self._durable = (len(kept), len(content))

    def begin_sync(self) -> SyncWork:
        self._syncing = (len(self._payloads), self._size)
        return SyncWork((self._file,), self._unsynced_names)

    def synced(self) -> None:
        self._unsynced_names = ()
        self._durable = self._syncing
        self._pending.settle(self._durable[0])

    def sync_failed(self, error: OSError) -> None:
        """Take back what is not durable; the next append tries the disk again."""
        log.warning("event=journal_sync_failed file=%s error=%r", self._name, str(error))
        count, self._size = self._durable
        del self._payloads[count:]
        try:
            self._file.truncate(self._size)
        except OSError as second:
            # The next append writes over it, and opening stops where it ends.
            log.warning("event=truncate_failed file=%s error=%r", self._name, str(second))
        self._pending.fail(f"{self._file.path}: a sync failed: {error}")

    def close(self) -> None:
        self._syncer.withdraw(self)
        self._pending.fail(f"{self._file.path}: the journal was closed")
        self._file.close()

    def _load(self) -> tuple[list[bytes], int]:
        data = self._file.read(self._file.size(), 0)
        payloads, size = whole_payloads(data)
        if size < len(data):
            self._cut(data, size)
        return payloads, size

    def _cut(self, data: bytes, size: int) -> None:
        """Cut a torn end off; refuse if it was durable once."""
        for start in range(size + 1, len(data)):
            for durable, _, _ in _frames(data, start):
                if size < durable <= start:
                    raise KafkaStorageError(
                        f"{self._file.path} is damaged at byte {size}: {durable} bytes of it "
                        "were durable; restore the file from a copy"
                    )
                break
        self.was_cut = True
        log.warning("event=journal_cut file=%s bytes=%d", self._name, len(data) - size)
        self._file.truncate(size)


def whole_payloads(data: bytes) -> tuple[list[bytes], int]:
    """The payloads in a journal's file up to the first that is not whole, and where that is."""
    payloads, size = [], 0
    for _, payload, end in _frames(data, 0):
        payloads.append(payload)
        size = end
    return payloads, size


def _frame(payload: bytes, *, durable: int) -> bytes:
    checked = struct.pack(">Q", durable) + payload
    return struct.pack(">II", len(payload), crc32c.crc32c(checked)) + checked


def _frames(data: bytes, position: int) -> Iterator[tuple[int, bytes, int]]:
    """Whole frames from ``position`` on: what was durable, the payload, where it ends."""
    while position + _FRAME.size < len(data):
        length, crc, durable = _FRAME.unpack_from(data, position)
        end = position + _FRAME.size + length
        if not 0 < length <= PAYLOAD_BYTES_MAX or end > len(data):
            return
        if crc32c.crc32c(memoryview(data)[position + _CHECKED_FROM : end]) != crc:
            return
        yield durable, data[position + _FRAME.size : end], end
        position = end
