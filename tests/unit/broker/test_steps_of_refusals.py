"""Entries that are refused end a step as often as those that are served."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kio.schema.offset_fetch.v9.request import OffsetFetchRequest

from sharegroup.broker.access.group_descriptions import FEW, described_groups
from sharegroup.broker.handlers.groups.offset_fetch import TopicOffsets, _topic
from sharegroup.protocol_enums import AclOperation, AclResourceType
from sharegroup.steps import STEP_ELEMENTS
from tests.unit.broker.test_gates import OneRight


def test_groups_that_may_not_be_described_end_steps() -> None:
    rights = OneRight(AclOperation.DESCRIBE, AclResourceType.GROUP, "other")
    steps = described_groups(
        rights,
        SimpleNamespace(group_ids=[f"g-{number}" for number in range(10 * FEW)]),
        describe=lambda *_: pytest.fail("no group may be described"),
        failed=lambda group_id, _: SimpleNamespace(group_id=group_id, members=()),
        assignments_of=lambda _: (),
    )
    assert len(list(steps)) == 10


@pytest.mark.parametrize("is_unstable", [True, False])
def test_offsets_of_open_transactions_end_steps(is_unstable: bool) -> None:
    row = TopicOffsets(
        "orders",
        [(number, None) for number in range(10 * STEP_ELEMENTS)],
        is_unstable=lambda _: is_unstable,
    )
    assert len(list(_topic(OffsetFetchRequest(groups=(), require_stable=True), row))) == 10
