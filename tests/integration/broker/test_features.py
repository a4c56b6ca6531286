"""Features: levels that an administrator sets, what they switch off, and that they are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.api_versions.v3.request import ApiVersionsRequest as ApiVersions3
from kio.schema.api_versions.v4.request import ApiVersionsRequest as ApiVersions4
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.update_features.v0 import request as v0
from kio.schema.update_features.v1 import request as v1
from kio.schema.update_features.v2 import request as v2

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.cluster.features import FIRST_LEVELS, FinalizedFeatures, Update
from sharegroup.errors import InvalidRequest, InvalidUpdateVersion, UnsupportedVersion
from sharegroup.protocol_enums import UpgradeType
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.dead_letter_scene import Scene
from tests.integration.broker.test_share_fetch import produce, records, request, waiting

UNSUPPORTED_VERSION, INVALID_UPDATE_VERSION = 35, 95
UP, SAFE, UNSAFE = UpgradeType

Scenario = Callable[[Broker], Awaitable[None]]


def run(scenario: Scenario, path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path / "data"))
        await scenario(broker)
        await broker.stop()

    asyncio.run(main())


def new_features() -> FinalizedFeatures:
    catalog = Catalog()
    catalog.replay({"event": "features", "levels": FIRST_LEVELS, "epoch": 1})
    return FinalizedFeatures(catalog)


def update(level: int, upgrade_type: int, *, validate_only: bool = False) -> Any:
    """An UpdateFeatures v2 of share.version."""
    key = v2.FeatureUpdateKey(
        feature="share.version", max_version_level=level, upgrade_type=upgrade_type
    )
    return v2.UpdateFeaturesRequest(feature_updates=(key,), validate_only=validate_only)


async def levels(broker: Broker) -> tuple[int, dict[str, int]]:
    """Epoch and finalized levels, as ApiVersions tells them."""
    answer = await broker.ask(
        ApiVersions4(client_software_name="test", client_software_version="1")
    )
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return answer.finalized_features_epoch, finalized


def test_new_data_directory_has_the_levels_of_kafka_4_4(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await levels(broker) == (
            1,
            {
                "group.version": 1,
                "metadata.version": 33,
                "share.version": 2,
                "transaction.version": 2,
            },
        )

    run(scenario, tmp_path)


def test_data_directory_without_feature_levels_has_no_dead_letters() -> None:
    features = FinalizedFeatures(Catalog())
    assert (features.share_groups, features.dead_letters) == (True, False)


def test_feature_ranges_from_level_0_are_hidden_from_older_clients(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        who = {"client_software_name": "test", "client_software_version": "1"}
        older = await broker.ask(ApiVersions3(**who))
        names = [feature.name for feature in older.supported_features]
        assert names == ["metadata.version", "sharegroup.redelivery"]
        newer = await broker.ask(ApiVersions4(**who))
        assert {
            feature.name: (feature.min_version, feature.max_version)
            for feature in newer.supported_features
        } == {
            "group.version": (0, 1),
            "metadata.version": (7, 33),
            "share.version": (0, 2),
            "sharegroup.redelivery": (1, 1),
            "transaction.version": (0, 2),
        }

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type", "problem"),
    [
        ("share.version", 3, UP, "this broker supports 0 to 2"),
        ("share.version", 1, UP, "a lower level needs"),
        ("share.version", 1, 0, "upgrade type 0 is unknown; expected 1, 2 or 3"),
        ("share.version", -1, UNSAFE, "this broker supports 0 to 2"),
        ("no.such", 1, UP, "no such feature"),
        ("metadata.version", 32, SAFE, "only one metadata format"),
        ("metadata.version", 34, UP, "supports 7 to 33"),
    ],
)
def test_update_that_cannot_be_is_refused_by_name(
    name: str, level: int, upgrade_type: int, problem: str
) -> None:
    with pytest.raises(InvalidUpdateVersion, match=f"feature '{name}' .* to {level}: .*{problem}"):
        new_features().changed((Update(name, level, upgrade_type),))


def test_an_upgrade_is_no_downgrade() -> None:
    catalog = Catalog()
    catalog.replay({"event": "features", "levels": {"share.version": 1}, "epoch": 1})
    with pytest.raises(InvalidUpdateVersion, match="a higher level is not a downgrade"):
        FinalizedFeatures(catalog).changed((Update("share.version", 2, SAFE),))


def test_one_wrong_update_refuses_all() -> None:
    features = new_features()
    with pytest.raises(InvalidUpdateVersion):
        features.changed((Update("share.version", 1, SAFE), Update("no.such", 1, UP)))
    assert features.finalized["share.version"] == 2
    with pytest.raises(InvalidRequest):
        features.changed(())


def test_only_requests_of_share_groups_are_switched_off() -> None:
    catalog = Catalog()
    catalog.replay({"event": "features", "levels": {"share.version": 0}, "epoch": 1})
    features = FinalizedFeatures(catalog)
    for api_key in (0, 1, 3, 10, 16, 18, 42, 57):
        features.check_served(api_key)
    for api_key in (76, 77, 78, 79, 90, 91, 92):
        with pytest.raises(UnsupportedVersion, match=r"share\.version is 0"):
            features.check_served(api_key)


def test_level_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path))
        assert (await broker.ask(update(1, SAFE, validate_only=True))).error_code == 0
        assert (await levels(broker))[1]["share.version"] == 2
        assert (await broker.ask(update(1, SAFE))).error_code == 0
        assert (await levels(broker)) == (
            2,
            {
                "group.version": 1,
                "metadata.version": 33,
                "share.version": 1,
                "transaction.version": 2,
            },
        )
        await broker.stop()
        broker = await Broker.start(None, str(tmp_path))
        assert (await levels(broker))[1]["share.version"] == 1
        assert not broker.running.parts.features.dead_letters
        await broker.stop()

    asyncio.run(main())


def test_level_0_ends_sessions_and_locks_until_level_1_is_set(tmp_path: Path) -> None:
    """A member holds a record; share groups are disabled and enabled; the record is available."""

    async def scenario(broker: Broker) -> None:
        await broker.create_topic("orders", 1)
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        await member.heartbeat(broker)
        await produce(broker)
        assert [record.offset for record in (await member.fetch(broker, records_max=10))[0]] == [0]
        assert (await broker.ask(update(0, SAFE))).error_code == 0
        assert "share.version" not in (await levels(broker))[1]
        assert await member.heartbeat(broker) == UNSUPPORTED_VERSION
        described = await broker.ask(
            ShareGroupDescribeRequest(group_ids=("g",), include_authorized_operations=False)
        )
        assert described.groups[0].error_code == UNSUPPORTED_VERSION
        parts = broker.running.parts
        assert (len(parts.share_sessions), list(parts.share_partitions)) == (0, [])

        assert (await broker.ask(update(1, UP))).error_code == 0
        member.session_epoch = 0
        assert await member.heartbeat(broker) == 0
        taken, _ = await member.fetch(broker, records_max=10)
        assert [(record.offset, record.delivery_count) for record in taken] == [(0, 1)]

    run(scenario, tmp_path)


def test_group_with_dead_letters_below_their_feature_level_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after an upgrade from a version without dead letters, whose directory stays at level 1."""

    async def scenario(broker: Broker) -> None:
        assert (await broker.ask(update(1, SAFE))).error_code == 0
        scene = Scene(broker)
        await scene.set_up(auto_create=False)
        await produce(broker)
        member = scene.member
        assert [record.offset for record in (await member.fetch(broker, records_max=10))[0]] == [0]

    run(scenario, tmp_path)
    (line,) = [record.getMessage() for record in caplog.records if "dead_letters_off" in record.msg]
    assert line == (
        "event=dead_letters_off group='g' topic='dlq.g' share.version=1 "
        "action='upgrade the feature share.version to 2'"
    )


