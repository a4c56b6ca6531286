"""Dead letters count as the user who set the group's dead-letter topic (ADR 0037).

Eve may alter the configurations of group g, whose members reject the records of `orders`.  Time is
moved by hand.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_client_quotas.v1 import request as alter_client_quotas
from kio.schema.alter_configs.v2 import request as alter_configs
from kio.schema.alter_share_group_offsets.v0 import request as alter_offsets
from kio.schema.create_acls.v3 import request as create_acls
from kio.schema.incremental_alter_configs.v1 import request as incremental
from kio.static.primitive import f64, i8, i32, i64

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.core.security.principal import USER, Principal
from sharegroup.ids import GroupId, TopicName
from sharegroup.protocol_enums import (
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ConfigOperation,
)
from tests.integration.broker.dead_letter_scene import BROKER_KIND, GROUP_KIND, Scene, played

SECURED = {
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:ANONYMOUS",
    "num_partitions": "1",
    "errors_deadletterqueue_auto_create_topics_enable": "true",
}
DLQ = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
NONE, TOPIC_DENIED = 0, 29
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
HOST = "10.0.0.66"


def eve(scene: Scene, user: str = "eve") -> Peer:
    peer = Peer(HOST, principal=Principal(USER, user))
    peer.rights = scene.broker.running.parts.rights_of(peer)
    return peer


async def acl(
    scene: Scene,
    operation: AclOperation,
    name: str,
    permission: AclPermission = ALLOW,
    *,
    kind: AclResourceType = AclResourceType.TOPIC,
    host: str = "*",
    user: str = "eve",
) -> None:
    creation = create_acls.AclCreation(
        resource_type=i8(kind),
        resource_name=name,
        resource_pattern_type=i8(AclPatternType.LITERAL),
        principal=f"User:{user}",
        host=host,
        operation=i8(operation),
        permission_type=i8(permission),
    )
    answer = await scene.broker.ask(create_acls.CreateAclsRequest(creations=(creation,)))
    assert [int(result.error_code) for result in answer.results] == [0]


async def set_dead_letters(
    scene: Scene, peer: Peer | None, group: str = "g", *, validate_only: bool = False, **more: str
) -> tuple[int, str | None]:
    """Set the dead-letter topic of a group, and other keys; return code and text of the answer."""
    values = {"errors_deadletterqueue_topic_name": "dlq.g", **more}
    configs = tuple(
        incremental.AlterableConfig(
            name=name.replace("_", "."), config_operation=i8(ConfigOperation.SET), value=value
        )
        for name, value in values.items()
        if value
    )
    resource = incremental.AlterConfigsResource(
        resource_type=i8(GROUP_KIND), resource_name=group, configs=configs
    )
    request = incremental.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=validate_only
    )
    [answer] = (await scene.broker.ask(request, peer=peer)).responses
    return int(answer.error_code), answer.error_message


async def replace_settings(scene: Scene, peer: Peer) -> tuple[int, str | None]:
    """Set the dead-letter topic with the older request."""
    config = alter_configs.AlterableConfig(name=DLQ, value="dlq.g")
    resource = alter_configs.AlterConfigsResource(
        resource_type=i8(GROUP_KIND), resource_name="g", configs=(config,)
    )
    request = alter_configs.AlterConfigsRequest(resources=(resource,), validate_only=False)
    [answer] = (await scene.broker.ask(request, peer=peer)).responses
    return int(answer.error_code), answer.error_message


async def set_up(scene: Scene, *rights: AclOperation, **group_settings: str) -> None:
    """Group g on `orders`; eve has these rights on `dlq.g`, which does not exist, and sets it."""
    await scene.set_up(
        auto_create=False,
        errors_deadletterqueue_topic_name="",
        errors_deadletterqueue_copy_record_enable="true",
        **group_settings,
    )
    await acl(scene, AclOperation.ALTER_CONFIGS, "g", kind=AclResourceType.GROUP)
    await acl(scene, AclOperation.READ, "orders")
    for operation in rights:
        await acl(scene, operation, "dlq.g")


async def set_by_eve(scene: Scene, **group_settings: str) -> None:
    """The same with all rights that are needed, and the topic set by eve."""
    await set_up(scene, AclOperation.WRITE, AclOperation.CREATE, **group_settings)
    assert await set_dead_letters(scene, eve(scene)) == (NONE, None)


async def reject_one(scene: Scene) -> None:
    offset = await scene.produce((b"k", b"v", [("h", b"x")]))
    assert await scene.take() == [(offset, 1)]
    await scene.reject(offset)
    await scene.settles_up_to(offset + 1)


def exists(scene: Scene, topic: str) -> bool:
    return scene.broker.running.parts.topics.catalog.find(TopicName(topic)) is not None


def secured(scenario: Callable[[Scene], Awaitable[None]], path: Path, **settings: str) -> None:
    played(scenario, path, **(SECURED | settings))


Set = Callable[[Scene, Peer], Awaitable[tuple[int, str | None]]]


async def only_validate(scene: Scene, peer: Peer) -> tuple[int, str | None]:
    return await set_dead_letters(scene, peer, validate_only=True)


@pytest.mark.parametrize("attempt", [set_dead_letters, replace_settings, only_validate])
def test_topic_that_a_user_may_not_write_cannot_be_set(tmp_path: Path, attempt: Set) -> None:
    async def scenario(scene: Scene) -> None:
        await set_up(scene)
        code, text = await attempt(scene, eve(scene))
        assert code == TOPIC_DENIED
        assert text is not None
        assert "no ACL allows WRITE on TOPIC 'dlq.g'" in text
        await reject_one(scene)
        assert not exists(scene, "dlq.g")

    secured(scenario, tmp_path)


def test_topic_that_a_user_may_not_create_cannot_be_set(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await set_up(scene, AclOperation.WRITE)
        code, text = await set_dead_letters(scene, eve(scene))
        assert (code, "no ACL allows CREATE on TOPIC 'dlq.g'" in (text or "")) == (
            TOPIC_DENIED,
            True,
        )
        await scene.make_queue()
        assert await set_dead_letters(scene, eve(scene)) == (NONE, None)

    secured(scenario, tmp_path)


def test_right_to_create_is_not_needed_if_the_broker_creates_nothing(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await set_up(scene, AclOperation.WRITE)
        await scene.alter(BROKER_KIND, "", errors_deadletterqueue_auto_create_topics_enable="false")
        assert await set_dead_letters(scene, eve(scene)) == (NONE, None)

    secured(scenario, tmp_path)


def test_letters_are_written_with_the_rights_of_the_user_who_set_the_topic(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await set_by_eve(scene)
        await reject_one(scene)
        [letter] = scene.letters()
        assert (letter.key, letter.value, letter.headers[0]) == (b"k", b"v", ("h", b"x"))

    secured(scenario, tmp_path)


REVOKED = (
    (AclOperation.WRITE, "*"),
    (AclOperation.ALL, "*"),
    (AclOperation.WRITE, HOST),
    (AclOperation.CREATE, "*"),
)


@pytest.mark.parametrize(("operation", "host"), REVOKED)
@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
def test_right_that_was_taken_away_archives_records_without_letters_and_says_so(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    operation: AclOperation,
    host: str,
    restarts: bool,
) -> None:
    async def scenario(scene: Scene) -> None:
        await set_by_eve(scene)
        await acl(scene, operation, "dlq.g", DENY, host=host)
        if restarts:
            await scene.broker.stop()
            scene.broker = (await Scene.start(None, str(tmp_path), **SECURED)).broker
            await scene.join()
        with caplog.at_level(logging.WARNING):
            await reject_one(scene)
        assert not exists(scene, "dlq.g")
        counts = scene.counts()
        assert (counts.refused_count, counts.given_up_count, counts.record_count) == (1, 0, 0)
        [line] = [text for text in caplog.messages if "dead_letters_refused" in text]
        for part in ("group='g'", "'User:eve'", HOST, "records=1", "archived without dead letters"):
            assert part in line

    secured(scenario, tmp_path)


def test_last_lock_that_expires_has_the_rights_of_that_user_too(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await set_by_eve(
            scene, share_delivery_count_limit="2", share_record_lock_duration_ms="15000"
        )
        await acl(scene, AclOperation.WRITE, "dlq.g", DENY)
        await scene.produce_values(1)
        for delivery in (1, 2):
            assert await scene.take() == [(0, delivery)]
            scene.broker.clock.advance(15)
        await scene.settles_up_to(1)
        assert (scene.counts().refused_count, exists(scene, "dlq.g")) == (1, False)

    secured(scenario, tmp_path)


def test_many_refused_records_are_few_log_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        await set_by_eve(scene)
        await acl(scene, AclOperation.WRITE, "dlq.g", DENY)
        with caplog.at_level(logging.WARNING):
            for _ in range(40):
                await reject_one(scene)
        assert scene.counts().refused_count == 40
        assert sum("dead_letters_refused" in text for text in caplog.messages) == 10

    secured(scenario, tmp_path)


def test_record_of_a_topic_that_the_user_may_not_read_is_not_copied(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await set_by_eve(scene)
        await acl(scene, AclOperation.READ, "orders", DENY)
        await reject_one(scene)
        [letter] = scene.letters()
        headers = dict(letter.headers)
        assert (letter.key, letter.value, headers.get("h")) == (None, None, None)
        assert b"may not read the topic" in (headers["sharegroup.dlq.not.copied"] or b"")
        assert headers["__dlq.errors.offset"] == b"0"
        assert scene.counts().not_copied_count == 1

    secured(scenario, tmp_path)


def test_another_setting_does_not_change_the_user_and_the_same_topic_does(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        def author() -> Any:
            catalog = scene.broker.running.parts.topics.catalog
            found = catalog.dead_letter_author(GroupId("g"))
            return None if found is None else (str(found.principal), found.host)

        await set_by_eve(scene)
        assert author() == ("User:eve", HOST)
        await scene.alter(GROUP_KIND, "g", errors_deadletterqueue_copy_record_enable="false")
        assert author() == ("User:eve", HOST)
        assert await set_dead_letters(scene, None) == (NONE, None)
        assert author() == ("User:ANONYMOUS", "127.0.0.1")
        await acl(scene, AclOperation.WRITE, "dlq.g", DENY)
        assert (await set_dead_letters(scene, eve(scene)))[0] == TOPIC_DENIED
        assert author() == ("User:ANONYMOUS", "127.0.0.1")
        await scene.alter(GROUP_KIND, "g", errors_deadletterqueue_topic_name="")
        assert author() is None

    secured(scenario, tmp_path)


def test_topic_without_a_user_counts_as_the_broker_and_a_start_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The setting was made without an authorizer, as in a data directory of an earlier version."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.broker.stop()
        with caplog.at_level(logging.WARNING):
            scene.broker = (await Scene.start(None, str(tmp_path), **SECURED)).broker
        [line] = [text for text in caplog.messages if "dead_letter_topics_without_user" in text]
        assert "groups=1 first='g'" in line
        await scene.join()
        await reject_one(scene)
        assert scene.origins() == [0]

    played(scenario, tmp_path)


async def limit_eve(scene: Scene, key: str, value: float) -> None:
    entity = alter_client_quotas.EntityData(entity_type="user", entity_name="eve")
    operation = alter_client_quotas.OpData(key=key, value=f64(float(value)), remove=False)
    entry = alter_client_quotas.EntryData(entity=(entity,), ops=(operation,))
    request = alter_client_quotas.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    [result] = (await scene.broker.ask(request)).entries
    assert int(result.error_code) == 0


def written_bytes(scene: Scene) -> int:
    topics = scene.broker.running.parts.topics
    _, log = topics.named(TopicName("dlq.g"), 0)
    return log.size


def test_letters_wait_for_the_produce_quota_of_their_user_and_all_come(tmp_path: Path) -> None:
    """Thirty letters of 50 KB at 10 KB/s: a first batch passes, the others take their time."""

    async def scenario(scene: Scene) -> None:
        await set_by_eve(scene)
        await limit_eve(scene, "producer_byte_rate", 10_000)
        for _ in range(30):  # One batch each, and a letter of 50 KB.
            await scene.produce((None, bytes(50_000), ()))
        for _ in range(2):  # A fetch returns about a megabyte.
            await scene.reject(*(offset for offset, _ in await scene.take()))
        for second in range(1, 200):
            if len(scene.origins()) == 30:
                break
            # A window of ten seconds may be used at once, and one batch of up to 1 MiB more.
            assert written_bytes(scene) <= 10_000 * (second + 11) + (1 << 20)
            await scene.seconds(1)
        assert scene.origins() == list(range(30))
        assert second > 60
        assert scene.counts().throttled_count >= 1
        assert (scene.counts().refused_count, scene.dead_letters.stalled_count) == (0, 0)

    secured(scenario, tmp_path)


def test_offsets_that_are_reset_again_and_again_write_no_more_than_the_quota(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await set_by_eve(scene)
        await limit_eve(scene, "producer_byte_rate", 10_000)
        await scene.produce((None, bytes(200_000), ()))
        resets = 30
        for _ in range(resets):
            if taken := await scene.take():
                await scene.reject(*(offset for offset, _ in taken))
            await scene.seconds(1)
            scene.member.member_epoch = -1
            await scene.member.heartbeat(scene.broker)
            await reset_offsets(scene)
            await scene.join()
        # Without the quota 30 letters of 200 KB would be 6 MB.
        assert written_bytes(scene) <= 10_000 * (resets + 11) + 200_000

    secured(scenario, tmp_path)


async def reset_offsets(scene: Scene) -> None:
    partition = alter_offsets.AlterShareGroupOffsetsRequestPartition(
        partition_index=i32(0), start_offset=i64(0)
    )
    topic = alter_offsets.AlterShareGroupOffsetsRequestTopic(
        topic_name="orders", partitions=(partition,)
    )
    request = alter_offsets.AlterShareGroupOffsetsRequest(group_id="g", topics=(topic,))
    answer = await scene.broker.ask(request)
    assert int(answer.error_code) == 0, answer.error_message


def test_topics_that_are_created_for_letters_count_as_partitions_of_their_user(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await set_by_eve(scene)
        held = scene.broker.running.parts.topics.catalog.partitions
        assert held.held_by(Principal(USER, "eve")) == 0
        await reject_one(scene)
        assert held.held_by(Principal(USER, "eve")) == 1

    secured(scenario, tmp_path)


def test_quota_of_topics_delays_a_topic_that_is_created_for_letters(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await set_by_eve(scene)
        await limit_eve(scene, "controller_mutation_rate", 0.1)
        authors = scene.dead_letters.authors
        assert authors is not None
        author = authors.of(GroupId("g"))
        assert author is not None
        author.creates(5)  # Eve's quota is used up for half a minute.
        offset = await scene.produce((None, b"v", ()))
        await scene.take()
        await scene.reject(offset)
        await scene.seconds(3)
        assert not exists(scene, "dlq.g")
        assert scene.dead_letters.stalled_count == 1
        for _ in range(120):
            if scene.letters():
                break
            await scene.seconds(1)
        assert scene.origins() == [0]

    secured(scenario, tmp_path)
