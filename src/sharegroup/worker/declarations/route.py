"""The route: a handler with its topics, group and options, and its rate limit among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from sharegroup.dead_letters.topics import own_topic
from sharegroup.durations import seconds
from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import is_number, is_whole
from sharegroup.worker.declarations.handler import HandlerShape
from sharegroup.worker.declarations.policies import CircuitBreaker, Expiry, Filter
from sharegroup.worker.declarations.retry import Retry, RetryByError
from sharegroup.worker.declarations.topics import BrokerDeadLetter, DeadLetter
from sharegroup.worker.payloads.codec import Codec, Payload, codec_for
from sharegroup.worker.redaction import Redact, Redaction

if TYPE_CHECKING:
    from sharegroup.worker.payloads.registry import Registry


BURST_MAX = 2**31 - 1
PROCESSES_MAX = 10_000
"""As WORKERS_MAX in `sharegroup.fleet.fleet`."""
SharedName = Literal["fleet", "store"]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Limits how many records a handler starts, in each process or in all processes together.

    It starts ``records`` in every ``seconds``, and up to ``burst`` at once.  ``burst`` defaults to
    ``records``, and is at least 1.

    ``shared="fleet"`` divides the limit by the live processes of the group, which
    ``App(announce=True)`` tells; ``shared="store"`` takes each token from the App's store.  A
    process that does not know the others takes one part of ``assumed_processes``.
    """

    records: float
    seconds: float = 1.0
    burst: int | None = None
    shared: SharedName | None = None
    """None: each process has the limit for itself."""
    assumed_processes: int = 10

    def __post_init__(self) -> None:
        if not all(is_number(number, 0) and number > 0 for number in (self.records, self.seconds)):
            raise InvalidConfig(
                f"RateLimit: records={self.records!r}, seconds={self.seconds!r}; "
                f"expected numbers above 0"
            )
        if self.burst is not None and not is_whole(self.burst, 1, BURST_MAX):
            raise InvalidConfig(f"RateLimit: burst={self.burst!r}; expected 1 or more")
        if self.shared not in (None, "fleet", "store"):
            raise InvalidConfig(f"RateLimit: shared={self.shared!r}; expected 'fleet' or 'store'")
        if not is_whole(self.assumed_processes, 1, PROCESSES_MAX):
            raise InvalidConfig(
                f"RateLimit: assumed_processes={self.assumed_processes!r}; expected 1 to "
                f"{PROCESSES_MAX}"
            )

    @property
    def per_second(self) -> float:
        """The number of records per second."""
        return self.records / self.seconds

    @property
    def burst_records(self) -> float:
        """The number of records that may start at once."""
        return max(1.0, self.records) if self.burst is None else float(self.burst)


def rate_limit_of(value: RateLimit | str | None) -> RateLimit | None:
    """Convert the option ``rate_limit``, which may be ``"100/s"``, ``"5/m"`` or ``"10/2s"``."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\S+)\s*", value)
    if match is None:
        raise ValueError(f"expected a RateLimit, or a text like '100/s' or '10/2m'; got {value!r}")
    records, time = match.groups()
    return RateLimit(float(records), seconds(time if time[0].isdigit() else f"1{time}"))


COUNT_MAX = 2**63 - 1
RETRY = Retry()
DEAD_LETTER = DeadLetter()
RETRY_TIERS = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0)


class StartFrom(StrEnum):
    """The position at which a new group starts to read a topic."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OnUnreadable(StrEnum):
    """The action for a record whose value cannot be decoded for its handler."""

    DEAD_LETTER = "dead_letter"
    REJECT = "reject"
    RELEASE = "release"


class RouteKind(StrEnum):
    """The kind of group that a route's records come from."""

    SHARE = "share"
    """A share group: records are locked one by one, and settled one by one."""
    CONSUMER = "consumer"
    """A consumer group: partitions have owners, and offsets are committed."""


class OnFailure(StrEnum):
    """The place in which a failed record of a consumer group waits for its next attempt."""

    BLOCK = "block"
    """In this process, and the records behind it in its order wait with it."""
    RETRY_TOPIC = "retry_topic"
    """In a retry topic; the records behind it overtake it."""