def test_waiting_fetch_is_answered_empty_when_share_groups_are_disabled(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.create_topic("orders", 1)
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        await member.heartbeat(broker)
        assert await member.fetch(broker, records_max=10) == ([], {})
        task = await waiting(broker, request(member))
        assert not task.done()
        assert (await broker.ask(update(0, SAFE))).error_code == 0
        answer = await task
        assert (answer.error_code, records(answer)) == (0, [])

    run(scenario, tmp_path)


def test_older_versions_of_the_request_are_answered_for_each_feature(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        for key, version in (
            (
                v0.FeatureUpdateKey(
                    feature="share.version", max_version_level=1, allow_downgrade=True
                ),
                v0,
            ),
            (
                v1.FeatureUpdateKey(
                    feature="share.version", max_version_level=2, upgrade_type=int(UP)
                ),
                v1,
            ),
        ):
            answer = await broker.ask(version.UpdateFeaturesRequest(feature_updates=(key,)))
            assert [(result.feature, result.error_code) for result in answer.results] == [
                ("share.version", 0)
            ]
        refused = v0.FeatureUpdateKey(
            feature="share.version", max_version_level=1, allow_downgrade=False
        )
        answer = await broker.ask(v0.UpdateFeaturesRequest(feature_updates=(refused,)))
        assert (answer.error_code, answer.results) == (INVALID_UPDATE_VERSION, ())

    run(scenario, tmp_path)
