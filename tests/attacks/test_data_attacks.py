"""No mistake with the data directory deletes a confirmed record or stays unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.data_attacks import DAMAGES, lose_directory, lose_journal
from tests.attacks.test_attacks import RUNS_ALL


@pytest.mark.parametrize("name", DAMAGES if RUNS_ALL else ["journal-older"])
def test_lost_journal_loses_no_record(name: str, tmp_path: Path) -> None:
    assert lose_journal(DAMAGES[name], tmp_path) == []


@pytest.mark.skipif(not RUNS_ALL, reason="waits for a checkpoint; part of `make attacks`")
def test_a_deleted_data_directory_is_noticed(tmp_path: Path) -> None:
    assert lose_directory(tmp_path) == []