CommitName = Literal["after", "manual"]
GroupProtocolName = Literal["consumer", "classic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Limits of holding: keeping records locked in memory for a short retry.

    The limits apply to all handlers of the group in this process.  Records above the limits go to a
    retry topic instead.
    """

    longest_seconds: float = 5.0
    records: int = 10_000
    bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        counts = is_whole(self.records, 0, COUNT_MAX) and is_whole(self.bytes, 0, COUNT_MAX)
        if not (counts and is_number(self.longest_seconds, 0)):
            raise InvalidConfig(f"{self}; expected numbers, 0 (nothing is held) or more in each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Calls a batch handler with up to ``size`` records, or with fewer after ``wait_seconds``."""

    size: int = 100
    wait_seconds: float = 0.05

    def __post_init__(self) -> None:
        if not (is_whole(self.size, 1, COUNT_MAX) and is_number(self.wait_seconds, 0)):
            raise InvalidConfig(f"{self}; expected a size of 1 or more, and seconds, 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A handler with its topics, group and options, as the application declares it."""

    group: str
    topics: tuple[str, ...]
    shape: HandlerShape
    kind: RouteKind = RouteKind.SHARE
    concurrency: int | Literal["auto"] = 32
    """The number of handlers that run concurrently in this process."""
    processes: int = 0
    """The number of processes that run the handler.

    0 runs coroutines on the event loop and plain functions in threads.
    """
    retry: Retry | RetryByError | None = RETRY
    dead_letter: DeadLetter | BrokerDeadLetter | None = DEAD_LETTER
    """None if records that cannot be processed are rejected, which only an event reports."""
    order_by: Callable[[Any], Any] | Literal["key", "partition"] | None = None
    """``"partition"`` is for consumer groups only."""
    on_failure: OnFailure = OnFailure.RETRY_TOPIC
    """Only for consumer groups."""
    commit: CommitName = "after"
    """``"manual"``: a record of a consumer group is finished by `Record.finish`, not by its end."""
    exactly_once: bool = False
    """Whether a consumer group's offsets and the records its handlers send are one transaction."""
    group_protocol: GroupProtocolName = "consumer"
    """The protocol of a consumer group: ``consumer`` (KIP-848), or ``classic``."""
    max_handling_seconds: float | None = 300.0
    """A handler that runs longer is cancelled and fails.  Until then its lock is renewed."""
    rate_limit: RateLimit | None = None
    batching: Batching | None = None
    """Only for batch handlers."""
    holding: Holding = Holding()
    in_flight_bytes: int = 64 * 1024 * 1024
    unreadable: OnUnreadable = OnUnreadable.DEAD_LETTER
    start_from: StartFrom = StartFrom.EARLIEST
    """The position at which a new group starts to read."""
    group_configs: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Further settings of the share group, by their Kafka names."""
    kafka: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """Further options of the consumers that read for the group."""
    payload: Payload | Registry | None = None
    """The codec of the payload; None if its annotation determines that."""
    retry_tiers: tuple[float, ...] = RETRY_TIERS
    """The delays of the retry topics in seconds, in ascending order."""
    steering: bool = False
    """Whether waiting records of the group can be run at once or cancelled, by commands.

    Then they are moved in transactions.
    """
    expiry: Expiry | None = None
    """When a record is too old for the handler; None if it never is."""
    priorities: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The weight of each topic; empty if all topics are equal."""
    breaker: CircuitBreaker | None = None
    """When the handler is not called, because it fails; None if it always is."""
    only: Filter | None = None
    """Which records the handler is called for; None if it is called for all."""
    once_by: Callable[[Any], str | int] | None = None
    """The identity of the work; the handler runs once for each in `once_seconds`."""
    once_seconds: float = 0.0
    to: str | None = None
    """The topic to which the handler's return value is sent; None if it is not sent."""
    replies: bool = False
    """Whether senders may ask for the return value (`Routed.ask`)."""
    result_seconds: float = 0.0
    """How long the store keeps the result of each record; 0 if it keeps none."""
    redact: Redact | None = field(default=None, repr=False)
    """Removes secrets from exception texts, before the application's function does."""
    redaction: Redaction | None = field(default=None, repr=False, compare=False)
    """Calls `redact` and the application's function; set by the application that runs the route."""
    codec: Codec = field(init=False, repr=False, compare=False)
    """Built once from the annotation and `payload`."""
    output: Codec | None = field(default=None, repr=False, compare=False)
    """The codec of the records in the topic `to`; set by the application that has the route."""
    return_codec: Codec | None = field(init=False, repr=False, compare=False)
    """The codec of the return value in replies and results; None without them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", codec_for(self.shape.payload_type, self.payload))
        is_read = self.replies or self.result_seconds
        returned = codec_for(self.shape.return_type) if is_read else None
        object.__setattr__(self, "return_codec", returned)

    def changed(self, **changes: object) -> Route:
        """A copy with other settings and the same codec, which may have a registry client."""
        assert "payload" not in changes
        route = copy(self)
        for name, value in changes.items():
            object.__setattr__(route, name, value)
        return route

    @property
    def title(self) -> str:
        """The handler and its group, as errors of its declaration name them."""
        return f"{self.kind} group {self.group!r}, handler {self.shape.name}"

    @property
    def is_selective(self) -> bool:
        """Whether its handler may not be called for a record: by expiry, filter or breaker."""
        return self.expiry is not None or self.only is not None or self.breaker is not None

    @property
    def is_reported(self) -> bool:
        """Whether the outcome of its records is written to the store, or sent as a reply."""
        return self.replies or self.result_seconds > 0

    @property
    def is_share(self) -> bool:
        """Whether its group is a share group."""
        return self.kind is RouteKind.SHARE

    @property
    def blocks(self) -> bool:
        """Whether a failed record waits in this process, however long."""
        return self.on_failure is OnFailure.BLOCK and not self.is_share

    @property
    def own_topic(self) -> str:
        """The topic of this group alone, with due retries and redriven records."""
        return own_topic(self.group)
