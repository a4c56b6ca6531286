"""The faults of a broker over HTTP, for tests in other processes and other languages.

    curl -X POST 'http://127.0.0.1:9099/fail?api=Produce&error=NOT_LEADER_OR_FOLLOWER&times=2'

A GET of ``/`` describes all actions, of ``/faults`` the faults that are set.  The port listens on
loopback only, and a broker that accepts connections from other machines refuses to have one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, TypeVar

from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.listeners import is_loopback, parse_listeners
from sharegroup.errors import InvalidConfig, KafkaError
from sharegroup.faults.faulty_broker import FaultyBroker
from sharegroup.faults.faulty_files import FaultyFiles
from sharegroup.faults.script import EVERY_API, Delay, Drop, Fail, Fault, FaultAction
from sharegroup.http_endpoint import HttpEndpoint, HttpLimits, HttpResponse, Query, QueryPage

T = TypeVar("T")

HOST = "127.0.0.1"

LIMITS = HttpLimits(
    connections_max=16,
    request_bytes_max=16 * 1024,
    request_seconds_max=5.0,
    answer_seconds_max=10.0,
    stall_seconds_max=5.0,
)

HELP = f"""\
Faults of this broker.  Every action is a POST with its arguments in the query.

POST /fail    api, error, [times=1], [topic], [partition], [client_id]
POST /delay   api, seconds, [applied=false], [times=1], [topic], [partition], [client_id]
POST /drop    api, [applied=false], [times=1], [topic], [partition], [client_id]
              api is Kafka's name of a request, or {EVERY_API}; times=all affects all requests
