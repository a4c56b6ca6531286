"""Producers with a transactional id (docs/spec.md, «producer»)."""

from __future__ import annotations

from uuid import uuid4

import pytest
from kio.schema.describe_producers.v0 import request as describe_producers
from kio.schema.list_transactions.v1 import request as list_transactions
from kio.schema.offset_commit.v9 import request as offset_commit
from kio.schema.write_txn_markers.v1 import request as write_txn_markers

from tests.spec.messages import Topic
from tests.spec.scene import Scene
from tests.spec.transactional_producer import (
    CONCURRENT_TRANSACTIONS,
    TransactionalProducer,
    committed,
)
from tests.spec.waiting import wait_for

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
GROUP_ID_NOT_FOUND = 69
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
OPERATION_NOT_ATTEMPTED = 55
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
UNKNOWN_TOPIC_ID = 100
TRANSACTIONAL_ID_NOT_FOUND = 105
TRANSACTION_ABORTABLE = 120
PARTITIONS_MAX = 2_000


def begun(scene: Scene, size: int = 2) -> tuple[Topic, TransactionalProducer]:
    """A topic and a producer that has written to it in a transaction."""
    topic, producer = scene.topic(), TransactionalProducer(scene)
    producer.init()
    producer.write(topic, size)
    return topic, producer


def stable_end(scene: Scene, topic: Topic) -> int:
    return scene.offset(topic, committed=True)


def test_producer_1_new_id_has_epoch_0(scene: Scene) -> None:
    assert TransactionalProducer(scene).init()[1] == 0


def test_producer_2_next_producer_has_the_next_epoch(scene: Scene) -> None:
    first = TransactionalProducer(scene)
    producer_id, _ = first.init()
    assert TransactionalProducer(scene, first.transactional_id).init() == (producer_id, 1)


def test_producer_3_earlier_producer_is_fenced(scene: Scene) -> None:
    topic, old = begun(scene)
    TransactionalProducer(scene, old.transactional_id).init()
    assert int(old.produce(topic).error_code) == INVALID_PRODUCER_EPOCH
    assert int(old.end(commit=True, identity=old.identity).error_code) == PRODUCER_FENCED


def test_producer_4_new_producer_aborts_an_open_transaction(scene: Scene) -> None:
    topic, old = begun(scene)
    new = TransactionalProducer(scene, old.transactional_id)
    first = new.init_once()
    if scene.kind == "kafka":
        assert int(first.error_code) == CONCURRENT_TRANSACTIONS
    else:
        assert int(first.error_code) == NONE
        assert stable_end(scene, topic) == scene.offset(topic), (
            "it is aborted when this is answered"
        )
    new.init()
    wait_for(lambda: stable_end(scene, topic) == 3, "the marker")


def test_producer_5_open_transaction_holds_up_readers_of_committed_records(scene: Scene) -> None:
    topic, producer = begun(scene)
    assert (scene.offset(topic), stable_end(scene, topic)) == (2, 0)
    producer.finish(commit=True)
    assert stable_end(scene, topic) == 3


def test_producer_6_transaction_of_several_partitions_ends_in_all(scene: Scene) -> None:
    topic, producer = scene.topic(3), TransactionalProducer(scene)
    producer.init()
    for partition in range(3):
        producer.write(topic, partition=partition)
    producer.finish(commit=True)
    ends = [scene.offset(topic, partition=index, committed=True) for index in range(3)]
    assert ends == [2, 2, 2]


def test_producer_7_end_gives_the_next_epoch(scene: Scene) -> None:
    _, producer = begun(scene)
    producer_id, epoch = producer.identity
    answer = producer.end(commit=True)
    assert (int(answer.error_code), answer.producer_id, answer.producer_epoch) == (
        NONE,
        producer_id,
        epoch + 1,
    )


def test_producer_8_repeated_end_has_the_same_answer(scene: Scene) -> None:
    _, producer = begun(scene)
    before = producer.identity
    producer.finish(commit=True)
    again = producer.end(commit=True, identity=before)
    assert (int(again.error_code), again.producer_epoch) == (NONE, producer.identity[1])
    assert int(producer.end(commit=False, identity=before).error_code) == INVALID_TXN_STATE


def test_producer_9_commit_without_a_transaction(scene: Scene) -> None:
    producer = TransactionalProducer(scene)
    producer.init()
    assert int(producer.end(commit=True).error_code) == INVALID_TXN_STATE


def test_producer_10_abort_without_a_transaction_gives_the_next_epoch(scene: Scene) -> None:
    producer = TransactionalProducer(scene)
    _, epoch = producer.init()
    answer = producer.end(commit=False)
    assert (int(answer.error_code), answer.producer_epoch) == (NONE, epoch + 1)


