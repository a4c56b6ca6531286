"""The broker in this thread: what a test that fails leaves behind."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path

import pytest

from tests.faults.in_process import Broker


@pytest.mark.parametrize("ends", [True, False])
def test_broker_that_a_failed_test_does_not_stop_leaves_no_socket(
    tmp_path: Path, ends: bool
) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path))
        if ends:
            await broker.stop()
        raise LookupError("a failed test")

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Of a socket that is collected.
        with pytest.raises(LookupError):
            asyncio.run(main())
        gc.collect()
