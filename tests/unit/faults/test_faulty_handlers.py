"""Requests of a connection that wait behind each other in a broker under test."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sharegroup.broker.handler_contract import ApiHandler, Handling, Later
from sharegroup.faults.faulty_handlers import FaultyHandlers
from sharegroup.faults.script import Delay, Drop, FaultScript
from sharegroup.steps import Steps, run_to_end
from sharegroup.testing import ManualClock
from sharegroup.testing.virtual_time import run
from sharegroup.wire.codec.apis import APIS

METADATA = next(key for key, api in APIS.items() if api.name == "Metadata")


class Connection:
    """Sends requests to a handler that notes them."""

    def __init__(self, script: FaultScript) -> None:
        self.handled: list[str] = []
        self.clock = ManualClock()
        handlers = FaultyHandlers(script, lambda _: ApiHandler(handle=self._note))
        self._handle = handlers(METADATA).handle

    def _note(self, parts: Any, context: Any, request: str) -> str:
        self.handled.append(request)
        return request

    def ask(self, request: str) -> asyncio.Future[str]:
        """The answer to a request that has to wait."""
        parts: Any = SimpleNamespace(clock=self.clock)
        context: Any = SimpleNamespace(client_id="test", connection_id=7)
        later = self._handle(parts, context, request)
        assert isinstance(later, Later)
        return asyncio.ensure_future(later.response)


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("fault", ["freeze", "delay"])
def test_cancelled_request_does_not_hold_up_those_behind_it(fault: str, is_begun: bool) -> None:
    async def scenario() -> None:
        script = FaultScript()
        script.bind(asyncio.get_running_loop())
        connection = Connection(script)
        if fault == "freeze":
            script.freeze()
        else:
            script.add(Delay(30), "Metadata")
        first, second = connection.ask("first"), connection.ask("second")
        if is_begun:
            await asyncio.sleep(0)
        first.cancel()
        if fault == "freeze":
            script.thaw()
        assert await second == "second"
        assert connection.handled == ["second"]

    run(scenario())


def test_waiting_requests_are_handled_in_their_order() -> None:
    async def scenario() -> None:
        script = FaultScript()
        script.bind(asyncio.get_running_loop())
        connection = Connection(script)
        script.freeze()
        answers = [connection.ask(str(number)) for number in range(3)]
        script.thaw()
        assert await asyncio.gather(*answers) == ["0", "1", "2"]
        assert connection.handled == ["0", "1", "2"]

    run(scenario())


class SteppingConnection:
    """Sends requests to a handler in steps, whose responses come later."""

    def __init__(self, script: FaultScript) -> None:
        self.handled: list[str] = []
        self.parked: dict[str, asyncio.Future[str]] = {}
        real = ApiHandler(handle=self._steps, handling=Handling.CHANGES_IN_STEPS)
        self._handle = FaultyHandlers(script, lambda _: real)(METADATA).handle

    def _steps(self, parts: Any, context: Any, request: str) -> Steps[Later[str]]:
        yield
        self.handled.append(request)
        self.parked[request] = asyncio.get_running_loop().create_future()
        return Later(self.parked[request])

    def ask(self, request: str) -> asyncio.Future[str]:
        """The answer; the steps are made at once, as for a small request."""
        parts: Any = SimpleNamespace(clock=ManualClock())
        context: Any = SimpleNamespace(client_id="test", connection_id=7)
        later = run_to_end(self._handle(parts, context, request))
        assert isinstance(later, Later)
        return asyncio.ensure_future(later.response)


def test_held_request_of_a_handler_in_steps_is_not_answered_while_the_broker_is_frozen() -> None:
    async def scenario() -> None:
        script = FaultScript()
        script.bind(asyncio.get_running_loop())
        connection = SteppingConnection(script)
        answer = connection.ask("fetch")
        script.freeze()
        connection.parked["fetch"].set_result("records")
        await asyncio.sleep(10)
        assert not answer.done()
        script.thaw()
        assert await answer == "records"

    run(scenario())


@pytest.mark.parametrize("fault", ["drop", "delay"])
def test_request_that_is_applied_is_applied_before_those_behind_it(fault: str) -> None:
    """Otherwise the broker would see the sequence numbers of a producer in another order."""

    async def scenario() -> None:
        script = FaultScript()
        script.bind(asyncio.get_running_loop())
        connection = SteppingConnection(script)
        if fault == "drop":
            script.add(Drop(applied=True), "Metadata")
        else:
            script.add(Delay(30, applied=True), "Metadata")
        answers = [connection.ask("first"), connection.ask("second")]
        assert connection.handled == ["first", "second"]
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    run(scenario())
