"""Connections between simulated processes: ordered bytes, late, in pieces, and cut off.

A connection has two ends.  What is written at one arrives at the other in order, after a delay
that is drawn for each piece; two connections overtake each other freely.  A link can be down for
a while (what is under way then arrives when it is up again, as TCP sends it again), a connection
can be reset (both sides learn of it, what was under way is lost) or left half open (one side is
gone, and the other hears nothing of it).  A receiver that does not read fills its pipe, and
the sender's protocol is paused.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tests.sim.loop import Process, SimLoop

BUFFER_BYTES_MAX = 16 * 1024
"""A sender is paused when more than this waits, whatever limit it asked for: small, so that it
happens."""

PIECE_BYTES_MAX = 2_000
PIECES_MAX = 8

Factory = Callable[[], Any]


@dataclass(slots=True)
class Weather:
    """How the network is at the moment."""

    delay_us: tuple[int, int] = (100, 1_000)
    pieces: bool = False
    """What is written arrives in pieces, cut at any byte."""


class Tap(Protocol):
    """Who listens at the broker's end of every connection."""

    def opened(self, connection: Connection) -> None: ...

    def arrived(self, connection: Connection, data: bytes) -> None: ...

    def written(self, connection: Connection, data: bytes) -> None: ...

    def closed(self, connection: Connection) -> None: ...


class Connection:
    """Both ends of one connection; ``up_from_us`` is when its link works again."""

    __slots__ = ("client", "number", "server", "up_from_us")

    def __init__(self, number: int) -> None:
        self.number = number
        self.up_from_us = 0
        self.client: End
        self.server: End

    @property
    def is_over(self) -> bool:
        return self.client.is_over and self.server.is_over

    def __repr__(self) -> str:
        return f"<connection {self.number} of {self.client.process.name}>"


class Arriving(NamedTuple):
    """Bytes under way, or None: the end of the connection."""

    at_us: int
    data: bytes | None


class End(asyncio.Transport):
    """One end of a connection, as asyncio's protocols see it."""

    def __init__(
        self, network: Network, connection: Connection, process: Process, *, is_server: bool
    ) -> None:
        super().__init__()
        self.process = process
        self.is_over = False
        """This end hears nothing any more."""
        self._network = network
        self._connection = connection
        self._is_server = is_server
        self._protocol: Any = None
        self._incoming: deque[Arriving] = deque()
        self._incoming_bytes = 0
        self._is_reading = True
        self._high = BUFFER_BYTES_MAX
        self._is_full = False
        self._is_closing = False

    @property
    def other(self) -> End:
        return self._connection.client if self._is_server else self._connection.server

    # What a protocol calls.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        if self._is_server:
            self._network.tap.written(self._connection, bytes(data))
        for piece in self._network.pieces(bytes(data)):
            self.other._expect(piece)
        if not self._is_full and self.other._incoming_bytes > self._high:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, chunks: Any) -> None:
        self.write(b"".join(chunks))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.other._expect(None)
            self._network.soon(self.process, self.lose)

    def abort(self) -> None:
        """As `close`, but what the peer has not received yet is lost."""
        if not self._is_closing:
            self.other._incoming.clear()
            self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._network.soon(self.process, self._take)

    def is_reading(self) -> bool:
        return self._is_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = min(BUFFER_BYTES_MAX, high or BUFFER_BYTES_MAX)

    def get_write_buffer_size(self) -> int:
        return self.other._incoming_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", self._connection.number) if name == "peername" else default

    # What the network does.

    def begin(self, protocol: Any) -> None:
        """The connection is there."""
        self._protocol = protocol
        if self._is_server:
            self._network.tap.opened(self._connection)
        protocol.connection_made(self)
        self._take()

    def lose(self) -> None:
        """The connection is over for this end, and its protocol is told."""
        if self.is_over:
            return
        self.forget()
        if self._protocol is not None:
            self._protocol.connection_lost(None)

    def forget(self) -> None:
        """The connection is over for this end, and nobody is told: the process is gone."""
        if not self.is_over:
            self.is_over = self._is_closing = True
            if self._is_server and self._protocol is not None:
                self._network.tap.closed(self._connection)

    def _expect(self, data: bytes | None) -> None:
        """This is under way to here."""
        at_us = self._network.arrival_us()
        if self._incoming:
            at_us = max(at_us, self._incoming[-1].at_us)
        self._incoming.append(Arriving(at_us, data))
        self._incoming_bytes += len(data or b"")
        self._network.at(at_us, self.process, self._take)

    def _take(self) -> None:
        """Hand over what has arrived, unless the protocol does not read."""
        now_us, up_from_us = self._network.now_us, self._connection.up_from_us
        if self._protocol is None or not self._is_reading or self.is_over or not self._incoming:
            return
        if now_us < up_from_us:
            self._network.at(up_from_us, self.process, self._take)
            return
        at_us, data = self._incoming[0]
        if at_us > now_us:
            return
        self._incoming.popleft()
        if data is None:
            self.lose()
            return
        self._incoming_bytes -= len(data)
        self.other._drained(self._incoming_bytes)
        if self._is_server:
            self._network.tap.arrived(self._connection, data)
        self._protocol.data_received(data)
        self._take()

    def _drained(self, left_bytes: int) -> None:
        if self._is_full and left_bytes <= self._high // 4:
            self._is_full = False
            self._network.soon(self.process, self._resume_writing)

    def _resume_writing(self) -> None:
        if not self.is_over:
            self._protocol.resume_writing()


