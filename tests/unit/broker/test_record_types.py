"""The types of records that the log of groups expects are those that the coordinators read."""

from __future__ import annotations

from sharegroup.broker.groups.on_demand import RECORD_TYPES
from sharegroup.core.groups.modern.records import ModernGroupRecordType
from sharegroup.core.groups.share.records import ShareGroupRecordType
from sharegroup.protocol_enums import GroupType
from sharegroup.wire.internal_topics.classic_group_records import CLASSIC_GROUP_RECORDS
from sharegroup.wire.internal_topics.modern_group_records import MODERN_GROUP_RECORDS
from sharegroup.wire.internal_topics.share_group_records import SHARE_GROUP_RECORDS


def test_every_record_of_groups_is_read_by_the_coordinator_of_its_type() -> None:
    assert {
        GroupType.SHARE: set(SHARE_GROUP_RECORDS),
        GroupType.CONSUMER: set(MODERN_GROUP_RECORDS),
        GroupType.CLASSIC: set(CLASSIC_GROUP_RECORDS),
    } == RECORD_TYPES
    assert set(SHARE_GROUP_RECORDS) == set(ShareGroupRecordType)
    assert set(MODERN_GROUP_RECORDS) == set(ModernGroupRecordType)
