"""The journal: a small durable list of payloads that hold the topics and settings.

    length (uint32) | crc32c (uint32) | durable (uint64) | payload        ... repeated

The checksum covers ``durable`` and the payload.  ``durable`` is the number of bytes of the file
that were on disk when the frame was written.  It tells a torn end from damage.  If a frame is not
whole, and no later frame says that its bytes were durable, a write was interrupted; the file is cut
there (`cut_tail`).  Otherwise a confirmed payload is damaged, and the journal refuses to open: the
records of a topic that is lost by mistake could not be reached any more.

Payloads are appended and never changed.  ``rewrite`` replaces all of them by a new file, which is
renamed to the old one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

import crc32c

from sharegroup.errors import KafkaStorageError
from sharegroup.storage.disk.checkpoint_files import SMALL_FILE_BYTES_MAX, read_file, replace_file
from sharegroup.storage.disk.directory_watch import DirectoryWatch
from sharegroup.storage.disk.files import Files
from sharegroup.storage.disk.set_aside import TORN_JOURNAL, SetAside
from sharegroup.storage.disk.stored_file import OpenFiles, StoredFile
from sharegroup.storage.sync.syncer import Syncer, SyncWork
from sharegroup.storage.sync.tickets import Ticket, TicketQueue

log = logging.getLogger(__name__)

PAYLOAD_BYTES_MAX = 16 * 1024 * 1024

REWRITE_SLICE = 32
"""Number of payloads encoded without a pause, which takes about a millisecond."""

_FRAME = struct.Struct(">IIQ")
_CHECKED_FROM = 8

_MAY_BEGIN = re.compile(rb"(?=(?!\0{4})[\0\1].{7}\0{4}.{5})", re.DOTALL)
"""Matches a length from 1 to `PAYLOAD_BYTES_MAX`, and a number of durable bytes below 2**32."""

Mark = tuple[int, int]
"""Size and checksum of the whole file, which distinguish it from an older copy."""

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
"""The file that exists after a clean shutdown, with the `Mark` of each journal.

    {"version": 0, "journals": {"catalog.journal": [1234, 2893473261]}}

