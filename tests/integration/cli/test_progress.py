"""Progress of long commands: shown on a terminal, in no pipe and no file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sharegroup.client import AdminClient, NewTopic
from tests.integration.cli.piping import at, sharegroup
from tests.integration.cli.terminal import terminal

SLOW = "--num-records 400 --record-size 10 --throughput 100"
"""Four seconds of a measurement."""


@pytest.mark.slow
def test_terminal_shows_the_records_of_the_total_and_then_the_result(bootstrap: str) -> None:
    with terminal(*at(bootstrap, f"perf produce --topic slow-perf {SLOW}")) as shown:
        shown.expect(" of 400 records")
        code, _ = shown.end()
    assert code == 0
    assert "producing" in shown.text
    assert shown.text.index(" of 400 records") < shown.text.index("400 records sent, ")


@pytest.mark.slow
def test_results_are_printed_on_lines_of_their_own_above_the_bar(bootstrap: str) -> None:
    words = f"perf produce --topic lines-perf {SLOW} --reporting-interval 1000"
    with terminal(*at(bootstrap, words)) as shown:
        shown.expect(" of 400 records")
        shown.expect("records sent, ")
        assert shown.end()[0] == 0
    results = [line for line in shown.text.split("\n") if "records sent, " in line]
    assert len(results) >= 3
    assert all("producing" not in line.rpartition("\x1b[K")[2] for line in results[:-1])


@pytest.mark.slow
def test_input_files_are_shown_by_their_bytes(bootstrap: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("x\n" * 150_000)
    with terminal(*at(bootstrap, f"produce from-file {file}")) as shown:
        assert shown.end()[0] == 0
    assert "acknowledged 150,000 of 150,000 records" in shown.text
    # A fast machine is done before the bar is due, but it never shows another total.
    assert ("of 300,000 bytes" in shown.text) == ("producing" in shown.text)


@pytest.mark.slow
def test_pipe_gets_no_progress(bootstrap: str) -> None:
    done = sharegroup(*at(bootstrap, f"perf produce --topic piped-perf {SLOW}"))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(b"400 records sent, ")


def test_reset_of_many_partitions_reaches_all_of_them(bootstrap: str) -> None:
    async def create() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            assert await admin.create_topics([NewTopic("broad", 1_200)]) == {"broad": None}

    asyncio.run(create())
    words = "groups reset-offsets broad-group --topic broad --to-earliest --execute --export"
    done = sharegroup(*at(bootstrap, words), "--timeout", "60000")
    assert (done.code, done.err) == (0, "")
    assert len(done.lines) == 1_200
    described = sharegroup(*at(bootstrap, "groups describe broad-group"), "--timeout", "60000")
    assert len(described.lines) == 1 + 1_200