def test_producer_11_old_protocol_keeps_the_epoch(scene: Scene) -> None:
    topic, producer = scene.topic(), TransactionalProducer(scene)
    producer.init()
    for number in range(2):
        assert producer.add(topic, 0) == [NONE]
        assert int(producer.produce(topic, version=11).error_code) == NONE
        assert producer.old_end(commit=True) == NONE, number
        producer.wait_until_complete()
    assert stable_end(scene, topic) == 4


def test_producer_12_old_protocol_needs_the_partition_first(scene: Scene) -> None:
    topic, producer = scene.topic(), TransactionalProducer(scene)
    producer.init()
    assert int(producer.produce(topic, version=11).error_code) == TRANSACTION_ABORTABLE
    assert int(producer.produce(topic, version=10).error_code) == INVALID_TXN_STATE


def test_producer_13_partitions_are_added_together_or_not_at_all(scene: Scene) -> None:
    topic, producer = scene.topic(), TransactionalProducer(scene)
    producer.init()
    assert producer.add(topic, 0, 7) == [OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.state() == "Empty"


def test_producer_14_offsets_count_when_the_transaction_is_committed(scene: Scene) -> None:
    topic, producer = begun(scene)
    group = scene.new_name("group")
    for commit, before, after in ((False, -1, -1), (True, -1, 1)):
        assert producer.commit_offset(group, topic, 1) == NONE
        assert committed(scene, group, topic, stable=True)[0] == UNSTABLE_OFFSET_COMMIT
        assert committed(scene, group, topic, stable=False) == (NONE, before)
        producer.finish(commit=commit)
        assert committed(scene, group, topic, stable=True) == (NONE, after)


def test_producer_15_offset_that_was_written_last_is_valid(scene: Scene) -> None:
    topic, producer = begun(scene)
    group = scene.new_name("group")
    assert producer.commit_offset(group, topic, 1) == NONE
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=2, committed_metadata=None
    )
    plain = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(offset_commit.OffsetCommitRequestTopic(name=topic.name, partitions=(partition,)),),
    )
    assert int(scene.ask(plain).topics[0].partitions[0].error_code) == NONE
    producer.finish(commit=True)
    assert committed(scene, group, topic, stable=True) == (NONE, 2)


def test_producer_16_transaction_is_aborted_when_its_time_is_over(scene: Scene) -> None:
    topic, producer = scene.topic(), TransactionalProducer(scene)
    producer.init(timeout_ms=300)
    producer.write(topic)
    wait_for(lambda: stable_end(scene, topic) == 2, "the time-out")
    wait_for(lambda: producer.state() == "CompleteAbort", "the end of the transaction")
    answer = producer.end(commit=True, identity=producer.identity)
    assert int(answer.error_code) == INVALID_TXN_STATE
    assert int(producer.produce(topic).error_code) == INVALID_PRODUCER_EPOCH


def test_producer_17_time_out_has_a_maximum(scene: Scene) -> None:
    producer = TransactionalProducer(scene)
    producer.init()
    for timeout_ms in (0, 3_600_000):
        answer = producer.init_once(timeout_ms=timeout_ms)
        assert int(answer.error_code) == INVALID_TRANSACTION_TIMEOUT


def test_producer_18_description_has_state_and_partitions(scene: Scene) -> None:
    topic, producer = begun(scene)
    found = producer.described()
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == (
        "Ongoing",
        *producer.identity,
    )
    assert [(entry.topic, entry.partitions) for entry in found.topics] == [(topic.name, (0,))]
    producer.finish(commit=False)
    assert (producer.state(), producer.described().topics) == ("CompleteAbort", ())


def test_producer_19_unknown_id_has_no_description(scene: Scene) -> None:
    producer = TransactionalProducer(scene)
    producer.init()
    unknown = TransactionalProducer(scene)
    wait_for(
        lambda: int(unknown.described().error_code) == TRANSACTIONAL_ID_NOT_FOUND, "the answer"
    )


def test_producer_20_list_can_be_filtered(scene: Scene) -> None:
    _, producer = begun(scene)

    def listed(**filters: object) -> list[str]:
        values = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, **filters}
        answer = scene.ask(list_transactions.ListTransactionsRequest(**values))
        return [str(entry.transactional_id) for entry in answer.transaction_states]

    mine, producer_id = producer.transactional_id, producer.identity[0]
    assert mine in listed(state_filters=("Ongoing",))
    assert mine not in listed(state_filters=("Empty", "CompleteCommit"))
    assert listed(producer_id_filters=(producer_id,)) == [mine]
    assert mine in listed(duration_filter=0)
    assert mine not in listed(duration_filter=3_600_000)


