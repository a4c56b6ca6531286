"""A worker framework on share groups: handlers, delayed retries, dead letters, lock renewal.

Names are imported when they are first used, so declaring handlers does not import the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharegroup.dead_letters.reasons import DeadLetterReason
    from sharegroup.worker.app import App
    from sharegroup.worker.declarations.dead_letter import BrokerDeadLetter, DeadLetter
    from sharegroup.worker.declarations.retry import Retry
    from sharegroup.worker.declarations.route import (
        Batching,
        Holding,
        OnUnreadable,
        RateLimit,
        Route,
        StartFrom,
    )
    from sharegroup.worker.events import Event
    from sharegroup.worker.middleware import Call, Proceed
    from sharegroup.worker.payloads.codec import Payload, UnreadablePayload
    from sharegroup.worker.payloads.registry import Registry, SchemaFormat
    from sharegroup.worker.records.outcomes import (
        HandlingTimeout,
        Reject,
        Release,
        RetryAfter,
        SomeFailed,
    )
    from sharegroup.worker.records.record import Context, Record
    from sharegroup.worker.routed import Routed, share_group
    from sharegroup.worker.running.processes import HandlerCrashed
    from sharegroup.worker.sender import NotConnected

__all__ = [
    "App",
    "Batching",
    "BrokerDeadLetter",
    "Call",
    "Context",
    "DeadLetter",
    "DeadLetterReason",
    "Event",
    "HandlerCrashed",
    "HandlingTimeout",
    "Holding",
    "NotConnected",
    "OnUnreadable",
    "Payload",
    "Proceed",
    "RateLimit",
    "Record",
    "Registry",
    "Reject",
    "Release",
    "Retry",
    "RetryAfter",
    "Route",
    "Routed",
    "SchemaFormat",
    "SomeFailed",
    "StartFrom",
    "UnreadablePayload",
    "share_group",
]

_MODULES = {
    "App": "worker.app",
    "Batching": "worker.declarations.route",
    "BrokerDeadLetter": "worker.declarations.dead_letter",
    "Call": "worker.middleware",
    "Context": "worker.records.record",
    "DeadLetter": "worker.declarations.dead_letter",
    "DeadLetterReason": "dead_letters.reasons",
    "Event": "worker.events",
    "HandlerCrashed": "worker.running.processes",
    "HandlingTimeout": "worker.records.outcomes",
    "Holding": "worker.declarations.route",
    "NotConnected": "worker.sender",
    "OnUnreadable": "worker.declarations.route",
    "Payload": "worker.payloads.codec",
    "Proceed": "worker.middleware",
    "RateLimit": "worker.declarations.route",
    "Record": "worker.records.record",
    "Registry": "worker.payloads.registry",
    "Reject": "worker.records.outcomes",
    "Release": "worker.records.outcomes",
    "Retry": "worker.declarations.retry",
    "RetryAfter": "worker.records.outcomes",
    "Route": "worker.declarations.route",
    "Routed": "worker.routed",
    "SchemaFormat": "worker.payloads.registry",
    "SomeFailed": "worker.records.outcomes",
    "StartFrom": "worker.declarations.route",
    "UnreadablePayload": "worker.payloads.codec",
    "share_group": "worker.routed",
}

if not TYPE_CHECKING:  # Type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"sharegroup.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
