"""A TCP proxy on loopback whose links can be cut, one direction at a time.

`Proxy` is a thread with an event loop; each `Link` of it forwards what connects to its address to
its target.  A cut is a black hole, as between two machines whose cable is broken: connections
stay open, bytes wait and arrive after `heal`, and so do ends of connections.  New connections are
accepted, because the kernel does that, and wait until both directions are whole.  With ``reset``
open connections and new ones are reset instead.

While nothing listens at the target, nothing listens at the link: a client is refused, as it is
by the target.  The address stays reserved for the whole life of the link.

    with Proxy() as proxy:
        link = proxy.link(("127.0.0.1", 0), ("127.0.0.1", target_port))
        connect(link.address)
        link.cut(forward=False)     # what the target says does not arrive
        link.heal()
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

BACKLOG = 128
PROBE_SECONDS = 0.05
"""How often a link looks whether its target listens, while it does not."""
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with a limit of 0 s: `close` sends a reset."""

Address = tuple[str, int]
T = TypeVar("T")


class Proxy:
    """The thread that all links run in; a context manager that ends them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tcp-proxy", daemon=True
        )
        self._links: list[Link] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def link(self, address: Address, target: Address) -> Link:
        """A new link; port 0 takes a free one.  It listens as soon as its target does."""
        link = Link(self, self._loop, address, target)
        self._links.append(link)
        self.run(link.serve)
        return link

    def run(self, function: Callable[[], T]) -> T:
        """The result of a function that runs in the thread of the links."""

        async def runs() -> T:
            return function()

        return self.call(runs())

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs in the thread of the links."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _close(self) -> None:
        tasks = [task for link in self._links for task in link.close()]
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # Transports close their sockets in the next turn of the loop.


class Link:
    """Forwards connections from one address to another; made by `Proxy.link`."""

    def __init__(
        self, proxy: Proxy, loop: asyncio.AbstractEventLoop, address: Address, target: Address
    ) -> None:
        self.target = target
        self._proxy = proxy
        self._loop = loop
        self._listener = _bound(address)
        self.address: Address = self._listener.getsockname()
        self.forward = True
        """Whether bytes pass from clients to the target."""
        self.backward = True
        """Whether bytes pass from the target to clients."""
        self._resets = False
        self._whole = asyncio.Event()
        self._whole.set()
        self._listens = False
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def listens(self) -> bool:
        """Whether clients can connect: the target listened when it was last needed."""
        return self._listens

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._pairs)

    def cut(self, *, forward: bool = True, backward: bool = True, reset: bool = False) -> None:
        """Let nothing pass in these directions; ``reset``: and reset the connections."""
        self._proxy.run(
            lambda: self._set(self.forward and not forward, self.backward and not backward, reset)
        )

    def heal(self) -> None:
        """Let everything pass again, also what waited."""
        self._proxy.run(lambda: self._set(True, True, False))

    def unlisten(self) -> None:
        """The target has ended: refuse clients until it listens again."""
        self._proxy.run(self._unlisten)

    def serve(self) -> None:
        """Start to forward; in the thread of the proxy."""
        self._start(self._accepting())

    def close(self) -> list[asyncio.Task[None]]:
        """End everything; the tasks to wait for.  In the thread of the proxy."""
        for task in self._tasks:
            task.cancel()
        for pair in list(self._pairs):
            pair.reset()
        self._listener.close()
        return list(self._tasks)

    def _set(self, forward: bool, backward: bool, resets: bool) -> None:
        self.forward, self.backward, self._resets = forward, backward, resets
        if (forward and backward) or resets:
            self._whole.set()
        else:
            self._whole.clear()
        for pair in list(self._pairs):
            if resets:
                pair.reset()
            else:
                pair.adjust()

    def _unlisten(self) -> None:
        if self._listens:
            self._listens = False
            # On Linux a listener that is shut down keeps its port, and can listen again.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RD)

    async def _accepting(self) -> None:
        while True:
            if not self._listens:
                await self._until_target_listens()
                self._listener.listen(BACKLOG)
                self._listens = True
            try:
                client, _ = await self._loop.sock_accept(self._listener)
            except OSError:  # `_unlisten` woke it up.
                self._listens = False
            else:
                self._start(self._forwarding(client))

    async def _until_target_listens(self) -> None:
        while not await self._target_listens():
            await asyncio.sleep(PROBE_SECONDS)

    async def _target_listens(self) -> bool:
        with socket.socket() as probe:
            probe.setblocking(False)
            try:
                await self._loop.sock_connect(probe, self.target)
            except OSError:
                return False
        return True

    async def _forwarding(self, client: socket.socket) -> None:
        """Connect a client with the target, once nothing is cut."""
        try:
            await self._whole.wait()
            if self._resets:
                _reset(client)
                return
            pair = _Pair(self)
            try:
                await self._loop.create_connection(lambda: pair.server, *self.target)
            except OSError:
                self._unlisten()
                _reset(client)
                return
            await self._loop.connect_accepted_socket(lambda: pair.client, client)
            if self._resets:
                pair.reset()
            pair.adjust()
        except BaseException:
            client.close()
            raise

    def opened(self, pair: _Pair) -> None:
        self._pairs.add(pair)

    def ended(self, pair: _Pair) -> None:
        self._pairs.discard(pair)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Pair:
    """One connection through a link: the client's side and the target's."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.client, self.server = _Side(self), _Side(self)

    def passes_from(self, side: _Side) -> bool:
        return self._link.forward if side is self.client else self._link.backward

    def other(self, side: _Side) -> _Side:
        return self.server if side is self.client else self.client

    def connected(self) -> None:
        self._link.opened(self)

    def adjust(self) -> None:
        """Do what the state of the link asks for."""
        for side in (self.client, self.server):
            side.adjust(self.passes_from(side))
        if self.client.gone and self.server.gone:
            self._link.ended(self)

    def reset(self) -> None:
        for side in (self.client, self.server):
            side.reset()


