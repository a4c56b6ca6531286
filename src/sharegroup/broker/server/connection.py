"""One client connection: frames in, replies out in the order of their requests.

There is no task per connection (ADR 0006).  The transport passes bytes in, and every complete frame
is dispatched at once.  Its reply, or a future of it, is added to a queue.  When the reply at the
head of the queue is ready, it is written.  A peer that sends many requests at once is served for a
few milliseconds, then other connections have their turn (`turns`).

The bytes that a connection holds are counted in two budgets.  While its answers have no room,
requests are not dispatched (`answer_budget`).  While a large frame has no room, the rest of it is
not received (`request_budget`).  While its client is over a quota, nothing is read from it
(`quotas`), and a grant for the rest of a frame is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.clock import Clock, TimerHandle
from sharegroup.broker.handler_contract import CloseConnection, HandlerOf
from sharegroup.broker.load.answer_budget import LARGE_WRITE_BYTES, AnswerAccount, AnswerBudget
from sharegroup.broker.load.log_limit import LinesByAddress
from sharegroup.broker.load.request_budget import SMALL_BYTES, RequestAccount, RequestBudget
from sharegroup.broker.parts import Parts
from sharegroup.broker.server.dispatch import Reply, dispatch
from sharegroup.broker.server.turns import Turns
from sharegroup.core.security.principal import ANONYMOUS, Principal
from sharegroup.wire.codec.encoder import Chunk
from sharegroup.wire.codec.framing import FrameError, Frames

if TYPE_CHECKING:
    # Only brokers with SASL import it.
    from sharegroup.broker.server.sasl_login import SaslLogin

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""Bytes that may wait for a slow reader before its requests are no longer read."""

TOO_MANY_OF_USER = "its user has too many connections"


class Budgets(NamedTuple):
    """The budgets, turns and limits on log lines that all connections of a broker share."""

    requests: RequestBudget
    answers: AnswerBudget
    turns: Turns
    bad_requests: LinesByAddress
    """The log lines about peers that broke the protocol."""
    closings: LinesByAddress
    """The log lines about connections that the broker has closed for other reasons."""


class Owner(Protocol):
    """The server that keeps the connections."""

    def opened(self, connection: Connection) -> bool:
        """Register a new connection; return False if it must be closed."""

    def logged_in(self, connection: Connection, user: Principal) -> bool:
        """Count a connection for its user; return False if it must be closed."""

    def closed(self, connection: Connection) -> None:
        """Forget a connection that was closed."""


