"""What users need to test code that speaks Kafka, and what our own tests use.

A broker in one call (`broker`, `run_broker`), a clock that is moved by hand (`ManualClock`),
virtual time for asyncio (`virtual_time.run`), a disk that loses what was not synced
(`power_loss.PowerLossDisk`), and fixtures for pytest.

Names are loaded when they are used: pytest loads this package in every project where
sharegroup is installed, for its fixtures, and must not pay for a broker that nobody asks for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharegroup.testing.clock import ManualClock
    from sharegroup.testing.embedded import TestBroker, broker, run_broker

__all__ = ["ManualClock", "TestBroker", "broker", "run_broker"]

_MODULES = {
    "ManualClock": "sharegroup.testing.clock",
    "TestBroker": "sharegroup.testing.embedded",
    "broker": "sharegroup.testing.embedded",
    "run_broker": "sharegroup.testing.embedded",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
