"""Records of a batch that is over are fetched from the broker again."""

from __future__ import annotations

import pytest

from sharegroup.errors import KafkaError
from sharegroup.spark.kept_records import Keeper
from tests.unit.spark.test_kept_records import (
    answer,
    batch,
    keeper as keeper,  # A fixture.
    parts_of,
    read,
)


def test_batch_that_is_over_is_fetched(keeper: Keeper) -> None:
    keeper.keep(answer(batch(0, 3), acquired=[(0, 3)]))
    keeper.publish()
    parts = parts_of(keeper, (0, 3))
    keeper.release()
    keeper.keep(answer(batch(7, 9), acquired=[(7, 9)]))
    keeper.publish()
    with pytest.raises(KafkaError):
        read(*parts)
    assert read(*parts_of(keeper, (7, 9))) == [7, 8]
