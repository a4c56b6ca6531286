"""What tests of other projects' clients have to bear with."""

from __future__ import annotations

import pytest

LEAVES_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""kafka-python and aiokafka leave sockets to the garbage collector, also while they run."""
