"""One client connection: frames in, replies out in the order of their requests.

There is no task per connection: the transport calls in with bytes, every complete frame is
dispatched at once, and its reply, or a future of it, takes a place in a queue.  Whenever the
reply at the head is there it is written.  A peer that sends without reading is not read from
any more: neither the queue nor the transport's buffer grows past its limit.  A peer that sends
many requests at once gets as many of them served as the queue holds, then it is the others' turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol, cast

from sharegroup.broker.clock import Clock
from sharegroup.broker.dispatch import CloseConnection, Reply, dispatch
from sharegroup.broker.parts import Parts
from sharegroup.wire.encoder import Chunk
from sharegroup.wire.framing import FrameError, Frames

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""Bytes that may wait for a slow reader before its requests are no longer read."""


class Owner(Protocol):
    """Who keeps the connections (the server)."""

    def opened(self, connection: Connection) -> bool: ...

    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """See the module's text."""

    def __init__(self, owner: Owner, parts: Parts, connection_id: int) -> None:
        self.connection_id = connection_id
        self.peer, self._host = "unknown", ""
        self._owner = owner
        self._parts = parts
        self._clock: Clock = parts.clock
        self._read_ahead = parts.topics.read_ahead
        self._frames = Frames(parts.config.server.request_bytes_max)
        self._replies: deque[asyncio.Future[Reply] | Reply] = deque()
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._reading = True
        self._behind = False  # Whole frames may be waiting to be taken.
        self._turn: asyncio.Handle | None = None  # None: no later turn is arranged.
        self._closing = False
        self._last_read_ms = self._last_write_ms = self._clock.now_ms()
        self._frame_began_ms: int | None = None  # None: no frame is half received.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not the class.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        address = transport.get_extra_info("peername")
        if address:
            self.peer, self._host = f"{address[0]}:{address[1]}", address[0]
        if not self._owner.opened(self):
            self._closing = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio calls it so.
        self._closing = True
        self._replies.clear()  # Not cancelled: one may be in the middle of a change.
        self._owner.closed(self)

    def data_received(self, data: bytes) -> None:
        self._last_read_ms = self._clock.now_ms()
        self._frames.feed(data)
        self._take_frames()

    def pause_writing(self) -> None:
        self._writable = False
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self._last_write_ms = self._clock.now_ms()
        self._take_frames()

    def close(self, reason: str) -> None:
        """Close without waiting for what the peer still has to read."""
        if self._transport is not None and not self._closing:
            log.info("event=connection_closed peer=%s reason=%s", self.peer, reason)
            self._closing = True
            self._transport.abort()

    def check_progress(self, now_ms: int) -> None:
        """Close what makes no progress: a frame that never ends, a peer that never reads."""
        server = self._parts.config.server
        began_ms = self._frame_began_ms
        if began_ms is not None and now_ms - began_ms > server.frame_progress_ms:
            self.close("an incomplete request made no progress")
        elif not self._writable and now_ms - self._last_write_ms > server.frame_progress_ms:
            self.close("answers were not read")
        elif not self._replies and now_ms - self._last_read_ms > server.connection_idle_ms:
            self.close("idle")

    def _take_frames(self) -> None:
        """Dispatch complete frames while there is room for their replies."""
        self._behind = True
        while not self._closing and self._has_room():
            try:
                frame = self._frames.next()
            except FrameError as error:
                self._refuse(str(error))
                return
            if frame is None:
                self._behind = False
                self._note_partial_frame()
                break
            self._frame_began_ms = None
            self._dispatch(frame)
        self._write_replies()
        if self._behind and self._turn is None and not self._closing and self._has_room():
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self._take_frames()

    def _has_room(self) -> bool:
        """Whether one more reply may be waited for."""
        return (
            self._writable
            and len(self._replies) < self._parts.config.server.connection_requests_max
        )

    def _note_partial_frame(self) -> None:
        """Remember since when the peer owes the rest of a frame."""
        if not self._frames.partial:
            self._frame_began_ms = None
        elif self._frame_began_ms is None:
            self._frame_began_ms = self._clock.now_ms()

    def _dispatch(self, frame: memoryview) -> None:
        try:
            reply = dispatch(
                self._parts,
                frame,
                connection_id=self.connection_id,
                peer_host=self._host,
            )
        except CloseConnection as error:
            self._refuse(str(error))
            return
        self._replies.append(reply)
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(self._reply_done)

    def _reply_done(self, reply: asyncio.Future[Reply]) -> None:
        if self._closing or reply.cancelled():
            return
        self._take_frames()

    def _write_replies(self) -> None:
        assert self._transport is not None
        chunks: list[Chunk] = []
        while self._replies:
            head = self._replies[0]
            if isinstance(head, asyncio.Future):
                if not head.done():
                    break
                try:
                    head = head.result()
                except CloseConnection as error:
                    self._refuse(str(error))
                    return
            self._replies.popleft()
            chunks.extend(head)
        if chunks and not self._closing:
            self._last_write_ms = self._clock.now_ms()
            self._transport.writelines(chunks)
            if self._read_ahead.is_due:  # There is time while the peer works on its answer.
                asyncio.get_running_loop().call_soon(self._read_ahead.read_expected)
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """Read exactly while another request could be taken."""
        if self._transport is None or self._closing:
            return
        want = self._has_room() and not self._behind
        if want and not self._reading:
            self._transport.resume_reading()
        elif not want and self._reading:
            self._transport.pause_reading()
        self._reading = want

    def _refuse(self, reason: str) -> None:
        """The peer broke the protocol: one line with its address, and the connection ends."""
        if not self._closing:
            log.warning("event=bad_request peer=%s reason=%r", self.peer, reason)
            self._parts.requests.bad_count += 1
            self._closing = True
            assert self._transport is not None
            self._transport.close()