class Listener:
    """What `create_server` returns."""

    __slots__ = ("_network", "factory", "is_serving", "port", "process", "sockets")

    def __init__(self, network: Network, factory: Factory, port: int, process: Process) -> None:
        self._network = network
        self.factory = factory
        self.port = port
        self.process = process
        self.is_serving = False
        self.sockets = (self,)

    def fileno(self) -> int:
        """Of a socket that does listen: the broker asks the system whether it got its port."""
        return self._network.stand_in.fileno()

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    async def start_serving(self) -> None:
        self.is_serving = True

    def close(self) -> None:
        self.is_serving = False


class Network:
    """All connections of a run, and what is wrong with them."""

    def __init__(self, loop: SimLoop, chance: random.Random, tap: Tap) -> None:
        self.tap = tap
        self.weather = Weather()
        self.connections: list[Connection] = []
        self.down_until_us = 0
        """Nobody gets through before this."""
        self.stand_in = socket.socket()
        self.stand_in.listen()
        self._loop = loop
        self._chance = chance
        self._listener: Listener | None = None
        self._count = 0

    @property
    def now_us(self) -> int:
        return self._loop.now_us

    def close(self) -> None:
        """Give the system back what is its own."""
        self.stand_in.close()

    # Sockets

    def listen(self, factory: Factory, host: str, port: int, owner: Process) -> Listener:
        del host  # There is one machine with a broker.
        self._listener = Listener(self, factory, port, owner)
        return self._listener

    async def connect(self, factory: Factory, port: int, owner: Process) -> Any:
        """A connection to whoever listens by the time the request for one is there."""
        await asyncio.sleep(max(self.arrival_us(), self.down_until_us) / 1e6 - self._loop.time())
        listener = self._listener
        if listener is None or not listener.is_serving or listener.process.is_ended:
            raise ConnectionRefusedError(f"nobody listens on port {port}")
        self._count += 1
        made = Connection(self._count)
        made.up_from_us = self.down_until_us
        made.server = End(self, made, listener.process, is_server=True)
        made.client = End(self, made, owner, is_server=False)
        self.connections = [connection for connection in self.connections if not connection.is_over]
        self.connections.append(made)
        self.soon(listener.process, lambda: self._accept(listener, made))
        protocol = factory()
        made.client.begin(protocol)
        return made.client, protocol

    def _accept(self, listener: Listener, made: Connection) -> None:
        if listener.is_serving:
            made.server.begin(listener.factory())
        else:
            made.client.lose()

    # Faults

    def take_down(self, microseconds: int, connections: list[Connection]) -> None:
        """Let nothing through on these connections for a while."""
        for connection in connections:
            connection.up_from_us = max(connection.up_from_us, self.now_us + microseconds)

    def take_all_down(self, microseconds: int) -> None:
        """Let nothing through at all for a while, new connections included."""
        self.down_until_us = self.now_us + microseconds
        self.take_down(microseconds, self.connections)

    def reset(self, connection: Connection) -> None:
        """Both ends learn that the connection is over."""
        for end in (connection.client, connection.server):
            self.soon(end.process, end.lose)

    def half_open(self, connection: Connection, *, client_knows: bool) -> None:
        """One end learns that the connection is over, the other one hears nothing more."""
        connection.up_from_us = 1 << 62
        end = connection.client if client_knows else connection.server
        self.soon(end.process, end.lose)

    def process_ended(self, process: Process, *, silently: bool) -> None:
        """Its sockets are gone; the peers learn of it, unless its machine went with it."""
        for connection in self.connections:
            for end in (connection.client, connection.server):
                if end.process is process and not end.is_over:
                    end.forget()
                    if silently:
                        connection.up_from_us = 1 << 62
                    else:
                        end.other._expect(None)

    def heal(self) -> None:
        """Everything gets through from now on; half-open connections are found out."""
        self.weather = Weather()
        self.down_until_us = 0
        for connection in self.connections:
            if connection.up_from_us == 1 << 62:
                self.reset(connection)
            elif connection.up_from_us > self.now_us:
                connection.up_from_us = self.now_us
                for end in (connection.client, connection.server):
                    self.soon(end.process, end._take)

    # Time

    def arrival_us(self) -> int:
        """When what is sent now arrives, if the link is up."""
        return self.now_us + self._chance.randint(*self.weather.delay_us)

    def at(self, when_us: int, process: Process, call: Callable[[], None]) -> None:
        if when_us < 1 << 62:
            self._loop.call_at(when_us / 1_000_000, call, context=process.context)

    def soon(self, process: Process, call: Callable[[], None]) -> None:
        self._loop.call_soon(call, context=process.context)

    def pieces(self, data: bytes) -> list[bytes]:
        """What is written, as it travels."""
        if not self.weather.pieces or len(data) < 2:
            return [data]
        wanted = min(PIECES_MAX, 1 + len(data) // PIECE_BYTES_MAX + self._chance.randrange(3))
        cuts = sorted(self._chance.randrange(1, len(data)) for _ in range(wanted - 1))
        edges = [0, *cuts, len(data)]
        return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]