def test_producer_21_partition_tells_its_producers(scene: Scene) -> None:
    topic, producer = begun(scene)
    wanted = describe_producers.TopicRequest(name=topic.name, partition_indexes=(0,))
    request = describe_producers.DescribeProducersRequest(topics=(wanted,))
    [found] = scene.ask(request).topics[0].partitions[0].active_producers
    assert (found.producer_id, found.producer_epoch) == producer.identity
    assert (found.last_sequence, found.current_txn_start_offset) == (1, 0)
    producer.finish(commit=True)
    [found] = scene.ask(request).topics[0].partitions[0].active_producers
    assert found.current_txn_start_offset == -1


def test_producer_22_marker_of_an_administrator_ends_a_transaction(scene: Scene) -> None:
    topic, producer = begun(scene)
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=producer.identity[0],
        producer_epoch=producer.identity[1],
        transaction_result=False,
        topics=(write_txn_markers.WritableTxnMarkerTopic(name=topic.name, partition_indexes=(0,)),),
        coordinator_epoch=0,
    )
    answer = scene.ask(write_txn_markers.WriteTxnMarkersRequest(markers=(marker,)))
    assert int(answer.markers[0].topics[0].partitions[0].error_code) == NONE
    wait_for(lambda: stable_end(scene, topic) == 3, "the marker")


def test_producer_23_transaction_begins_with_sequence_0(scene: Scene) -> None:
    topic, producer = scene.topic(), TransactionalProducer(scene)
    producer.init()
    answer = producer.produce(topic, sequence=5)
    assert int(answer.error_code) == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_24_continues_with_its_identity(scene: Scene) -> None:
    producer = TransactionalProducer(scene)
    first = producer.init()
    second = producer.init(first)
    assert second == (first[0], first[1] + 1)
    assert producer.init(first) == second, "a repeated request"
    TransactionalProducer(scene, producer.transactional_id).init()
    assert int(producer.init_once(second).error_code) == PRODUCER_FENCED


def test_producer_25_open_transaction_survives_a_restart(scene: Scene) -> None:
    topic, producer = begun(scene)
    scene.peer.restart()
    with Scene(scene.peer, "producer-after-restart") as later:
        producer.scene = later
        wait_for(lambda: producer.state() == "Ongoing", "the coordinator")
        producer.finish(commit=True)
        wait_for(lambda: stable_end(later, topic) == 3, "the marker")


@pytest.mark.ours_only("Kafka has no such limit, and 2,000 partitions slow down its restart")
def test_producer_26_partitions_of_a_transaction_have_a_limit(scene: Scene) -> None:
    topic, producer = scene.topic(PARTITIONS_MAX + 1), TransactionalProducer(scene)
    producer.init()
    assert set(producer.add(topic, *range(PARTITIONS_MAX))) == {NONE}
    assert producer.add(topic, PARTITIONS_MAX) == [POLICY_VIOLATION]


def test_producer_27_batch_needs_the_transactional_id(scene: Scene) -> None:
    topic, producer = scene.topic(), TransactionalProducer(scene)
    producer.init()
    answer = producer.produce(topic, transactional_id=None)
    assert int(answer.error_code) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_producer_28_unknown_producer_id(scene: Scene) -> None:
    topic, producer = scene.topic(), TransactionalProducer(scene)
    producer.init()
    producer.identity = (producer.identity[0] + 77_777, 0)
    assert int(producer.produce(topic).error_code) == INVALID_PRODUCER_ID_MAPPING
    assert int(producer.end(commit=True).error_code) == INVALID_PRODUCER_ID_MAPPING


def test_producer_29_empty_transactional_id(scene: Scene) -> None:
    warm = TransactionalProducer(scene)
    warm.init()
    producer = TransactionalProducer(scene, warm.transactional_id)
    producer.transactional_id = ""
    assert int(producer.init_once().error_code) == INVALID_REQUEST


def test_producer_30_offsets_of_topics_by_id(scene: Scene) -> None:
    topic, producer = begun(scene)
    group = scene.new_name("group")
    assert producer.commit_offset_by_id(group, topic.id) == NONE
    assert producer.commit_offset_by_id(group, uuid4()) == UNKNOWN_TOPIC_ID
    producer.finish(commit=True)
    assert committed(scene, group, topic, stable=True) == (NONE, 1)


def test_producer_31_generation_of_a_group_that_does_not_exist(scene: Scene) -> None:
    topic, producer = begun(scene)
    group = scene.new_name("group")
    assert producer.commit_offset_by_id(group, topic.id, generation=3) == GROUP_ID_NOT_FOUND
