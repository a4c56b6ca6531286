"""Syncs files asynchronously with Linux' native asynchronous I/O.

    io_submit ──▶ kernel worker: fdatasync ──▶ eventfd ──▶ event loop ──▶ io_getevents ──▶ done

A sync in the event loop's thread blocks all requests.  A sync in a Python thread costs two thread
switches, and its end waits for the interpreter lock.  Here nothing blocks: the kernel has its own
workers, one for each file, so the flushes of several files become one (ADR 0001).

Neither Python nor the C library has a function for this, so the three system calls are made by
number.  `take` returns None if the kernel, the machine or a sandbox does not support them.

A context, the kernel's queue, takes 0.04 ms to create and 30 ms to destroy.  So the process keeps
the contexts of closed queues for reuse.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

log = logging.getLogger(__name__)

FILES_MAX = 64
"""Maximum number of files in one `KernelSyncs.begin`."""

Errors = dict[int, OSError]
"""Errors by the position of the file in `KernelSyncs.begin`."""

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
"""Unused contexts of this process; a forked child must not use them."""

os.register_at_fork(after_in_child=_unused.clear)


class KernelSyncs:
    """A queue for asynchronous syncs: one `begin` at a time, in the thread of one event loop."""

    __slots__ = ("_calls", "_context", "_done", "_errors", "_event_fd", "_events", "_left", "_loop")

    def __init__(self, calls: _Calls, context: int) -> None:
        """Use `take` instead."""
        self._calls = calls
        self._context = context
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = ctypes.create_string_buffer(FILES_MAX * _EVENT.size)
        self._loop: asyncio.AbstractEventLoop | None = None  # None until the first `begin`.
        self._done: Callable[[Errors], None] | None = None  # None while no sync is running.
        self._errors: Errors = {}
        self._left = 0

    @classmethod
    def take(cls) -> KernelSyncs | None:
        """Return a queue for the caller's use, or None if the system does not support it."""
        calls = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
        if calls is None or sys.byteorder != "little":
            return None
        if _unused:
            return cls(calls, _unused.pop())
        context = ctypes.c_ulong(0)
        try:
            _call(calls.setup, ctypes.c_long(FILES_MAX), ctypes.byref(context))
        except OSError as error:
            log.info("event=no_kernel_syncs error=%r", str(error))
            return None
        return cls(calls, context.value)

    def begin(self, fds: Sequence[int], done: Callable[[Errors], None]) -> bool:
        """Start to sync all of these files, then call ``done`` in the event loop.

        Returns False if the kernel accepts none of them, for example an old one; then nothing was
        begun.  If it accepts only some, the others are synced here, blocking.  The descriptors may
        be closed in the meantime.
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
        """Wait for running syncs and release the queue; ``done`` is not called after that."""
        try:
            # The next owner of the context would get the results of the syncs that still run.
            while self._left:
                self._reap(at_least=1)
            _unused.append(self._context)
        finally:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._event_fd)
            os.close(self._event_fd)

    def _submit(self, fds: Sequence[int]) -> int:
        """Submit the files to the kernel and return how many of them it accepts."""
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
            return 0  # The caller then syncs the files in another way, which reports the error.

    def _ended(self) -> None:
        with contextlib.suppress(BlockingIOError):  # An earlier call has read the count already.
            os.read(self._event_fd, 8)
        self._reap(at_least=0)
        if not self._left:
            self._finish()

    def _reap(self, *, at_least: int) -> None:
        """Collect the available results; wait until there are ``at_least`` of them."""
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
    """Return the errors among the results of the kernel, by the position of the file."""
    return {
        position: OSError(-result, f"sync: {os.strerror(-result)}")
        for position, _, result, _ in _EVENT.iter_unpack(events)
        if result < 0
    }


def _call(number: int, *arguments: object) -> int:
    """Make a system call, again if a signal interrupts it (PEP 475). OSError if it fails."""
    while True:
        result: int = _syscall(ctypes.c_long(number), *arguments)
        if result >= 0:
            return result
        code = ctypes.get_errno()
        # Between two calls Python runs the handler of the signal, which may raise.
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


def _find_syscall() -> Callable[..., int]:
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    return syscall


_syscall = _find_syscall()