Size and checksum tell whether a journal is the same as when the broker stopped.  An older copy may
lack settings and topics without records, and nothing else would reveal that.  Files of older
versions have no journals.
"""


class Journal:
    """A durable list of payloads in a file.

    An append is durable when it is on disk, even with `Durability.OS`.
    """

    __slots__ = (
        "_durable",
        "_file",
        "_has_tail",
        "_lost",
        "_name",
        "_opened",
        "_payloads",
        "_pending",
        "_root",
        "_set_aside",
        "_size",
        "_syncer",
        "_syncing",
        "_unsynced_names",
        "_watch",
        "found",
    )

    def __init__(
        self,
        opened: OpenFiles,
        syncer: Syncer,
        root: str,
        name: str,
        *,
        set_aside: SetAside,
        watch: DirectoryWatch,
    ) -> None:
        """Open the journal, which may not exist yet; KafkaStorageError if it is damaged."""
        self._opened = opened
        self._syncer = syncer
        self._root = root
        self._name = name
        self._file = StoredFile(opened, f"{root}/{name}")
        self._pending = TicketQueue()
        self._unsynced_names: tuple[str, ...] = ()
        self._set_aside = set_aside
        self._watch = watch
        self._lost = ""
        self._has_tail = False
        """Whether the file has bytes behind the last whole payload that are not set aside yet."""
        self._payloads: list[bytes] = []
        self._size = 0
        self.found: Mark | None = None
        """The mark of the file when it was opened; None if it did not exist or its end was torn."""
        if self._file.exists:
            self._payloads, self._size = self._load()
            watch.expect(self._file.path, self._file.fd())
        if not self._size:
            # The first payload creates the file, and is durable only together with the file's name.
            self._unsynced_names = (root,)
        else:
            # After `kill -9` it may be only in the system's memory; from now on it must be durable.
            self._file.sync_now()
        self._durable = self._syncing = (len(self._payloads), self._size)

    @property
    def name(self) -> str:
        """The file name of the journal."""
        return self._name

    @property
    def payload_count(self) -> int:
        """The number of payloads, including those that are not durable."""
        return len(self._payloads)

    def payloads(self) -> Sequence[bytes]:
        """Return all payloads, oldest first."""
        return tuple(self._payloads)

    def append(self, payload: bytes) -> Ticket:
        """Write one payload; it is durable when the ticket is done."""
        assert 0 < len(payload) <= PAYLOAD_BYTES_MAX
        self._check_there()
        frame = _frame(payload, durable=self._durable[1])
        try:
            self._cut_tail()
            if not self._size:
                self._watch.expect(self._file.path, self._file.fd(create=True))
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
        """Replace all payloads durably; nothing may be appended in the meantime.

        The event loop runs other tasks after every `REWRITE_SLICE` payloads.
        """
        assert not self._pending
        self._check_there()
        kept, content = [], bytearray()
        for payload in payloads:
            kept.append(payload)
            content += _frame(payload, durable=len(content))  # The file is replaced atomically.
            if len(kept) % REWRITE_SLICE == 0:
                await asyncio.sleep(0)
        try:
            # Otherwise a torn end that is still there would go without a copy.
            self._cut_tail()
            await self._syncer.in_thread(lambda: self._replace(bytes(content)))
        except OSError as error:
            raise KafkaStorageError(f"{self._file.path}: a rewrite failed: {error}") from error
        # Its descriptor still leads to the file that was replaced, and so do its unsynced bytes.
        self._file.unsynced_bytes = 0
        self._file.close()
        self._payloads, self._size = kept, len(content)
        self._durable = (len(kept), len(content))

    def _replace(self, content: bytes) -> None:
        """Blocking: replace the file of the journal."""
        self._watch.check()
        replace_file(self._opened.files, self._root, self._name, content)
        self._watch.expect(self._file.path, self._file.path)

    def lose(self, reason: str) -> None:
        """Fail all tickets and refuse further payloads, because the file is lost."""
        self._lost = reason
        self._pending.fail(f"{self._file.path}: {reason}")

    def _check_there(self) -> None:
        if self._lost:
            raise KafkaStorageError(f"{self._file.path}: {self._lost}")

    def begin_sync(self) -> SyncWork:
        # What is appended while the sync runs waits for the next one.
        self._syncing = (len(self._payloads), self._size)
        return SyncWork((self._file,), self._unsynced_names)

    def synced(self) -> None:
        self._unsynced_names = ()
        self._durable = self._syncing
        self._pending.settle(self._durable[0])

    def sync_failed(self, error: OSError) -> None:
        """Drop the payloads that are not durable; the next append tries the disk again."""
        log.warning("event=journal_sync_failed file=%s error=%r", self._name, str(error))
        count, self._size = self._durable
        del self._payloads[count:]
        try:
            self._file.truncate(self._size)
        except OSError as second:
            # The next append overwrites these bytes; opening the file ignores any that remain.
            log.warning("event=truncate_failed file=%s error=%r", self._name, str(second))
        self._pending.fail(f"{self._file.path}: a sync failed: {error}")

    def close(self) -> None:
        """Close the file and fail the tickets of appends that are not durable."""
        self._syncer.withdraw(self)
        self._pending.fail(f"{self._file.path}: the journal was closed")
        self._file.close()

    def _load(self) -> tuple[list[bytes], int]:
        if (size := self._file.size()) > SMALL_FILE_BYTES_MAX:
            raise KafkaStorageError(
                f"{self._file.path} has {size} bytes; expected up to {SMALL_FILE_BYTES_MAX}: "
                "restore the file from a copy"
            )
        data = self._file.read(size, 0)
        payloads, size = whole_payloads(data)
        if size < len(data):
            self._check_tail(data, size)
        else:
            self.found = mark_of(data)
        return payloads, size

    def mark(self) -> Mark | None:
        """Return the mark of the current file, or None if it cannot be read."""
        try:
            data = self._file.read(self._size, 0)
        except OSError as error:
            log.warning("event=journal_not_marked file=%s error=%r", self._name, str(error))
            return None
        return mark_of(data)

    def _check_tail(self, data: bytes, size: int) -> None:
        """Treat the bytes behind ``size`` as torn. KafkaStorageError if they were durable once."""
        for start in _possible_frames(data, size + 1):
            for durable, _, _ in _frames(data, start):
                if size < durable:
                    raise KafkaStorageError(
                        f"{self._file.path} is damaged at byte {size}: {durable} bytes of it were "
                        "durable; restore the file from a copy, or check what can be repaired: "
                        f"sharegroup data check --data {self._root}"
                    )
                # Frames behind this one are tried from their own start.
                break
        self._has_tail = True

    def cut_tail(self) -> None:
        """Cut off a torn end, to be called when the content is accepted; `append` also does it."""
        try:
            self._cut_tail()
        except OSError as error:
            log.warning(
                "event=tail_kept file=%s position=%d error=%r action='free space on the disk: "
                "until then no topic or setting can be changed'",
                self._name, self._size, str(error),
            )  # fmt: skip

    def _cut_tail(self) -> None:
        """Set aside the bytes behind the last whole payload, then cut them off."""
        if not self._has_tail:
            return
        size = self._file.size() - self._size
        path = self._set_aside.copy(
            self._file, first=self._size, why=TORN_JOURNAL, name=f"{self._name}@{self._size}"
        )
        self._file.truncate(self._size)
        self._has_tail = False
        log.warning(
            "event=tail_set_aside file=%s position=%d bytes=%d set_aside=%s "
            "action='if the broker was not killed, the last change of a topic or setting is lost'",
            self._name, self._size, size, path,
        )  # fmt: skip


def mark_of(data: bytes) -> Mark:
    """Return the mark of a journal's file with this content."""
    return len(data), crc32c.crc32c(data)


