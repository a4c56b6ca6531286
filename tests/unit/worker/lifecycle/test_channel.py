"""The channel between a supervisor and its process, over a pair of sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.http_endpoint import HttpResponse
from sharegroup.worker.lifecycle import channel
from sharegroup.worker.lifecycle.channel import ASKED_MAX, Channel, answering
from sharegroup.worker.lifecycle.signals import Wish, Wishes
from sharegroup.worker.lifecycle.supervised import VARIABLE, Supervised
from tests.support.limits import HANGING_SECONDS


async def big() -> HttpResponse:
    return HttpResponse(503, b"\n" * 300_000, "text/x; charset=utf-8")


async def failing() -> HttpResponse:
    raise RuntimeError("a bug of a page")


def with_channel(work: Callable[[Channel, socket.socket], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        async with asyncio.timeout(HANGING_SECONDS):
            asking = await Channel.over(ours)
            try:
                await work(asking, theirs)
            finally:
                await asking.close()
                theirs.close()

    asyncio.run(main())


def test_pages_and_calls_arrive_in_order() -> None:
    heard: list[str] = []

    async def work(asking: Channel, theirs: socket.socket) -> None:
        pages, calls = {"/big": big, "/failing": failing}, {"quiet": lambda: heard.append("quiet")}
        async with answering(theirs.detach(), pages, calls):
            asking.call("quiet")
            answers = await asyncio.gather(
                *(asking.ask(path, HANGING_SECONDS) for path in ("/big", "/failing", "/none"))
            )
            assert answers[0] == HttpResponse(503, b"\n" * 300_000, "text/x; charset=utf-8")
            assert answers[1] is not None
            assert answers[1][:2] == (500, b"RuntimeError: a bug of a page\n")
            assert answers[2] is not None
            assert answers[2].status == 404
            assert heard == ["quiet"]
        assert await asking.ask("/big", 0.01) is None

    with_channel(work)


def test_page_that_is_too_large_is_no_end_of_the_channel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(channel, "BODY_BYTES_MAX", 200_000)

    async def work(asking: Channel, theirs: socket.socket) -> None:
        async with answering(theirs.detach(), {"/big": big}, {}):
            answers = [await asking.ask(path, HANGING_SECONDS) for path in ("/big", "/none")]
            assert [answer and answer.status for answer in answers] == [500, 404]
            assert answers[0] is not None
            assert answers[0].body == b"/big has 300000 bytes; expected up to 200000\n"

    with_channel(work)
    assert "event=page_too_large path=/big bytes=300000" in caplog.text


def test_answer_that_comes_too_late_is_not_taken_for_the_next_one() -> None:
    async def work(asking: Channel, theirs: socket.socket) -> None:
        assert await asking.ask("/first", 0.01) is None
        second = asyncio.create_task(asking.ask("/second", HANGING_SECONDS))
        await asyncio.sleep(0)
        theirs.sendall(b"200 1 text/plain\n1200 1 text/plain\n2")
        answer = await second
        assert answer is not None
        assert answer.body == b"2"

    with_channel(work)


def test_process_that_does_not_answer_is_asked_a_bounded_number_of_times() -> None:
    async def work(asking: Channel, theirs: socket.socket) -> None:
        for _ in range(ASKED_MAX + 5):
            assert await asking.ask("/x", 0.001) is None
        assert theirs.recv(4096) == b"/x\n" * ASKED_MAX

    with_channel(work)


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\n", b"200 x text\n", b"200 9999999999 text\n", b"x" * 5000, b"200 5 text\nab"],
)
def test_nonsense_and_the_end_are_no_answer(answer: bytes) -> None:
    async def work(asking: Channel, theirs: socket.socket) -> None:
        asked = asyncio.create_task(asking.ask("/x", HANGING_SECONDS))
        await asyncio.sleep(0)
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_RDWR)
        assert await asked is None

    with_channel(work)


def test_answer_without_a_request_ends_the_channel() -> None:
    async def work(asking: Channel, theirs: socket.socket) -> None:
        theirs.sendall(b"200 1 text/plain\n1")
        await asyncio.sleep(0.01)
        assert await asking.ask("/x", 0.001) is None

    with_channel(work)


def test_process_stops_answering_when_the_supervisor_has_ended() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        async with answering(theirs.detach(), {"/big": big}, {}):
            ours.sendall(b"/big\n")
            ours.close()
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert channel.STATE == "/state"


def test_variable_of_a_supervised_process_is_taken_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        facts = Supervised(number=2, channel=ours.fileno(), lifeline=theirs.fileno(), health="h")
        environment = {VARIABLE: facts.as_text(), "PATH": "/bin"}
        ours.set_inheritable(True)
        assert Supervised.taken_from(environment) == facts
        assert not ours.get_inheritable()
        assert environment == {"PATH": "/bin"}
        assert Supervised.taken_from(environment) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        # Above what a process may open, so that no other test has it open.
        f'{{"number": 1, "channel": {2**30}, "lifeline": {2**30}, "health": "h"}}',
        f'{{"number": 1, "channel": {2**80}, "lifeline": {2**80}, "health": "h"}}',
    ],
)
def test_variable_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="unset the variable"):
        Supervised.taken_from({VARIABLE: text})


# Stops by the supervisor and by signals.


async def made(wishes: Wishes) -> list[Wish]:
    found = []
    while True:
        try:
            async with asyncio.timeout(0):
                found.append(await wishes.next_wish())
        except TimeoutError:
            return found


@pytest.mark.parametrize(
    "calls", [("stop", "stop_with_supervisor"), ("stop_with_supervisor", "stop")]
)
def test_signal_beside_the_supervisors_stop_leaves_the_grace(calls: tuple[str, str]) -> None:
    """systemd and Ctrl-C signal both, and the supervisor asks for a stop beside it."""

    async def work() -> None:
        wishes = Wishes()
        for call in calls:
            getattr(wishes, call)()
        wishes.stop_with_supervisor()
        assert await made(wishes) == [Wish.STOP]
        wishes.stop()
        wishes.hurry()
        assert await made(wishes) == [Wish.HURRY, Wish.HURRY]

    asyncio.run(work())
