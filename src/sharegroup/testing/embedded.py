"""Runs a real broker, with sockets and storage, inside the process of a test.

    async with broker() as b:                 # in a coroutine
        await b.create_topic("orders")

    with run_broker() as b:                   # in other code: the broker has its own thread
        b.produce("orders", "one apple")
        b.fail("ShareFetch", error="NOT_LEADER_OR_FOLLOWER", times=2)

The data is in a temporary folder, which is removed at the end, unless a folder is given.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from sharegroup.broker.app import Running
from sharegroup.faults.faulty_broker import AdvancingClock
from sharegroup.faults.faulty_files import FaultyFiles
from sharegroup.faults.script import Fault, FaultScript
from sharegroup.storage.disk.files import Files
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.testing.security import MECHANISMS, Security
from sharegroup.testing.served_broker import ServedBroker

if TYPE_CHECKING:
    from sharegroup.client.records import RecordMetadata
    from sharegroup.testing.broker_clients import BrokerClients
    from sharegroup.testing.stored_record import StoredRecord


# Values of Kafka's settings as texts, because tests write them as Python values, too.


SettingValue: TypeAlias = str | int | float
"""A setting's value: a text as Kafka has it, a number, or True or False."""


def texts_of(settings: Mapping[str, SettingValue] | None) -> dict[str, str]:
    """Return the settings with their values as texts; raise TypeError for other values."""
    return {name: _text(name, value) for name, value in (settings or {}).items()}


