"""Three libraries are imported without what they drag along, and stay whole for others."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import sharegroup.wire.records, sharegroup.wire.decoder
assert "hypothesis" not in sys.modules, "Hypothesis was imported"
assert "aiokafka.client" not in sys.modules, "the whole of aiokafka was imported"
assert "aiokafka.record.legacy_records" not in sys.modules, "formats of old were imported"
assert "crc32c._cli" not in sys.modules, "the whole of crc32c was imported"
from aiokafka import AIOKafkaProducer
import hypothesis.strategies
import aiokafka
assert aiokafka.AIOKafkaProducer is AIOKafkaProducer
assert isinstance(aiokafka.__version__, str)
from aiokafka.record import MemoryRecords
import crc32c
assert crc32c.crc32c(b"123456789") == crc32c.CRC32CHash(b"123456789").checksum == 0xE3069283
assert isinstance(crc32c.__version__, str)
print("whole")
"""


def test_libraries_are_light_for_us_and_whole_for_others() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.stdout.strip(), done.stderr) == ("whole", "")


@pytest.mark.parametrize(
    "module",
    [
        "sharegroup.broker.app",
        "sharegroup.broker.request_counters",
        "sharegroup.client",
        "sharegroup.storage.compaction",
    ],
)
def test_no_way_into_the_project_loads_hypothesis(module: str) -> None:
    """Every package that imports kio imports `sharegroup.wire` first; one forgot it once."""
    program = f"import sys, {module}; print('hypothesis' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
