"""The measuring of clients on a cluster: what counts, and what is an error."""

from __future__ import annotations

import pytest

from tests.bench.cluster.consumers import Delays, Seen
from tests.bench.failure import BenchError


def test_delays_count_from_the_first_record_after_the_uncounted_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    delays = Delays(first=2, uncounted=1, counted=2, now_ns=lambda: 1_000)
    delays.add([b"0"])
    assert capsys.readouterr().out == ""
    delays.add([b"0", b"900", b"990"])
    assert capsys.readouterr().out == "ready\n"
    assert (delays.nanoseconds, delays.complete) == ([10], False)
    delays.add([b"995"])
    assert (delays.nanoseconds, delays.complete) == ([10, 5], True)


def test_lost_or_repeated_records_fail_the_measurement() -> None:
    seen = Seen(expected=3)
    seen.add(2)
    assert not seen.complete
    with pytest.raises(BenchError, match="after 2"):
        seen.add(0)
    seen.add(2)
    with pytest.raises(BenchError, match="3 records expected, 4 came"):
        _ = seen.complete
