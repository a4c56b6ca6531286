"""Two libraries are imported without what they drag along, and stay whole for others."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import sharegroup.wire.records, sharegroup.wire.decoder
assert "hypothesis" not in sys.modules, "Hypothesis was imported"
assert "aiokafka.client" not in sys.modules, "the whole of aiokafka was imported"
from aiokafka import AIOKafkaProducer
import hypothesis.strategies
import aiokafka
assert aiokafka.AIOKafkaProducer is AIOKafkaProducer
assert isinstance(aiokafka.__version__, str)
print("whole")
"""


def test_libraries_are_light_for_us_and_whole_for_others() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.stdout.strip(), done.stderr) == ("whole", "")
