"""A worker framework on share groups: handlers, delayed retries, dead letters, lock renewal.

Names are imported when they are first used, so declaring handlers does not import the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharegroup.worker.app import App
    from sharegroup.worker.decisions.reasons import DeadLetterReason
    from sharegroup.worker.declarations.dead_letter import BrokerDeadLetter, DeadLetter
    from sharegroup.worker.declarations.rate import RateLimit
    from sharegroup.worker.declarations.retry import Retry
    from sharegroup.worker.declarations.route import (
        Batching,
        Holding,
        OnUnreadable,
        Route,
        StartFrom,
    )
    from sharegroup.worker.events import Event
    from sharegroup.worker.middleware import Call, Proceed
    from sharegroup.worker.payloads.codec import Payload
    from sharegroup.worker.payloads.registry import Registry, SchemaFormat
    from sharegroup.worker.payloads.unreadable import UnreadablePayload
    from sharegroup.worker.records.outcomes import Reject, Release, RetryAfter, SomeFailed
    from sharegroup.worker.records.record import Context, Record
    from sharegroup.worker.routed import Routed, share_group
    from sharegroup.worker.running.processes import HandlerCrashed
    from sharegroup.worker.running.verdicts import HandlingTimeout
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
    "App": "app",
    "Batching": "declarations.route",
    "BrokerDeadLetter": "declarations.dead_letter",
    "Call": "middleware",
    "Context": "records.record",
    "DeadLetter": "declarations.dead_letter",
    "DeadLetterReason": "decisions.reasons",
    "Event": "events",
    "HandlerCrashed": "running.processes",
    "HandlingTimeout": "running.verdicts",
    "Holding": "declarations.route",
    "NotConnected": "sender",
    "OnUnreadable": "declarations.route",
    "Payload": "payloads.codec",
    "Proceed": "middleware",
    "RateLimit": "declarations.rate",
    "Record": "records.record",
    "Registry": "payloads.registry",
    "Reject": "records.outcomes",
    "Release": "records.outcomes",
    "Retry": "declarations.retry",
    "RetryAfter": "records.outcomes",
    "Route": "declarations.route",
    "Routed": "routed",
    "SchemaFormat": "payloads.registry",
    "SomeFailed": "records.outcomes",
    "StartFrom": "declarations.route",
    "UnreadablePayload": "payloads.unreadable",
    "share_group": "routed",
}

if not TYPE_CHECKING:  # Type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"sharegroup.worker.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
