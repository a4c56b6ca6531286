"""Tools to test code that uses Kafka, for users and for our own tests.

They are a broker in one call (`broker`, `run_broker`) with faults, a clock that can be advanced and
a disk that can fail; a clock that stands still (`ManualClock`), virtual time for asyncio
(`virtual_time.run`), a disk that loses unsynced writes (`PowerLossDisk`), a schema registry
(`schema_registry`, `run_schema_registry`), and fixtures for pytest.

Names are imported on first use. In every project where sharegroup is installed, pytest loads
this package for its fixtures, and should not spend the time to import an unused broker.
"""

from typing import TYPE_CHECKING

from sharegroup.lazy_names import lazy_names

if TYPE_CHECKING:
    from sharegroup.faults.faulty_files import FaultyFiles as FaultyFiles
    from sharegroup.faults.script import Fault as Fault
    from sharegroup.testing.embedded import (
        AsyncTestBroker as AsyncTestBroker,
        TestBroker as TestBroker,
        broker as broker,
        run_broker as run_broker,
    )
    from sharegroup.testing.power_loss import PowerLossDisk as PowerLossDisk
    from sharegroup.testing.registry.server import (
        SchemaRegistry as SchemaRegistry,
        run_schema_registry as run_schema_registry,
        schema_registry as schema_registry,
    )
    from sharegroup.testing.security import Security as Security
    from sharegroup.testing.stored_record import StoredRecord as StoredRecord
    from sharegroup.testing.virtual_time import ManualClock as ManualClock


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "faults.faulty_files": "FaultyFiles",
            "faults.script": "Fault",
            "testing.embedded": "AsyncTestBroker TestBroker broker run_broker",
            "testing.power_loss": "PowerLossDisk",
            "testing.registry.server": "SchemaRegistry run_schema_registry schema_registry",
            "testing.security": "Security",
            "testing.stored_record": "StoredRecord",
            "testing.virtual_time": "ManualClock",
        },
    )