def _text(name: str, value: SettingValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise TypeError(f"setting {name}={value!r}: expected a text, a number, True or False")
    return str(value)


P = ParamSpec("P")
T = TypeVar("T")

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
WAIT_SECONDS = 10.0
"""The default time limit of ``wait_until``."""


def of_script(
    method: Callable[Concatenate[FaultScript, P], T],
) -> Callable[Concatenate[BrokerUnderTest, P], T]:
    """Turn a method of the broker's faults into one of the broker, with signature and docstring."""

    @functools.wraps(method)
    def call(self: BrokerUnderTest, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._served.faulty.script, *args, **kwargs)

    return call


class BrokerUnderTest:
    """The common part of `TestBroker` and `AsyncTestBroker`: what needs no waiting.

    It is a base class, because both offer exactly these methods, from any thread.
    """

    __test__ = False  # Without this, pytest would collect subclasses because of their name.

    def __init__(self, served: ServedBroker) -> None:
        self._served = served

    @property
    def bootstrap_servers(self) -> str:
        """The address of the broker, for the option ``bootstrap_servers`` of clients."""
        return self._served.bootstrap_servers

    def client_options(
        self, user: str | None = None, *, mechanism: str = MECHANISMS[0]
    ) -> dict[str, Any]:
        """Return the options with which a client of a user comes in, with the address.

        They are those of sharegroup's clients, of kafka-python and of aiokafka.  ``mechanism`` is
        PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.  Raises ValueError if there is no such user.
        """
        served, options = self._served, {"bootstrap_servers": self.bootstrap_servers}
        if served.security is not None:
            options |= served.security.client_options(served.certificates, user, mechanism)
        return options

    def librdkafka_config(
        self, user: str | None = None, *, mechanism: str = MECHANISMS[0]
    ) -> dict[str, Any]:
        """Return the same for confluent-kafka and other clients that use librdkafka."""
        served, config = self._served, {"bootstrap.servers": self.bootstrap_servers}
        if served.security is not None:
            config |= served.security.librdkafka_config(served.certificates, user, mechanism)
        return config

    @property
    def cluster_id(self) -> str:
        """The cluster id; it is stored in the data directory."""
        return self._served.cluster_id

    @property
    def data(self) -> str:
        """The path of the data directory."""
        return self._served.values["log.dirs"]

    @property
    def running(self) -> Running:
        """The parts of the broker, for tests of its internals; use it on the broker's thread."""
        return self._served.running

    @property
    def disk(self) -> FaultyFiles | PowerLossDisk:
        """The disk, with ``slow_down``, ``fill_up``, ``make_room`` and ``fail_next_sync``.

        Raises TypeError if the broker was given other files.
        """
        files = self._served.faulty.files
        if not isinstance(files, FaultyFiles | PowerLossDisk):
            raise TypeError(f"the broker runs on {files!r}, which has no faults")
        return files

    @property
    def faults(self) -> list[Fault]:
        """The faults that were added and not removed, also those that are used up."""
        return self._served.faulty.script.faults

    fail = of_script(FaultScript.fail)
    delay = of_script(FaultScript.delay)
    drop = of_script(FaultScript.drop)
    freeze = of_script(FaultScript.freeze)
    thaw = of_script(FaultScript.thaw)
    frozen = of_script(FaultScript.frozen)

    def clear_faults(self) -> None:
        """Remove all faults of requests, and thaw the broker."""
        self._served.faulty.script.clear()

    def __repr__(self) -> str:
        running = self._served.faulty.running
        state = "stopped" if running is None else "running"
        script = self._served.faulty.script
        if running is not None and script.is_frozen:
            state = "frozen"
        faults = f" faults={len(script.faults)}" if script.faults else ""
        return f"<{type(self).__name__} {self.bootstrap_servers} {state}{faults}>"


class AsyncTestBroker(BrokerUnderTest):
    """A broker for tests that are coroutines, on the broker's event loop or another one."""

    async def create_topic(
        self, name: str, partitions: int = 1, *, settings: Mapping[str, SettingValue] | None = None
    ) -> None:
        """Create a topic; ``settings`` are its settings by Kafka's names."""
        await self._ask(lambda clients: clients.create_topic(name, partitions, texts_of(settings)))

    async def configure_group(self, group: str, settings: Mapping[str, SettingValue]) -> None:
        """Change settings of a group by Kafka's names; it need not exist yet.

        ``{"share.auto.offset.reset": "earliest"}`` lets a new share group start at the first record
        instead of the end.
        """
        await self._ask(lambda clients: clients.configure_group(group, texts_of(settings)))

    async def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> list[RecordMetadata]:
        """Write one record for each value, and return their partitions and offsets."""
        return await self._ask(
            lambda clients: clients.produce(
                topic, values, key=key, headers=headers, partition=partition
            )
        )

    async def records(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        """Return the records that are in a topic now, in order; no group notices it."""
        return await self._ask(lambda clients: clients.records(topic, partition))

    async def wait_until(
        self,
        *,
        lag: int | None = None,
        group: str | None = None,
        records: int | None = None,
        topic: str | None = None,
        timeout_s: float = WAIT_SECONDS,
    ) -> None:
        """Wait until groups have read, or a topic has records; raise TimeoutError with the reason.

        ``lag=0`` waits until a group, or every group, has nothing left to read, in one topic or in
        all that it reads.  ``records=3, topic="orders"`` waits for at least three records.
        """
        await self._ask(
            lambda clients: clients.wait_until(
                lag=lag, group=group, records=records, topic=topic, timeout_s=timeout_s
            )
        )

    async def advance(self, seconds: float) -> None:
        """Advance the broker's clock: locks, sessions and retention that are due end at once."""
        await self._do(_call(lambda: self._served.faulty.advance(seconds)))

    async def bump_leader_epoch(self, topic: str, partition: int = 0) -> int:
        """Raise the leader epoch of a partition, as after a change of its leader; return it.

        Fetches with the old epoch fail with FENCED_LEADER_EPOCH.  Acquisition locks on the
        partition end, and their acknowledgements fail.
        """
        return await self._do(
            _call(lambda: self._served.faulty.bump_leader_epoch(topic, partition))
        )

    async def stop(self) -> None:
        """Stop the broker cleanly; its data stays for `start`."""
        await self._do(self._served.stop())

    async def start(self) -> None:
        """Start the broker again, on the same port and data."""
        await self._do(self._served.start())

    async def kill(self) -> None:
        """Stop the broker as ``kill -9`` would; its data stays for `start`."""
        await self._do(self._served.kill())

    async def cut_power(self) -> None:
        """Stop the broker as a power failure would; it needs ``files=PowerLossDisk(seed=...)``."""
        await self._do(self._served.cut_power())

    async def _ask(self, ask: Callable[[BrokerClients], Coroutine[Any, Any, T]]) -> T:
        async def answer() -> T:
            return await ask(await self._served.clients())

        return await self._do(answer())

    async def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._served.loop:
            return await coroutine
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(coroutine, self._served.loop)
        )


def blocking(
    method: Callable[Concatenate[AsyncTestBroker, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[TestBroker, P], T]:
    """Turn a coroutine method into one that waits for its result, with signature and docstring."""

    @functools.wraps(method)
    def call(self: TestBroker, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._do(method(self.asynchronous, *args, **kwargs))

    return call


class TestBroker(BrokerUnderTest):
    """A broker on its own thread, for tests that are no coroutines; its methods block."""

    create_topic = blocking(AsyncTestBroker.create_topic)
    configure_group = blocking(AsyncTestBroker.configure_group)
    produce = blocking(AsyncTestBroker.produce)
    records = blocking(AsyncTestBroker.records)
    wait_until = blocking(AsyncTestBroker.wait_until)
    advance = blocking(AsyncTestBroker.advance)
    bump_leader_epoch = blocking(AsyncTestBroker.bump_leader_epoch)
    stop = blocking(AsyncTestBroker.stop)
    start = blocking(AsyncTestBroker.start)
    kill = blocking(AsyncTestBroker.kill)
    cut_power = blocking(AsyncTestBroker.cut_power)

    @property
    def asynchronous(self) -> AsyncTestBroker:
        """The same broker for coroutines, on any event loop."""
        return AsyncTestBroker(self._served)

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        process_id = self._served.process_id
        # A fork has the memory of its parent but not its threads, so nothing would ever answer.
        if os.getpid() != process_id:
            # Otherwise Python warns that it was never awaited.
            coroutine.close()
            raise RuntimeError(
                f"the broker runs in process {process_id}, and this is a fork of it; connect a "
                f"client to {self.bootstrap_servers}, or run a broker of this process"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self._served.loop).result()


async def _call(function: Callable[[], T]) -> T:
    """Call a function on the broker's loop."""
    return function()


@asynccontextmanager
async def broker(
    settings: Mapping[str, SettingValue] | None = None,
    *,
    data: str | None = None,
    port: int = 0,
    clock: AdvancingClock | None = None,
    files: Files | None = None,
    security: Security | None = None,
) -> AsyncIterator[AsyncTestBroker]:
    """Run a broker on the running event loop while the context is open.

    ``settings`` are broker settings by Kafka's names. ``clock`` may be a `ManualClock`, which
    stands still between calls of ``advance``; by default the clock runs and can be advanced, too.
    ``files`` may be a `PowerLossDisk`.  With ``security`` clients need TLS, passwords and
    permissions (`client_options`).

    >>> import asyncio
    >>> from sharegroup.client import AdminClient
    >>> async def topics() -> list[str]:
    ...     async with broker() as b, AdminClient(bootstrap_servers=b.bootstrap_servers) as admin:
    ...         await b.create_topic("orders", partitions=3)
    ...         return await admin.list_topics()
    >>> asyncio.run(topics())
    ['orders']
    """
    with _temporary_folder() as folder:
        values = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        certificates = Path(folder, "certificates")
        if security is not None:
            values = security.settings(certificates, port)
        values |= {"log.dirs": data or str(Path(folder, "data")), **texts_of(settings)}
        if files is None:
            # ``settings`` may set ``log.dirs``, too; data that outlives the test is synced.
            files = FaultyFiles(is_temporary=values["log.dirs"].startswith(folder))
        served = ServedBroker(
            values, clock=clock, files=files, security=security, certificates=certificates
        )
        await served.start()
        try:
            yield AsyncTestBroker(served)
        finally:
            await served.stop()


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """Make a folder and delete it at the end, unless the process is a forked copy of its maker."""
    folder, process_id = tempfile.mkdtemp(prefix="sharegroup-"), os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == process_id:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def run_broker(
    settings: Mapping[str, SettingValue] | None = None,
    *,
    data: str | None = None,
    port: int = 0,
    clock: AdvancingClock | None = None,
    files: Files | None = None,
    security: Security | None = None,
) -> Iterator[TestBroker]:
    """Run a broker on its own thread while the context is open, for synchronous code.

    The arguments are those of `broker`.

    >>> with run_broker() as b:
    ...     places = b.produce("orders", "one apple", key="customer-7")
    ...     [(record.key, record.value) for record in b.records("orders")]
    [(b'customer-7', b'one apple')]
    """
    starting = broker(settings, data=data, port=port, clock=clock, files=files, security=security)
    process_id = os.getpid()
    thread = _BrokerThread(starting)
    thread.start()
    try:
        # Within the block that stops it: a broker that starts later would stay for ever.
        yield thread.broker()
    finally:
        if os.getpid() == process_id:  # A fork has the loop's descriptors, but not its thread.
            thread.stop()
        # An error of the start was raised before the body.
        if thread.started is not None and thread.failure is not None:
            raise thread.failure


class _BrokerThread:
    """A thread that runs a broker from `start` to `stop`."""

    def __init__(self, starting: AbstractAsyncContextManager[AsyncTestBroker]) -> None:
        self._starting = starting
        self.started: TestBroker | None = None
        """The running broker; None if its start has not ended, or has failed."""
        self.failure: BaseException | None = None
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        # A daemon, so a broker that does not stop fails the test but does not keep the process
        # alive.
        self._thread = threading.Thread(target=self._run, name="sharegroup-broker", daemon=True)

    def start(self) -> None:
        """Begin to start the broker."""
        self._thread.start()

    def broker(self) -> TestBroker:
        """Return the broker when it has started; raise the error of its start."""
        assert self._ready.wait(START_SECONDS_MAX), "the broker did not start"
        if self.failure is not None:
            raise self.failure
        assert self.started is not None, "a start ends with a broker or an error"
        return self.started

    def stop(self) -> None:
        """Stop the broker, and wait for the end of the thread."""
        # An `asyncio.Event` may only be set on the thread of its loop. The loop is closed when the
        # thread has ended: it may end at any time, with an error that must not be hidden.
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECONDS_MAX)
        assert not self._thread.is_alive(), f"the broker did not stop within {STOP_SECONDS_MAX} s"
        self._loop.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self.serve())
        except BaseException as error:  # noqa: BLE001  Raised again in the caller's thread.
            self.failure = error
        finally:
            # After a failed start, too: the caller must not wait for the whole limit.
            self._ready.set()

    async def serve(self) -> None:
        """Run the broker until `stop`."""
        async with self._starting as asynchronous:
            self.started = TestBroker(asynchronous._served)
            self._ready.set()
            await self._stop.wait()
