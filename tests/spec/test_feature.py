"""The feature share.version (docs/spec.md, «feature»)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.api_versions.v4 import request as api_versions
from kio.schema.delete_share_group_offsets.v0 import request as delete_offsets
from kio.schema.update_features.v2 import request as update_features

from tests.spec.administration import alter_offsets, list_groups
from tests.spec.scene import TIMEOUT, Scene
from tests.spec.waiting import wait_for

UNSUPPORTED_VERSION = 35
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def features(scene: Scene) -> tuple[tuple[int, int], int]:
    """What ApiVersions says of share.version: the range that is supported, and the level."""
    answer = scene.ask(
        api_versions.ApiVersionsRequest(client_software_name="spec", client_software_version="1")
    )
    supported = {
        feature.name: (feature.min_version, feature.max_version)
        for feature in answer.supported_features
    }
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return supported["share.version"], finalized.get("share.version", 0)


def update(
    scene: Scene,
    level: int,
    how: int,
    *features: str,
    validate_only: bool = False,
) -> Any:
    """The answer to setting one level of share.version, or of the features named."""
    keys = tuple(
        update_features.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=how)
        for feature in features or ("share.version",)
    )
    return scene.ask(
        update_features.UpdateFeaturesRequest(
            timeout=TIMEOUT, feature_updates=keys, validate_only=validate_only
        )
    )


def set_level(scene: Scene, level: int) -> None:
    """Whatever the level is now; returns when the broker shows it."""
    how = UPGRADE if level > features(scene)[1] else SAFE_DOWNGRADE
    answer = update(scene, level, how)
    assert answer.error_code == 0, answer
    wait_for(lambda: features(scene)[1] == level, f"share.version {level}")


@pytest.fixture
def restored(scene: Scene) -> Iterator[None]:
    """Share groups are there for the tests that follow."""
    yield
    if features(scene)[1] != 2:
        set_level(scene, 2)


def test_feature_1_level_2_is_supported_and_where_a_broker_begins(scene: Scene) -> None:
    assert features(scene) == ((0, 2), 2)


def test_feature_2_level_0_switches_share_groups_off_at_once(scene: Scene, restored: None) -> None:
    topic = scene.topic()
    member = scene.member(scene.group(), topic)
    member.open()
    set_level(scene, 0)
    wait_for(lambda: member.fetch(epoch=0).error == UNSUPPORTED_VERSION, "the switch")
    assert member.heartbeat().error_code == UNSUPPORTED_VERSION
    assert member.acknowledge([]).error == UNSUPPORTED_VERSION
    assert scene.describe(member.group).error_code == UNSUPPORTED_VERSION
    assert scene.group_offsets(member.group).error_code == UNSUPPORTED_VERSION
    assert alter_offsets(scene, member.group, topic.name, 0).error_code == UNSUPPORTED_VERSION
    wanted = delete_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=topic.name)
    request = delete_offsets.DeleteShareGroupOffsetsRequest(group_id=member.group, topics=(wanted,))
    assert scene.ask(request).error_code == UNSUPPORTED_VERSION
    assert [group.group_id for group in list_groups(scene)] == [member.group], (
        "what there is, is listed"
    )


def test_feature_3_groups_continue_when_enabled_again(scene: Scene, restored: None) -> None:
    topic = scene.topic()
    scene.produce(topic, 1)
    member = scene.member(scene.group(), topic)
    set_level(scene, 0)
    wait_for(lambda: member.heartbeat().error_code == UNSUPPORTED_VERSION, "the switch")
    set_level(scene, 2)
    wait_for(lambda: member.heartbeat(epoch=0, topics=[topic.name]).error_code == 0, "the switch")
    member.until_assigned()
    member.session_epoch = 0
    assert member.take() == [(0, 0, 1)]


def test_feature_4_validate_only_changes_nothing(scene: Scene) -> None:
    assert update(scene, 1, SAFE_DOWNGRADE, validate_only=True).error_code == 0
    assert features(scene)[1] == 2


def test_feature_5_unsupported_level_is_refused(scene: Scene) -> None:
    assert update(scene, 3, UPGRADE).error_code != 0
    assert update(scene, 1, UPGRADE).error_code != 0, "that would be a downgrade"
    assert update(scene, 1, UPGRADE, "no.such.feature").error_code != 0
    assert features(scene)[1] == 2


def test_feature_6_changes_of_one_request_are_atomic(scene: Scene) -> None:
    for names in (("share.version", "no.such.feature"), ("no.such.feature", "share.version")):
        assert update(scene, 1, SAFE_DOWNGRADE, *names).error_code != 0
    assert features(scene)[1] == 2
