"""Syncs that the kernel does while we go on: Linux' native asynchronous I/O.

    io_submit ──▶ kernel worker: fdatasync ──▶ eventfd ──▶ event loop ──▶ io_getevents ──▶ done

A sync in the event loop's thread stops everybody; one in a thread of Python's costs two thread
switches, and its end has to wait for the interpreter lock.  Here nobody waits: the kernel has
workers of its own, one for each file, so the flushes of several files become one (ADR 0001).

There is no function for this in Python or in the C library, so the three system calls are
made by number.  Where the kernel, the machine or a sandbox does not know them, `take` gives None.

A context, the kernel's queue, costs 0.04 ms to make and 30 ms to destroy, so the process keeps
the contexts of those who closed for whoever comes next.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

log = logging.getLogger(__name__)

FILES_MAX = 64
"""So many files can be in one `KernelSyncs.begin`."""

Errors = dict[int, OSError]
"""What failed, by the position of the file in `KernelSyncs.begin`."""

_FDSYNC = 3  # IOCB_CMD_FDSYNC
_TELL_EVENTFD = 1  # IOCB_FLAG_RESFD
_REQUEST = struct.Struct("=QIiHhIQQqQII")  # struct iocb, little endian
_EVENT = struct.Struct("=QQqq")  # struct io_event


class _Calls(NamedTuple):
    """The numbers of the system calls on one kind of machine."""

    setup: int
    submit: int
    getevents: int


_CALLS = {"x86_64": _Calls(206, 209, 208), "aarch64": _Calls(0, 2, 4)}

_unused: list[int] = []
"""Contexts of this process that nobody uses; a child after a fork has none of them."""

os.register_at_fork(after_in_child=_unused.clear)


class KernelSyncs:
    """See the module's text.  One `begin` at a time, from the thread of one event loop."""

    __slots__ = ("_calls", "_context", "_done", "_errors", "_event_fd", "_events", "_left", "_loop")

    def __init__(self, calls: _Calls, context: int) -> None:
        """Use `take`."""
        self._calls = calls
        self._context = context
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = ctypes.create_string_buffer(FILES_MAX * _EVENT.size)
        self._loop: asyncio.AbstractEventLoop | None = None  # None: nothing was begun yet.
        self._done: Callable[[Errors], None] | None = None  # None: nothing is going on.
        self._errors: Errors = {}
        self._left = 0

    @classmethod
    def take(cls) -> KernelSyncs | None:
        """A queue of one's own; None where the system has none for us."""
        calls = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
        if calls is None or sys.byteorder != "little":
            return None
        if _unused:
            return cls(calls, _unused.pop())
        made = ctypes.c_ulong(0)
        try:
            _call(calls.setup, ctypes.c_long(FILES_MAX), ctypes.byref(made))
        except OSError as error:
            log.info("event=no_kernel_syncs error=%r", str(error))
            return None
        return cls(calls, made.value)

    def begin(self, fds: Sequence[int], done: Callable[[Errors], None]) -> bool:
        """Sync all of these files, then call ``done`` in the event loop.

        False: the kernel, an old one perhaps, takes none, and nothing was begun.  Where it takes
        some, the others are synced here and now.  The descriptors may be closed meanwhile.
        """
        assert self._done is None, "one round at a time"
        assert 0 < len(fds) <= FILES_MAX
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._event_fd, self._ended)
        self._left = self._submit(fds)
        if not self._left:
            return False
        self._done, self._errors = done, {}
        for position in range(self._left, len(fds)):
            try:
                os.fdatasync(fds[position])
            except OSError as error:
                self._errors[position] = error
        return True

    def close(self) -> None:
        """Wait for what is going on; nobody is told of it any more."""
        while self._left:
            self._reap(at_least=1)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._event_fd)
        os.close(self._event_fd)
        _unused.append(self._context)

    def _submit(self, fds: Sequence[int]) -> int:
        """Hand over as many as the kernel takes; how many that is."""
        requests = ctypes.create_string_buffer(len(fds) * _REQUEST.size)
        begin = ctypes.addressof(requests)
        for position, fd in enumerate(fds):
            request = (position, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _TELL_EVENTFD, self._event_fd)
            _REQUEST.pack_into(requests, position * _REQUEST.size, *request)
        places = (ctypes.c_void_p * len(fds))(
            *(begin + position * _REQUEST.size for position in range(len(fds)))
        )
        try:
            return _call(
                self._calls.submit, ctypes.c_ulong(self._context), ctypes.c_long(len(fds)), places
            )
        except OSError:
            return 0  # Whoever syncs them otherwise finds out what is wrong, and with which.

    def _ended(self) -> None:
        with contextlib.suppress(BlockingIOError):  # Counted by an earlier call already.
            os.read(self._event_fd, 8)
        self._reap(at_least=0)
        if not self._left:
            self._finish()

    def _reap(self, *, at_least: int) -> None:
        """Take the results that are there."""
        count = _call(
            self._calls.getevents,
            ctypes.c_ulong(self._context),
            ctypes.c_long(at_least),
            ctypes.c_long(FILES_MAX),
            self._events,
            None,
        )
        self._errors.update(failures(self._events.raw[: count * _EVENT.size]))
        self._left -= count

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self._errors)


def failures(events: bytes) -> Errors:
    """Which of these results of the kernel are errors."""
    return {
        position: OSError(-result, f"sync: {os.strerror(-result)}")
        for position, _, result, _ in _EVENT.iter_unpack(events)
        if result < 0
    }


def _call(number: int, *arguments: object) -> int:
    """Make a system call; OSError where it fails."""
    result: int = _syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _find_syscall() -> Callable[..., int]:
    found = ctypes.CDLL(None, use_errno=True).syscall
    found.restype = ctypes.c_long
    return found


_syscall = _find_syscall()