POST /remove  number: the number of a fault
POST /clear   removes all faults, and thaws the broker
POST /freeze, /thaw                   answer nothing, and answer again
POST /advance                         seconds: advances the broker's clock
POST /bump-leader-epoch               topic, [partition=0]
POST /disk/slow-down                  sync_seconds: each sync takes longer; 0 ends it
POST /disk/fill-up                    [room_bytes=0]: the space that is left
POST /disk/make-room                  ends /disk/fill-up
POST /disk/fail-next-sync             [count=1]: the number of syncs that fail
GET  /faults  the faults that are set, as JSON
"""

FILTER = ("times", "topic", "partition", "client_id")
"""The arguments that say which requests, and how many, a fault affects."""

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class FaultPort:
    """The HTTP port of one broker under test."""

    def __init__(self, faulty: FaultyBroker) -> None:
        self._faulty = faulty
        script, disk = faulty.script, self._disk
        actions: dict[str, tuple[Callable[[_Arguments], Any], tuple[str, ...]]] = {
            "/fail": (self._fail, ("api", "error", *FILTER)),
            "/delay": (self._delay, ("api", "seconds", "applied", *FILTER)),
            "/drop": (self._drop, ("api", "applied", *FILTER)),
            "/remove": (self._remove, ("number",)),
            "/clear": (lambda _: script.clear(), ()),
            "/freeze": (lambda _: script.freeze(), ()),
            "/thaw": (lambda _: script.thaw(), ()),
            "/advance": (lambda query: faulty.advance(query.number("seconds")), ("seconds",)),
            "/bump-leader-epoch": (self._bump_leader_epoch, ("topic", "partition")),
            "/disk/slow-down": (
                lambda query: disk().slow_down(query.number("sync_seconds")),
                ("sync_seconds",),
            ),
            "/disk/fill-up": (
                lambda query: disk().fill_up(query.integer("room_bytes", 0)),
                ("room_bytes",),
            ),
            "/disk/make-room": (lambda _: disk().make_room(), ()),
            "/disk/fail-next-sync": (
                lambda query: disk().fail_next_sync(query.integer("count", 1)),
                ("count",),
            ),
        }
        self._endpoint = HttpEndpoint(
            {"/": _help, "/faults": self._list},
            LIMITS,
            actions={path: _page(action, names) for path, (action, names) in actions.items()},
        )

    @property
    def url(self) -> str:
        """The base URL of the port."""
        return self._endpoint.url

    async def listen(self, port: int) -> None:
        """Listen on loopback; raises OSError if the port is not available."""
        await self._endpoint.listen(HOST, port)

    async def stop(self) -> None:
        """Close the port and every connection."""
        await self._endpoint.stop()

    def _add(self, action: FaultAction, arguments: _Arguments) -> dict[str, Any]:
        return _fault(self._faulty.script.add(action, arguments.text("api"), **arguments.filter()))

    def _fail(self, arguments: _Arguments) -> dict[str, Any]:
        return self._add(Fail.named(arguments.text("error")), arguments)

    def _delay(self, arguments: _Arguments) -> dict[str, Any]:
        action = Delay(arguments.number("seconds"), arguments.boolean("applied"))
        return self._add(action, arguments)

    def _drop(self, arguments: _Arguments) -> dict[str, Any]:
        return self._add(Drop(arguments.boolean("applied")), arguments)

    def _remove(self, arguments: _Arguments) -> None:
        number = arguments.integer("number")
        if not self._faulty.script.remove(number):
            raise ValueError(f"there is no fault {number}; GET /faults lists them")

    def _bump_leader_epoch(self, arguments: _Arguments) -> dict[str, Any]:
        topic, partition = arguments.text("topic"), arguments.integer("partition", 0)
        return {"leader_epoch": self._faulty.bump_leader_epoch(topic, partition)}

    def _disk(self) -> FaultyFiles:
        assert isinstance(self._faulty.files, FaultyFiles), "the broker was started without files"
        return self._faulty.files

    async def _list(self) -> HttpResponse:
        faults = [_fault(fault) for fault in self._faulty.script.faults]
        return HttpResponse.json(200, {"frozen": self._faulty.script.is_frozen, "faults": faults})


class _Arguments:
    """The arguments of an action; a missing or wrong one raises ValueError with its name."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def text(self, name: str) -> str:
        """Return a text that must be there."""
        if name not in self._query:
            raise ValueError(f"the argument {name}=... is missing")
        return self._query[name]

    def number(self, name: str) -> float:
        """Return a number that must be there."""
        number = _converted(name, self.text(name), float, "a number")
        # `float` accepts "nan" and "inf", which are neither before nor after any due time.
        if not math.isfinite(number):
            raise ValueError(f"{name}={number}: expected a finite number")
        return number

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number; it must be there if it has no default."""
        if default is not None and name not in self._query:
            return default
        return _converted(name, self.text(name), int, "a whole number")

    def boolean(self, name: str) -> bool:
        """Return true or false; false if it is not there."""
        text = self._query.get(name, "false").lower()
        return _converted(name, text, _BOOLEANS.__getitem__, "true or false")

    def filter(self) -> dict[str, Any]:
        """Return the arguments in `FILTER`, as `FaultScript` takes them."""
        has_partition, takes_all = "partition" in self._query, self._query.get("times") == "all"
        return {
            "times": None if takes_all else self._times(),
            "topic": self._query.get("topic"),
            "partition": self.integer("partition") if has_partition else None,
            "client_id": self._query.get("client_id"),
        }

    def _times(self) -> int:
        text = self._query.get("times", "1")
        return _converted("times", text, int, "a whole number, or all")


def _converted(name: str, text: str, convert: Callable[[str], T], expected: str) -> T:
    try:
        return convert(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name}={text!r}: expected {expected}") from None


def _page(action: Callable[[_Arguments], Any], names: tuple[str, ...]) -> QueryPage:
    """Return the page of an action; wrong arguments are answered with status 400."""

    async def page(query: Query) -> HttpResponse:
        if unknown := sorted(query.keys() - set(names)):
            text = f"unknown arguments: {', '.join(unknown)}; GET / describes all\n"
            return HttpResponse(400, text.encode())
        try:
            result = action(_Arguments(query))
        except (ValueError, KafkaError) as error:
            return HttpResponse(400, f"{error}\n".encode())
        return HttpResponse.json(200, result or {})

    return page


def _fault(fault: Fault) -> dict[str, Any]:
    return {"number": fault.number, "fault": repr(fault), "count": fault.count}


async def _help() -> HttpResponse:
    return HttpResponse(200, HELP.encode())


async def run_until(
    stop: asyncio.Event,
    config: Config,
    *,
    port: int,
    ready: Callable[[str, str, str], None],
    said: Callable[[str], None],
) -> None:
    """Run a broker with a test port until ``stop`` is set, like `broker.app.run_until`.

    ``said`` is called with the URL of the test port.
    """
    # Before the broker starts: clients of other machines must not meet the faults of a test.
    check_loopback(config)
    faulty = FaultyBroker()
    running = await faulty.start(config)
    fault_port = FaultPort(faulty)
    try:
        await fault_port.listen(port)
        said(fault_port.url)
        ready(running.bootstrap_servers, running.cluster_id, config.server.data_directory)
        await stop.wait()
    finally:
        # First, so no action reaches a broker that has stopped.
        await fault_port.stop()
        await faulty.stop()


def check_loopback(config: Config) -> None:
    """Raise InvalidConfig if the broker would accept connections from other machines."""
    for listener in parse_listeners(config, insecure=True):
        if not is_loopback(listener.host):
            raise InvalidConfig(
                "a test port is only for a broker on loopback, but "
                f"listeners={config.server.listeners!r} accepts connections from other machines; "
                "listen on 127.0.0.1"
            )