class _Side(asyncio.Protocol):
    """One socket of a pair; what it receives goes to the other side."""

    def __init__(self, pair: _Pair) -> None:
        self._pair = pair
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._full = False
        """Whether the socket takes no more for now: the other side must not read."""
        self._ended = False
        """Whether this side has sent all it has to send."""
        self.gone = False
        self._was_reset = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._pair.other(self)._transport is None:
            # The target's side comes first, and nobody is there yet to take what it sends.
            self._paused = True
            transport.pause_reading()
        self._pair.connected()

    def data_received(self, data: bytes) -> None:
        other = self._pair.other(self)
        if other._transport is not None and not other.gone:
            other._transport.write(data)

    def eof_received(self) -> bool:
        other = self._pair.other(self)
        if other._transport is not None and not other.gone and other._transport.can_write_eof():
            other._transport.write_eof()
        self._ended = True
        if other._ended:
            self.end()
            other.end()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True
        self._was_reset = error is not None
        self._pair.adjust()

    def pause_writing(self) -> None:
        self._full = True
        self._pair.adjust()

    def resume_writing(self) -> None:
        self._full = False
        self._pair.adjust()

    def adjust(self, passes: bool) -> None:
        """Read, or not; hand on that the connection has ended, unless that is held back."""
        other = self._pair.other(self)
        if self.gone:
            if passes and not other.gone:
                other.reset() if self._was_reset else other.end()
            return
        if self._transport is None:
            return
        paused = not passes or other._full or other._transport is None
        if paused != self._paused:
            self._paused = paused
            self._transport.pause_reading() if paused else self._transport.resume_reading()

    def end(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        if self._transport is not None and not self.gone:
            raw = self._transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._transport.abort()


def _bound(address: Address) -> socket.socket:
    """A socket that keeps its port when it stops listening: one that was bound to it by number."""
    bound = socket.socket()
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(address)
    if address[1]:
        return bound
    with bound:
        return _bound(bound.getsockname())


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()
