"""A worker framework on share groups and consumer groups: handlers, retries, dead letters.

Names are imported when they are first used, so declaring handlers does not import the client.
"""

from typing import TYPE_CHECKING

from sharegroup.lazy_names import lazy_names

if TYPE_CHECKING:
    from sharegroup.dead_letters.reasons import DeadLetterReason as DeadLetterReason
    from sharegroup.schedules.schedule import Missed as Missed, ScheduledRun as ScheduledRun
    from sharegroup.worker.app import App as App
    from sharegroup.worker.declarations.policies import (
        CircuitBreaker as CircuitBreaker,
        Expiry as Expiry,
    )
    from sharegroup.worker.declarations.retry import Retry as Retry
    from sharegroup.worker.declarations.route import (
        Batching as Batching,
        Holding as Holding,
        OnFailure as OnFailure,
        OnUnreadable as OnUnreadable,
        RateLimit as RateLimit,
        Route as Route,
        RouteKind as RouteKind,
        StartFrom as StartFrom,
    )
    from sharegroup.worker.declarations.topics import (
        BrokerDeadLetter as BrokerDeadLetter,
        DeadLetter as DeadLetter,
    )
    from sharegroup.worker.events import Event as Event
    from sharegroup.worker.executors.processes import HandlerCrashed as HandlerCrashed
    from sharegroup.worker.middleware import Call as Call, Proceed as Proceed
    from sharegroup.worker.payloads.codec import (
        Payload as Payload,
        UnreadablePayload as UnreadablePayload,
    )
    from sharegroup.worker.payloads.registry import (
        Registry as Registry,
        SchemaFormat as SchemaFormat,
    )
    from sharegroup.worker.records.outcomes import (
        HandlingTimeout as HandlingTimeout,
        Reject as Reject,
        Release as Release,
        RetryAfter as RetryAfter,
        SomeFailed as SomeFailed,
    )
    from sharegroup.worker.records.record import Context as Context, Record as Record
    from sharegroup.worker.results.asks import (
        AskEnded as AskEnded,
        AskFailed as AskFailed,
        AskTimeout as AskTimeout,
        TooManyAsks as TooManyAsks,
    )
    from sharegroup.worker.results.result import Result as Result, ResultState as ResultState
    from sharegroup.worker.routed import (
        Routed as Routed,
        consumer_group as consumer_group,
        share_group as share_group,
    )
    from sharegroup.worker.sender import NotConnected as NotConnected
    from sharegroup.worker.stores.memory import MemoryStore as MemoryStore
    from sharegroup.worker.stores.postgres import PostgresStore as PostgresStore
    from sharegroup.worker.stores.redis import RedisStore as RedisStore
    from sharegroup.worker.stores.sqlite import SqliteStore as SqliteStore
    from sharegroup.worker.stores.store import (
        Confirmed as Confirmed,
        Held as Held,
        Reserved as Reserved,
        Store as Store,
        StoreUnavailable as StoreUnavailable,
    )
    from sharegroup.worker.stores.unique import SentBefore as SentBefore


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "dead_letters.reasons": "DeadLetterReason",
            "schedules.schedule": "Missed ScheduledRun",
            "worker.app": "App",
            "worker.declarations.policies": "CircuitBreaker Expiry",
            "worker.declarations.retry": "Retry",
            "worker.declarations.route": """
                Batching Holding OnFailure OnUnreadable RateLimit Route RouteKind StartFrom
            """,
            "worker.declarations.topics": "BrokerDeadLetter DeadLetter",
            "worker.events": "Event",
            "worker.middleware": "Call Proceed",
            "worker.payloads.codec": "Payload UnreadablePayload",
            "worker.payloads.registry": "Registry SchemaFormat",
            "worker.records.outcomes": "HandlingTimeout Reject Release RetryAfter SomeFailed",
            "worker.records.record": "Context Record",
            "worker.results.asks": "AskEnded AskFailed AskTimeout TooManyAsks",
            "worker.results.result": "Result ResultState",
            "worker.routed": "Routed consumer_group share_group",
            "worker.executors.processes": "HandlerCrashed",
            "worker.sender": "NotConnected",
            "worker.stores.memory": "MemoryStore",
            "worker.stores.postgres": "PostgresStore",
            "worker.stores.redis": "RedisStore",
            "worker.stores.sqlite": "SqliteStore",
            "worker.stores.store": "Confirmed Held Reserved Store StoreUnavailable",
            "worker.stores.unique": "SentBefore",
        },
    )