class Connection(asyncio.Protocol):
    """A client's connection; the transport and the budgets call its methods."""

    def __init__(
        self,
        owner: Owner,
        parts: Parts,
        handler_of: HandlerOf,
        shared: Budgets,
        connection_id: int,
    ) -> None:
        self.connection_id = connection_id
        self._peer = Peer("", listener=parts.listener)
        self._owner = owner
        self._parts = parts
        self._handler_of = handler_of
        self._clock: Clock = parts.clock
        self._read_ahead = parts.topics.read_ahead
        self._requests_max = parts.config.server.connection_requests_max
        self._frames = Frames(parts.config.server.request_bytes_max)
        self._replies: deque[asyncio.Future[Reply] | Reply] = deque()
        """The first reply that is not ready, and all replies after it."""
        self._ready: list[Chunk] = []
        """Chunks of the replies before those in ``_replies``; they are written next."""
        self._shared = shared
        self._turns = shared.turns
        self._received = RequestAccount(shared.requests, self)
        self._answers = AnswerAccount(shared.answers, self)
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._reading = True
        self._granted = True  # Whether the rest of the incomplete frame has room.
        self._behind = False  # Whether complete frames may be waiting to be dispatched.
        self._closing = False
        self.is_lost = False
        """Whether it is closed, and only here until its requests are decided."""
        self._throttle_timer: TimerHandle | None = None  # None if the client is not throttled.
        self._login: SaslLogin | None = None  # None on a listener without SASL.
        self._last_read_ms = self._last_write_ms = self._clock.now_ms()
        self._frame_began_ms: int | None = None  # None if no frame is incomplete.

    @property
    def host(self) -> str:
        """The peer's address."""
        return self._peer.host

    @property
    def peer(self) -> str:
        """The peer's address and port, for log lines."""
        return str(self._peer)

    @property
    def idle_since_ms(self) -> int | None:
        """The time at which the peer last sent bytes; None while a request has no answer."""
        return None if self._replies or self.is_lost else self._last_read_ms

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the connection; close it if the limits on connections refuse it."""
        # uvloop's transports have the methods of asyncio's class but do not inherit from it.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        address = transport.get_extra_info("peername")
        if address:
            self._peer.host, self._peer.port = address[:2]
            # The user of the client's certificate, if TLS requires one (`tls.transport`).
            self._peer.principal = transport.get_extra_info("principal") or self._peer.principal
            self._peer.rights = self._parts.rights_of(self._peer)
        if not self._owner.opened(self):
            self.drop()
            return
        accepted = self._parts.logins.of_listener(self._parts.listener)
        if accepted is None:
            if self._peer.principal is not ANONYMOUS:
                self.logged_in()
        else:
            # Imported by brokers with SASL only.
            from sharegroup.broker.server.sasl_login import SaslLogin

            self._login = SaslLogin(self._parts, self._handler_of, accepted, self._peer, self)

    def logged_in(self) -> None:
        """Count the connection and its bytes for its user, or close it if there are too many."""
        user = self._peer.principal
        if self._owner.logged_in(self, user):
            self._received.assign(user)
            self._answers.assign(user)
        else:
            self._log_closed(TOO_MANY_OF_USER)
            # Neither the answer to the login, which is being made, is sent, nor is a request that
            # came behind it dispatched.
            self._closing = True
            self._frames.clear()
            asyncio.get_running_loop().call_soon(self.drop)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  The signature of asyncio.
        self._closing = True
        self._release()
        if self._login is not None:
            self._login.closed()
            self._login = None  # It refers to this connection.
        # What was received is decided nevertheless, because acks=0 has no other sign of success.
        # Until then the connection keeps its place and its bytes (ADR 0006).
        if self._is_undecided:
            self.is_lost = True
            self._parts.late_requests.finish(self.connection_id, self._decided)
        else:
            self._owner.closed(self)

    @property
    def _is_undecided(self) -> bool:
        """Whether requests of this connection still wait to be decided."""
        return self.connection_id in self._parts.late_requests.waiting

    def _decided(self) -> None:
        """End a closed connection, because all its requests are decided now."""
        self._close_accounts()
        self._owner.closed(self)

    def data_received(self, data: bytes) -> None:
        """Take received bytes, and dispatch the requests that are complete now."""
        if self._closing or (self._login is not None and self._login.is_deaf):
            return  # A refused peer may still send while its last answers are sent.
        self._last_read_ms = self._clock.now_ms()
        frames = self._frames
        frames.feed(data)
        if frames.buffered_bytes < frames.frame_bytes and self._granted:
            return  # More bytes of a frame that is already counted whole.
        self.take_turn()

    def pause_writing(self) -> None:
        """Stop reading requests, because the peer does not read its answers fast enough."""
        self._writable = False
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._writable = True
        # The peer has read a part of its answers: its time for the rest begins anew.
        self._last_write_ms = self._clock.now_ms()
        self.take_turn()

    def go_on(self) -> None:
        """Take a turn, because a budget has room again."""
        if not self._closing:
            self._turns.add(self)

    def close(self, reason: str) -> None:
        """Close the connection without sending the remaining answers; log the reason."""
        if self._transport is not None and not self._closing:
            if self._login is not None and self._login.is_pending:
                self._login.failed(reason)
            else:
                self._log_closed(reason)
            self.drop()
        # Its peer has gone, but its undecided requests still hold memory that others need.
        elif self.is_lost:
            self._log_closed(reason)
            self._parts.late_requests.drop(self.connection_id)

    def _log_closed(self, reason: str) -> None:
        self._log_end(logging.INFO, "connection_closed", reason, self._shared.closings)

    def check_progress(self, now_ms: int) -> None:
        """Close the connection if a frame does not end, or the peer does not read or is idle."""
        server = self._parts.config.server
        # The broker reads nothing from a throttled client, so its frame cannot make progress.
        began_ms = self._frame_began_ms if self._throttle_timer is None else None
        if self._login is not None and not self._closing and self._login.overdue(now_ms):
            self._login.close("the login was not complete in time")
        if self._closing:
            if not self.is_lost and now_ms - self._last_write_ms > server.frame_progress_ms:
                self.drop()  # A refused peer does not read its last answers.
        elif began_ms is not None and now_ms - began_ms > server.frame_progress_ms:
            self.close("an incomplete request made no progress")
        elif not self._writable and now_ms - self._last_write_ms > server.frame_progress_ms:
            self.close("responses were not read")
        # A connection with a waiting request is not idle: during a long poll its client sends
        # nothing.
        elif not self._replies and now_ms - self._last_read_ms > server.connection_idle_ms:
            self.close("idle")

    def receiving(self) -> tuple[int | None, int, int]:
        """Return the time at which the incomplete frame began, and its received and needed bytes.

        The first is None if no frame is incomplete.
        """
        return self._frame_began_ms, self._frames.buffered_bytes, self._frames.needed_bytes

    def unsent_bytes(self) -> int:
        """Return the bytes that were written to the transport and are not sent yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def take_turn(self) -> None:
        """Dispatch complete frames while there is room and time; write the replies that are
        ready.
        """
        frames = self._frames
        self._behind = frames.buffered_bytes > 0
        if self._behind and self._has_room():
            try:
                self._take_frames()
            except FrameError as error:
                self._refuse(str(error))
                return
        if self._closing or not self._write_replies():
            return
        # After the replies: the client reads its throttle time in one of them (KIP-219).
        if self._peer.throttled_until_ms:
            self._throttle()
        received = self._received
        if frames.buffered_bytes or not self._granted:
            self._count_received()
        elif received.held_bytes != received.pending_bytes:
            received.note_no_frame()
        # In the usual turn all is answered and reading goes on, which saves the call.
        if self._replies or self._behind or not (self._reading and self._granted):
            self._adjust_reading()
        if self._behind and self._has_room():
            self._turns.add(self)

    def _take_frames(self) -> None:
        """Dispatch complete frames, at least one, until there is no room or the turn is over."""
        frames, clock, end = self._frames, self._turns.clock, 0.0
        while True:
            frame = frames.next()
            if frame is None:
                self._behind = False
                return
            self._frame_began_ms = None
            is_written = self._dispatch(frame)
            if not frames.buffered_bytes:
                self._behind = False
                return
            # A reply that is written next holds no room, so the room is as it was before the frame.
            if self._peer.throttled_until_ms or not (is_written or self._has_room()):
                return
            # Not before the second frame: most turns have one, and need no clock.
            now = clock()
            if not end:
                end = now + self._turns.turn_seconds
            elif now >= end:
                return

    def _has_room(self) -> bool:
        """Return whether one more request may be dispatched."""
        received = self._received
        return (
            self._writable
            and not self._closing
            and not self._peer.throttled_until_ms
            and not (self._login is not None and self._login.is_busy)
            and len(self._replies) < self._requests_max
            # Asked late, because without room it registers the connection for `go_on`.
            and self._answers.may_answer()
            and (received.pending_bytes <= SMALL_BYTES or received.may_wait())
        )

    def _count_received(self) -> None:
        """Update the count of received bytes and the time at which the incomplete frame began."""
        frames, received = self._frames, self._received
        buffered = frames.buffered_bytes
        if not buffered:
            self._frame_began_ms = None
            self._granted = True
            received.note_no_frame()
            return
        frames.release_taken()
        if self._throttle_timer is not None:
            # If others need the room, the connection is closed: its frame makes no progress.
            if self._frame_began_ms is None:
                self._frame_began_ms = self._clock.now_ms()
            self._granted = False
            received.note_paused(buffered)
            return
        was_granted = self._granted
        self._granted = received.note(buffered, frames.needed_bytes)
        # The frames that wait are complete: the peer owes no progress.
        if self._behind:
            return
        # Nothing was read while the frame had no room, so the time of the peer begins with the
        # grant.
        if self._frame_began_ms is None or (self._granted and not was_granted):
            self._frame_began_ms = self._clock.now_ms()

    def _dispatch(self, frame: memoryview) -> bool:
        """Dispatch a request; return whether its reply is written next and holds no room."""
        answers = self._answers
        answers.request_number += 1
        answers.is_dispatching = True
        try:
            if self._login is None or self._login.admits(frame):
                reply = dispatch(
                    self._parts,
                    self._handler_of,
                    frame,
                    connection_id=self.connection_id,
                    peer=self._peer,
                    answers=answers,
                )
            else:
                reply = self._login.take(
                    frame, connection_id=self.connection_id, peer=self._peer, answers=answers
                )
        except CloseConnection as error:
            self._ended(error)
            return False
        finally:
            answers.is_dispatching = False
        if isinstance(reply, asyncio.Future):
            # The peer decides how long a request waits, except for Produce (0), which waits for a
            # disk.
            number = answers.request_number
            self._received.dispatched(number, len(frame), is_parked=frame[1] != 0)
            self._replies.append(reply)
            reply.add_done_callback(partial(self._reply_done, number))
            if answers.reserved:
                answers.refresh()
        elif self._replies:
            self._replies.append(reply)
            answers.ready_bytes += sum(map(len, reply))
            if answers.settle(answers.request_number) or answers.reserved:
                answers.refresh()
        else:
            answers.next_number += 1
            self._ready += reply
            if not answers.reserved:
                return True
            # Until they are written, these bytes count nowhere: the reservation has ended, and the
            # transport does not have them yet.
            if answers.settle(answers.request_number) >= LARGE_WRITE_BYTES:
                self._write_replies()
        return False

    def _reply_done(self, request_number: int, reply: asyncio.Future[Reply]) -> None:
        """Write a reply that has become ready, or count it until it is its turn."""
        answers = self._answers
        if request_number < answers.next_number:
            return  # It was written together with an earlier reply.
        error = None if reply.cancelled() else reply.exception()  # Marks it as retrieved.
        if self._closing or reply.cancelled():
            self._count_answered(request_number)
            return
        if request_number > answers.next_number:
            self._count_answered(request_number)
            if error is None:
                answers.ready_bytes += sum(map(len, reply.result()))
        if self._behind:
            self._write_replies()
            # Frames that wait are dispatched in a round with those of other connections, not out of
            # turn.
            self.go_on()
        else:
            self.take_turn()

    def _count_answered(self, request_number: int) -> bool:
        """Count a request as answered; return whether it was unanswered before."""
        if self._answers.reserved:
            self._answers.settle(request_number)
        return self._received.answered(request_number)

    def _write_replies(self) -> bool:
        """Write the replies that are ready; return False if the connection was refused."""
        assert self._transport is not None
        chunks, self._ready = self._ready, []
        replies, answers = self._replies, self._answers
        while replies:
            head = replies[0]
            is_ready = True
            if isinstance(head, asyncio.Future):
                if not head.done():
                    break
                try:
                    head = head.result()
                except CloseConnection as error:
                    # The replies before it are still sent (`_finish`).
                    self._ready = chunks
                    self._ended(error)
                    return False
                is_ready = not self._count_answered(answers.next_number)
            replies.popleft()
            answers.next_number += 1
            # The bytes of a reply count as ready only if it was done before its turn came.
            if is_ready:
                answers.ready_bytes -= sum(map(len, head))
            chunks += head
        if chunks:
            self._last_write_ms = self._clock.now_ms()
            self._transport.writelines(chunks)
            answers.written(sum(map(len, chunks)))
            if self._read_ahead.is_due:  # There is time while the peer handles its answer.
                asyncio.get_running_loop().call_soon(self._read_ahead.read_expected)
        elif answers.ready_bytes:
            answers.refresh()
        return True

    def _adjust_reading(self) -> None:
        """Read from the socket only while no frame waits and another request may be dispatched."""
        if self._transport is None or self._closing:
            return
        should_read = (
            not self._behind
            and self._granted
            and self._writable
            and self._throttle_timer is None
            and len(self._replies) < self._requests_max
        )
        if should_read and not self._reading:
            self._transport.resume_reading()
        elif not should_read and self._reading:
            self._transport.pause_reading()
        self._reading = should_read

    def _throttle(self) -> None:
        """Read and dispatch nothing until the throttle time of the client is over (KIP-219)."""
        if self._throttle_timer is None:
            self._throttle_timer = self._clock.call_at_ms(
                self._peer.throttled_until_ms, self._end_throttle
            )
            self._adjust_reading()

    def _end_throttle(self) -> None:
        """Serve the client again, unless its throttle time has become longer."""
        self._throttle_timer = None
        if self._closing:
            return
        if self._clock.now_ms() < self._peer.throttled_until_ms:
            self._throttle()
            return
        self._peer.throttled_until_ms = 0
        # Nothing was read meanwhile, so the peer has its whole time again.
        if self._frame_began_ms is not None:
            self._frame_began_ms = self._clock.now_ms()
        self.take_turn()
        self._adjust_reading()

    def _ended(self, error: CloseConnection) -> None:
        """End the connection, with a last reply if a login has failed or a session has expired."""
        if self._login is not None:
            # Imported already, with `SaslLogin`.
            from sharegroup.broker.server.sasl_login import LoginEnded

            if isinstance(error, LoginEnded):
                self._ready += error.reply
                self._finish()
                return
        self._refuse(str(error))

    def _refuse(self, reason: str) -> None:
        """End the connection because the peer broke the protocol; log its address.

        Replies that are ready are sent first.
        """
        if not self._closing:
            self._parts.requests.bad_count += 1
            if self._login is not None and self._login.is_pending:
                self._login.failed(reason)
            else:
                lines = self._shared.bad_requests
                self._log_end(logging.WARNING, "bad_request", reason, lines)
            self._finish()

    def _log_end(self, level: int, event: str, reason: str, lines: LinesByAddress) -> None:
        """Log why the connection ends; beyond the limit on lines, with the level DEBUG."""
        unlogged = lines.unlogged(self.host, self._clock.now_ms())
        log.log(
            logging.DEBUG if unlogged is None else level,
            "event=%s peer=%s reason=%r unlogged=%d",
            event,
            self.peer,
            reason,
            unlogged or 0,
        )

    def _finish(self) -> None:
        """End the connection after the replies that are ready are sent."""
        if not self._closing:
            assert self._transport is not None
            if self._ready:
                self._transport.writelines(self._ready)
                self._answers.written(sum(map(len, self._ready)))
            self._closing = True
            # From now on `check_progress` measures the time that the peer takes to read its last
            # answers.
            self._last_write_ms = self._clock.now_ms()
            self._frames.clear()
            self._received.note_no_frame()
            self._transport.close()

    def limit_frames(self, bytes_max: int, bytes_min: int) -> None:
        """Change the limits on the sizes of the next frames, as a login asks for."""
        self._frames.limit(bytes_max, bytes_min)

    def drop(self) -> None:
        """End the connection now; unsent bytes are lost."""
        assert self._transport is not None
        self._closing = True
        self._release()
        self._transport.abort()

    def _release(self) -> None:
        """Free what the connection holds."""
        self._replies.clear()  # Not cancelled: a request may be in the middle of a change.
        self._ready.clear()
        self._frames.clear()
        self._turns.remove(self)
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        if self._is_undecided:
            self._received.note_no_frame()
        else:
            self._close_accounts()

    def _close_accounts(self) -> None:
        self._received.close()
        self._answers.close()
