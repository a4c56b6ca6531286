"""Tools to test code that uses Kafka, for users and for our own tests.

They are a broker in one call (`broker`, `run_broker`) with faults, a clock that can be advanced and
a disk that can fail; a clock that stands still (`ManualClock`), virtual time for asyncio
(`virtual_time.run`), a disk that loses unsynced writes (`PowerLossDisk`), a schema registry
(`schema_registry`, `run_schema_registry`), and fixtures for pytest.

Names are imported on first use. In every project where sharegroup is installed, pytest loads
this package for its fixtures, and should not spend the time to import an unused broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharegroup.faults.faulty_files import FaultyFiles
    from sharegroup.faults.script import Fault
    from sharegroup.testing.embedded import AsyncTestBroker, TestBroker, broker, run_broker
    from sharegroup.testing.power_loss import PowerLossDisk
    from sharegroup.testing.registry.server import (
        SchemaRegistry,
        run_schema_registry,
        schema_registry,
    )
    from sharegroup.testing.security import Security
    from sharegroup.testing.stored_record import StoredRecord
    from sharegroup.testing.virtual_time import ManualClock

__all__ = [
    "AsyncTestBroker",
    "Fault",
    "FaultyFiles",
    "ManualClock",
    "PowerLossDisk",
    "SchemaRegistry",
    "Security",
    "StoredRecord",
    "TestBroker",
    "broker",
    "run_broker",
    "run_schema_registry",
    "schema_registry",
]

_MODULES = {
    "AsyncTestBroker": "sharegroup.testing.embedded",
    "Fault": "sharegroup.faults.script",
    "FaultyFiles": "sharegroup.faults.faulty_files",
    "ManualClock": "sharegroup.testing.virtual_time",
    "PowerLossDisk": "sharegroup.testing.power_loss",
    "SchemaRegistry": "sharegroup.testing.registry.server",
    "Security": "sharegroup.testing.security",
    "StoredRecord": "sharegroup.testing.stored_record",
    "TestBroker": "sharegroup.testing.embedded",
    "broker": "sharegroup.testing.embedded",
    "run_broker": "sharegroup.testing.embedded",
    "run_schema_registry": "sharegroup.testing.registry.server",
    "schema_registry": "sharegroup.testing.registry.server",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
