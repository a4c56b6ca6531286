"""A thread with an event loop: results, its lock, its end, interrupts, forks."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

from sharegroup.client.loop_thread import LOOP_THREAD, LoopThread
from sharegroup.client.records import IllegalStateError
from sharegroup.client.sync.blocking import BlockingClient
from tests.support.limits import HANGING_SECONDS


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    made.enter()
    yield made
    made.leave()
    assert "sharegroup" not in {running.name for running in threading.enumerate()}


def test_run_returns_the_result_or_raises_the_error_of_a_coroutine(thread: LoopThread) -> None:
    async def half(number: int) -> float:
        await asyncio.sleep(0)
        return 1 / number

    assert thread.run(half(2)) == 0.5
    with pytest.raises(ZeroDivisionError):
        thread.run(half(0))


def test_thread_ends_with_its_last_client() -> None:
    thread = LoopThread()
    thread.enter()
    thread.enter()
    thread.leave()
    assert thread.run(asyncio.sleep(0, "alive")) == "alive"
    thread.leave()
    with pytest.raises(IllegalStateError, match="can't be called"):
        thread.run(asyncio.sleep(0))
    thread.enter()
    assert thread.run(asyncio.sleep(0, "again")) == "again"
    thread.leave()


def test_loop_holds_its_lock_only_while_it_runs(thread: LoopThread) -> None:
    running, stop = threading.Event(), threading.Event()

    async def run_until_told() -> None:
        running.set()
        stop.wait(HANGING_SECONDS)  # Without an await: the loop is busy, as with decoding records.

    busy = asyncio.run_coroutine_threadsafe(run_until_told(), thread._loop)  # type: ignore[arg-type]
    assert running.wait(HANGING_SECONDS)
    assert not thread.lock.acquire(blocking=False)
    stop.set()
    busy.result(HANGING_SECONDS)
    assert thread.lock.acquire(timeout=HANGING_SECONDS)
    thread.lock.release()


def test_loop_does_not_run_while_another_thread_holds_the_lock(thread: LoopThread) -> None:
    ran = threading.Event()

    async def run() -> None:
        ran.set()

    with thread.lock:
        asyncio.run_coroutine_threadsafe(run(), thread._loop)  # type: ignore[arg-type]
        assert not ran.wait(0.05)
    assert ran.wait(HANGING_SECONDS)


def test_wake_resumes_the_loop_after_a_change_under_the_lock(thread: LoopThread) -> None:
    event = asyncio.Event()
    waiting = asyncio.run_coroutine_threadsafe(event.wait(), thread._loop)  # type: ignore[arg-type]
    thread.run(asyncio.sleep(0))  # From now on nothing but the event wakes the loop.
    with thread.lock:
        event.set()
    thread.wake()
    assert waiting.result(HANGING_SECONDS) is True


def test_leave_cancels_pending_submitted_coroutines() -> None:
    thread = LoopThread("kafka-share-read")
    thread.enter()
    waiting = thread.submit(asyncio.sleep(60))
    thread.run(asyncio.sleep(0))
    assert "kafka-share-read" in {running.name for running in threading.enumerate()}
    thread.leave()
    assert waiting.cancelled()
    with pytest.raises(IllegalStateError, match="after it was closed"):
        thread.submit(asyncio.sleep(0))


def test_cancelled_future_cancels_its_coroutine(thread: LoopThread) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    waiting = thread.submit(wait())
    thread.run(asyncio.sleep(0))
    waiting.cancel()
    assert cancelled.wait(HANGING_SECONDS)


def test_call_from_inside_of_the_loop_is_refused(thread: LoopThread) -> None:
    async def inside() -> None:
        thread.run(asyncio.sleep(0))

    with pytest.raises(IllegalStateError, match="by a client's own callback"):
        thread.run(inside())


def script(text: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_keyboard_interrupt_ends_a_call_and_cancels_it() -> None:
    process = script("""
        import asyncio, os
        from sharegroup.client.loop_thread import LOOP_THREAD

        async def wait() -> None:
            try:
                os.write(1, b"waiting\\n")
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                os.write(1, b"cancelled\\n")  # In one piece: another thread writes, too.
                raise

        LOOP_THREAD.enter()
        try:
            LOOP_THREAD.run(wait())
        except KeyboardInterrupt:
            os.write(1, b"interrupted\\n")
            LOOP_THREAD.leave()
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=HANGING_SECONDS)
    assert sorted(told.split()) == ["cancelled", "interrupted"]
    assert process.returncode == 0


def test_call_after_the_last_client_closed_is_refused() -> None:
    thread = LoopThread()
    thread.enter()
    thread.leave()
    with pytest.raises(IllegalStateError, match="can't be called after it was closed"):
        thread.run(asyncio.sleep(0))


def test_client_created_before_a_fork_is_refused_and_a_new_one_works() -> None:
    process = script("""
        import asyncio, os
        from sharegroup.client.records import IllegalStateError
        from sharegroup.client.loop_thread import LOOP_THREAD

        LOOP_THREAD.enter()
        child = os.fork()
        if child:
            print(LOOP_THREAD.run(asyncio.sleep(0, "parent")), os.waitpid(child, 0)[1])
        else:
            try:
                LOOP_THREAD.run(asyncio.sleep(0))
            except IllegalStateError as error:
                print(error, flush=True)
            LOOP_THREAD.enter()
            print(LOOP_THREAD.run(asyncio.sleep(0, "child")), flush=True)
            os._exit(0)
    """)
    told, _ = process.communicate(timeout=HANGING_SECONDS)
    assert sorted(told.splitlines()) == [
        "a blocking client can't be called in a forked process",
        "child",
        "parent 0",
    ]


def test_program_that_forgets_to_close_ends_nevertheless() -> None:
    started_at = time.monotonic()
    process = script("""
        from sharegroup.client.sync import AdminClient
        AdminClient(bootstrap_servers="127.0.0.1:1")
        print("the end")
    """)
    assert process.communicate(timeout=HANGING_SECONDS)[0] == "the end\n"
    assert time.monotonic() - started_at < HANGING_SECONDS


class SlowClient:
    """An asyncio client whose end waits for an event."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = asyncio.Event()
        self.ended: list[str] = []

    def metrics(self) -> dict[str, dict[str, float]]:
        return {}

    async def close(self) -> None:
        if self.begun.is_set():
            return  # As all clients of ours do when they are closed twice.
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("closed")


class SlowBlockingClient(BlockingClient[SlowClient]):
    def close(self) -> None:
        if self._claims_close():
            self._end(self._client.close())


def test_close_in_a_second_thread_does_not_cancel_the_first() -> None:
    slow = SlowClient()
    client = SlowBlockingClient(slow, "slow")
    first = threading.Thread(target=client.close)
    first.start()
    assert slow.begun.wait(HANGING_SECONDS)
    client.close()
    assert slow.ended == []
    with LOOP_THREAD.lock:
        slow.may_end.set()
    LOOP_THREAD.wake()
    first.join(HANGING_SECONDS)
    assert slow.ended == ["closed"]


def test_client_whose_close_was_refused_in_a_callback_can_still_be_closed() -> None:
    """A deserializer, for example, runs in the loop's thread, which cannot wait for itself."""
    slow = SlowClient()
    client = SlowBlockingClient(slow, "slow")

    async def callback() -> None:
        client.close()

    with pytest.raises(IllegalStateError, match="client's own callback"):
        LOOP_THREAD.run(callback())
    assert not slow.begun.is_set()
    with LOOP_THREAD.lock:
        slow.may_end.set()
    client.close()
    assert slow.ended == ["closed"]
