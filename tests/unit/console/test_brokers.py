"""What brokers of different versions support, as a page shows it."""

from __future__ import annotations

import pytest

from sharegroup.client.admin.types import FeatureRange
from sharegroup.console.pages.brokers import by_name, ranges

OLD, NEW = FeatureRange(0, 1), FeatureRange(0, 2)


def test_ranges_are_by_name_and_broker() -> None:
    found = by_name({2: {"share.version": NEW}, 1: {"share.version": OLD, "streams.version": OLD}})
    assert found == {"share.version": {1: OLD, 2: NEW}, "streams.version": {1: OLD}}


@pytest.mark.parametrize(
    ("by_broker", "texts"),
    [
        ({1: NEW, 2: NEW, 3: NEW}, ["0 to 2"]),
        ({1: FeatureRange(1, 1), 2: FeatureRange(1, 1), 3: FeatureRange(1, 1)}, ["1"]),
        ({1: OLD, 2: NEW, 3: OLD}, ["0 to 1 (broker 1, 3)", "0 to 2 (broker 2)"]),
        ({1: NEW, 3: NEW}, ["0 to 2 (broker 1, 3)"]),
        ({}, []),
    ],
)
def test_brokers_are_named_unless_all_have_the_same(
    by_broker: dict[int, FeatureRange], texts: list[str]
) -> None:
    assert ranges(by_broker, 3) == texts