def whole_payloads(data: bytes) -> tuple[list[bytes], int]:
    """Return the whole payloads at the start of a journal's file, and the position behind them."""
    payloads, size = [], 0
    for _, payload, end in _frames(data, 0):
        payloads.append(payload)
        size = end
    return payloads, size


def salvaged_payloads(data: bytes) -> list[bytes]:
    """Return the payloads of all whole frames in a journal's file, even those behind damage."""
    payloads, end = [], 0
    for start in _possible_frames(data, 0):
        if start >= end:
            for _, payload, end in _frames(data, start):  # noqa: B007  Where the last one ended.
                payloads.append(payload)
    return payloads


def journal_content(payloads: Iterable[bytes]) -> bytes:
    """Return the content of a journal's file with these payloads."""
    content = bytearray()
    for payload in payloads:
        content += _frame(payload, durable=len(content))  # The file is replaced atomically.
    return bytes(content)


def _frame(payload: bytes, *, durable: int) -> bytes:
    checked = struct.pack(">Q", durable) + payload
    return struct.pack(">II", len(payload), crc32c.crc32c(checked)) + checked


def _possible_frames(data: bytes, position: int) -> Iterator[int]:
    """Iterate over the positions from ``position`` on where a frame may begin.

    A checksum over up to 16 MiB from every byte of a damaged file would take hours.
    """
    for match in _MAY_BEGIN.finditer(data, position):
        start = match.start()
        # A frame follows the bytes that were durable when it was written, so a larger number is no
        # frame.
        if _FRAME.unpack_from(data, start)[2] <= start:
            yield start


def _frames(data: bytes, position: int) -> Iterator[tuple[int, bytes, int]]:
    """Iterate over whole frames from ``position`` on.

    Yields the number of durable bytes in the frame, the payload, and the end of the frame.
    """
    while position + _FRAME.size < len(data):
        length, crc, durable = _FRAME.unpack_from(data, position)
        end = position + _FRAME.size + length
        if not 0 < length <= PAYLOAD_BYTES_MAX or end > len(data):
            return
        if crc32c.crc32c(memoryview(data)[position + _CHECKED_FROM : end]) != crc:
            return
        yield durable, data[position + _FRAME.size : end], end
        position = end


def write_clean_shutdown(files: Files, root: str, journals: Mapping[str, Mark]) -> None:
    """Blocking: write the file durably, with the marks of the journals."""
    content = json.dumps({"version": 0, "journals": journals})
    replace_file(files, root, CLEAN_SHUTDOWN_FILE, f"{content}\n".encode("ascii"))


def read_clean_shutdown(files: Files, root: str) -> dict[str, Mark] | None:
    """Return the marks of the last broker's journals, or None if it did not shut down cleanly."""
    path = f"{root}/{CLEAN_SHUTDOWN_FILE}"
    if not files.exists(path):
        return None
    try:
        journals = json.loads(read_file(files, path)).get("journals", {})
        return {str(name): (int(size), int(crc)) for name, (size, crc) in journals.items()}
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):
        return {}  # The existence of the file marks the clean shutdown, even if it is damaged.
