"""One handler and everything declared about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declared.dead_letter import BrokerDeadLetter, DeadLetter
from sharegroup.worker.declared.handler import HandlerShape
from sharegroup.worker.declared.names import own_topic
from sharegroup.worker.declared.numbers import is_number, is_whole
from sharegroup.worker.declared.rate import RateLimit
from sharegroup.worker.declared.retry import Retry
from sharegroup.worker.payloads.codec import Codec, Payload, codec_for

if TYPE_CHECKING:
    from sharegroup.worker.payloads.registry import Registry

COUNT_MAX = 2**63 - 1
RETRY = Retry()
DEAD_LETTER = DeadLetter()
RETRY_TIERS = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """How much may wait here for a short retry; what finds no room goes to a retry topic."""

    longest_seconds: float = 5.0
    records: int = 10_000
    bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        counts = is_whole(self.records, 0, COUNT_MAX) and is_whole(self.bytes, 0, COUNT_MAX)
        if not (counts and is_number(self.longest_seconds, 0)):
            raise InvalidConfig(f"{self}; expected numbers, 0 (nothing is held) or more in each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """A batch handler is called with up to ``size`` records, or fewer after ``wait_seconds``."""

    size: int = 100
    wait_seconds: float = 0.05

    def __post_init__(self) -> None:
        if not (is_whole(self.size, 1, COUNT_MAX) and is_number(self.wait_seconds, 0)):
            raise InvalidConfig(f"{self}; expected a size of 1 or more, and seconds, 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What `App.share_group` declares."""

    group: str
    topics: tuple[str, ...]
    shape: HandlerShape
    concurrency: int | Literal["auto"] = 32
    """Handlers that run at a time in this process."""
    processes: int = 0
    """0: coroutines on the loop, plain functions in threads.  Else: in so many processes."""
    retry: Retry | None = RETRY
    dead_letter: DeadLetter | BrokerDeadLetter | None = DEAD_LETTER
    """None: what can't be done is rejected, and only an event tells of it."""
    order_by: Callable[[Any], Any] | Literal["key"] | None = None
    max_handling_seconds: float | None = 300.0
    """A handler that runs longer is cancelled and has failed; its lock is renewed until then."""
    rate_limit: RateLimit | None = None
    batching: Batching | None = None
    """For handlers of a list only."""
    holding: Holding = Holding()
    in_flight_bytes: int = 64 * 1024 * 1024
    unreadable: Literal["dead_letter", "reject", "release"] = "dead_letter"
    start_from: Literal["earliest", "latest"] = "earliest"
    """Where a new group begins."""
    group_configs: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Further settings of the share group, by Kafka's names."""
    payload: Payload | Registry | None = None
    """How its payload is read and written; None: by the annotation."""
    retry_tiers: tuple[float, ...] = RETRY_TIERS
    """The delays of the retry topics in seconds, growing."""
    codec: Codec = field(init=False, repr=False, compare=False)
    """Made once, of the annotation and `payload`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", codec_for(self.shape.payload_type, self.payload))

    @property
    def own_topic(self) -> str:
        """Records of this group alone: retries that are due, and what was redriven."""
        return own_topic(self.group)
