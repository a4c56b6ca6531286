"""The contract between dispatch and handlers: what a handler gets and what it may return.

A handler is the module that serves one API.  At its foot an `ApiHandler` names its functions and
the permissions that its requests need:

    ``handle(parts, context, request)``   answers a request; the annotation of ``parts`` says
                                          which parts of the broker it touches (`handlers.parts`)
    ``refuse(request, error)``            returns the response if the request failed as a whole;
                                          most modules leave that to `wire.codec.refusals`

``handle`` decides in the order in which the requests came (ADR 0006).  Its result is the response,
which is sent now, or a `Later`, which is sent when the awaitable in it has the response.

A handler of requests that may be large is written as steps (`sharegroup.steps`), and `Handling`
says which kind.  Topics, groups and members may be created and deleted between two steps.

A response belongs to the newest version of its API, except in a handler that `is_native`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from sharegroup.broker.access.checks import Check, Gate
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.access.rights import Rights
from sharegroup.broker.load.answer_budget import AnswerRoom
from sharegroup.broker.parts import Parts
from sharegroup.core.security.principal import Principal
from sharegroup.errors import KafkaError
from sharegroup.wire.codec.convert import downgrade, upgrade
from sharegroup.wire.codec.encoder import Chunk
from sharegroup.wire.codec.schema import wire_error_code

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class CloseConnection(Exception):
    """The peer sent a frame that cannot be answered; the text says why."""


class RequestContext(NamedTuple):
    """The facts about a request that its message does not contain."""

    connection_id: int
    peer: Peer
    client_id: str
    api_version: int
    correlation_id: int
    answers: AnswerRoom
    """The account that says how large the answer may be, for handlers that read records."""
    request_number: int
    """The number of the request in ``answers``."""
    api_key: int
    rights: Rights
    """What the peer may do."""

    @property
    def limited_user(self) -> Principal | None:
        """The user who may hold a part of what all users share; None if it may hold everything.

        Without an authorizer every user may delete what others hold, so no user is limited, and
        neither are super users.
        """
        return None if self.rights.is_unlimited else self.peer.principal


class Encoded(NamedTuple):
    """A response that its handler has encoded itself, as hot paths do."""

    chunks: list[Chunk]


NO_REPLY = Encoded([])
"""The response to a request that asked for none (Produce with acks=0)."""


class Later(Generic[T_co]):
    """A response that has to be awaited; later requests are decided meanwhile."""

    __slots__ = ("response",)

    def __init__(self, response: Awaitable[T_co]) -> None:
        self.response = response


Result: TypeAlias = T | Encoded | Later[T | Encoded]
"""The result of a handler: the response, now or later."""


class Handling(Enum):
    """How ``handle`` does its work."""

    AT_ONCE = "at once"
    """A plain function."""
    READS_IN_STEPS = "reads in steps"
    """Steps that only read.  They may be begun twice, because a long attempt is dropped."""
    CHANGES_IN_STEPS = "changes in steps"
    """Steps that may change state.  They run once: without a pause for a small request; for a
    large one with pauses, in which the later requests of its connection wait."""


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """How a module serves one API; a test compares its annotations with the messages of the API."""

    handle: Callable[[Parts, RequestContext, Any], Any]
    """Returns a `Result`, or steps of one, as ``handling`` says."""
    refuse: Callable[[Any, KafkaError], Any] | None = None
    """Returns the response, or steps of it; None if it is made from the fields of the messages."""
    handling: Handling = Handling.AT_ONCE
    gates: tuple[Gate, ...] = ()
    """The permissions that a request needs as a whole; dispatch checks them before `handle`."""
    checks: tuple[Check, ...] = ()
    """The permissions that the handler itself asks for, item by item."""
    refused: Mapping[str, Any] = field(default_factory=dict)
    """Values of a refusal in place of the schema's defaults, by field, at any depth."""
    refuses_items: bool = False
    """Whether a refusal has an item for each element, although it has an error code of its own."""
    upgraded_class: type[Any] | None = None
    """The class that older requests are converted to; None for that of the newest version."""
    is_native: bool = False
    """Whether it takes the request, and returns the response, in the client's version."""
    from_older: Callable[[Any, type[Any]], Any] = upgrade
    """Converts a request from an older version; an API with renamed fields has its own."""
    to_older: Callable[[Any, type[Any]], Any] = downgrade
    """Converts a response to an older version."""


HandlerOf = Callable[[int], ApiHandler]
"""Returns the handler of an API key (`handler_table.handler_of`)."""


def error_code(error: KafkaError) -> ErrorCode:
    """Return the error code of this error on the wire."""
    return wire_error_code(error.code)


@lru_cache(maxsize=1024)
def milliseconds(count: int) -> i32Timedelta:
    """Return a duration in the type that kio's messages have."""
    return i32Timedelta.parse(dt.timedelta(milliseconds=count))


def count_ms(duration: dt.timedelta) -> int:
    """Return the milliseconds of a duration from a message."""
    return duration // dt.timedelta(milliseconds=1)


NO_THROTTLE = milliseconds(0)
"""The throttle time that handlers set; `dispatch` replaces it if the client is over a quota."""
