"""Tools to test code that uses Kafka, for users and for our own tests.

They are a broker in one call (`broker`, `run_broker`), a clock that tests advance
(`ManualClock`), virtual time for asyncio (`virtual_time.run`), a disk that loses unsynced writes
(`power_loss.PowerLossDisk`), and fixtures for pytest.

Names are imported on first use. In every project where sharegroup is installed, pytest loads
this package for its fixtures, and should not spend the time to import an unused broker.
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
