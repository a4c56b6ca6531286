"""Plain handlers on share groups: retries with delay, dead letters, locks that are kept.

Names are loaded when they are used: who declares handlers waits for no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharegroup.worker.app import App
    from sharegroup.worker.declared.dead_letter import BrokerDeadLetter, DeadLetter
    from sharegroup.worker.declared.rate import RateLimit
    from sharegroup.worker.declared.retry import Retry
    from sharegroup.worker.declared.route import Batching, Holding, Route
    from sharegroup.worker.events import Event
    from sharegroup.worker.middleware import Call, Proceed
    from sharegroup.worker.payloads.codec import Payload
    from sharegroup.worker.payloads.registry import Registry
    from sharegroup.worker.payloads.unreadable import UnreadablePayload
    from sharegroup.worker.records.outcomes import Reject, Release, RetryAfter, SomeFailed
    from sharegroup.worker.records.record import Context, Record
    from sharegroup.worker.routed import Routed, share_group
    from sharegroup.worker.running.lane import HandlingTimeout
    from sharegroup.worker.running.processes import HandlerCrashed
    from sharegroup.worker.sender import NotConnected

__all__ = [
    "App",
    "Batching",
    "BrokerDeadLetter",
    "Call",
    "Context",
    "DeadLetter",
    "Event",
    "HandlerCrashed",
    "HandlingTimeout",
    "Holding",
    "NotConnected",
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
    "SomeFailed",
    "UnreadablePayload",
    "share_group",
]

_MODULES = {
    "App": "app",
    "Batching": "declared.route",
    "BrokerDeadLetter": "declared.dead_letter",
    "Call": "middleware",
    "Context": "records.record",
    "DeadLetter": "declared.dead_letter",
    "Event": "events",
    "HandlerCrashed": "running.processes",
    "HandlingTimeout": "running.lane",
    "Holding": "declared.route",
    "NotConnected": "sender",
    "Payload": "payloads.codec",
    "Proceed": "middleware",
    "RateLimit": "declared.rate",
    "Record": "records.record",
    "Registry": "payloads.registry",
    "Reject": "records.outcomes",
    "Release": "records.outcomes",
    "Retry": "declared.retry",
    "RetryAfter": "records.outcomes",
    "Route": "declared.route",
    "Routed": "routed",
    "SomeFailed": "records.outcomes",
    "UnreadablePayload": "payloads.unreadable",
    "share_group": "routed",
}

if not TYPE_CHECKING:  # Else a name that there is none of would have a type.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"sharegroup.worker.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
