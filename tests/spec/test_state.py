"""The share coordinator's requests between brokers, 83 to 87 (docs/spec.md, «state»).

Kafka serves them on every listener; ours where ``sharegroup.share.state.apis.enable`` is set.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID, uuid4

from kio.schema.delete_share_group_state.v0 import request as delete_state
from kio.schema.find_coordinator.v6 import request as find_coordinator
from kio.schema.initialize_share_group_state.v0 import request as initialize_state
from kio.schema.read_share_group_state.v0 import request as read_state
from kio.schema.read_share_group_state_summary.v0 import request as read_summary_v0
from kio.schema.read_share_group_state_summary.v1 import request as read_summary
from kio.schema.write_share_group_state.v0 import request as write_state_v0
from kio.schema.write_share_group_state.v1 import request as write_state

from sharegroup.ids import TopicId, topic_id_text
from tests.spec.member import Member
from tests.spec.messages import ACCEPT, RELEASE, Topic
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for

NOT_LEADER = 6
INVALID, UNKNOWN_PARTITION, FENCED_LEADER, FENCED_STATE = 42, 3, 74, 124
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4

Batch = tuple[int, int, int, int]
"""First offset, last offset, state, delivery count."""


class Summary(NamedTuple):
    error: int
    state_epoch: int
    leader_epoch: int
    start: int
    complete: int


class State:
    """The state of one share partition, asked and told over the wire."""

    def __init__(self, scene: Scene, topic: Topic | None = None) -> None:
        self.scene = scene
        self.group = scene.new_name("group")
        self.topic_id: UUID = (topic or scene.topic()).id
        self.partition = 0
        wait_for(lambda: self.summary().error == 0, "the coordinator to know the topic")

    def initialize(self, state_epoch: int, start: int) -> int:
        partition = initialize_state.PartitionData(
            partition=self.partition, state_epoch=state_epoch, start_offset=start
        )
        data = initialize_state.InitializeStateData(topic_id=self.topic_id, partitions=(partition,))
        return int(self._one(initialize_state.InitializeShareGroupStateRequest, data).error_code)

    def read(self, leader_epoch: int = 0) -> tuple[int, int, int, list[Batch]]:
        """Error, state epoch, start offset, batches."""
        partition = read_state.PartitionData(partition=self.partition, leader_epoch=leader_epoch)
        data = read_state.ReadStateData(topic_id=self.topic_id, partitions=(partition,))
        answer = self._one(read_state.ReadShareGroupStateRequest, data)
        batches = [
            (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in answer.state_batches
        ]
        return int(answer.error_code), answer.state_epoch, answer.start_offset, batches

    def write(
        self,
        *batches: Batch,
        start: int = 0,
        complete: int = 0,
        state_epoch: int = 1,
        leader_epoch: int = 0,
    ) -> int:
        partition = write_state.PartitionData(
            partition=self.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=complete,
            state_batches=tuple(
                write_state.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in batches
            ),
        )
        data = write_state.WriteStateData(topic_id=self.topic_id, partitions=(partition,))
        return int(self._one(write_state.WriteShareGroupStateRequest, data).error_code)

    def delete(self) -> int:
        partition = delete_state.PartitionData(partition=self.partition)
        data = delete_state.DeleteStateData(topic_id=self.topic_id, partitions=(partition,))
        return int(self._one(delete_state.DeleteShareGroupStateRequest, data).error_code)

    def summary(self, leader_epoch: int = 0) -> Summary:
        partition = read_summary.PartitionData(partition=self.partition, leader_epoch=leader_epoch)
        data = read_summary.ReadStateSummaryData(topic_id=self.topic_id, partitions=(partition,))
        answer = self._one(read_summary.ReadShareGroupStateSummaryRequest, data)
        return Summary(
            int(answer.error_code),
            answer.state_epoch,
            answer.leader_epoch,
            answer.start_offset,
            answer.delivery_complete_count,
        )

    def _one(self, request: Any, data: Any) -> Any:
        answer = self.scene.ask(request(group_id=self.group, topics=(data,)))
        [topic] = answer.results
        [partition] = topic.partitions
        assert (topic.topic_id, partition.partition) == (self.topic_id, self.partition)
        return partition


def initialized(scene: Scene, start: int = 0) -> State:
    state = State(scene)
    assert state.initialize(1, start) == 0
    return state


def test_state_1_missing_state_has_an_empty_summary(scene: Scene) -> None:
    assert State(scene).summary() == Summary(0, 0, 0, -1, -1)


def test_state_2_missing_state_cannot_be_read_or_written(scene: Scene) -> None:
    state = State(scene)
    assert state.read()[0] == INVALID
    assert state.write((0, 4, ACKNOWLEDGED, 1)) == INVALID


def test_state_3_is_initialised_with_an_epoch_and_a_start(scene: Scene) -> None:
    state = State(scene)
    assert state.initialize(7, 100) == 0
    assert state.read() == (0, 7, 100, [])
    assert state.summary() == Summary(0, 7, 0, 100, 0)


def test_state_4_may_leave_its_start_undecided(scene: Scene) -> None:
    state = State(scene)
    assert state.initialize(2, -1) == 0
    assert state.read() == (0, 2, -1, [])
    assert state.summary() == Summary(0, 2, 0, -1, -1)


def test_state_5_written_state_is_read_back(scene: Scene) -> None:
    state = initialized(scene)
    batches = [(3, 4, AVAILABLE, 2), (5, 9, ACKNOWLEDGED, 1), (12, 12, ARCHIVED, 5)]
    assert state.write(*batches, start=3, complete=6) == 0
    assert state.read() == (0, 1, 3, batches)
    assert state.summary() == Summary(0, 1, 0, 3, 6)


def test_state_6_lower_leader_epoch_than_was_seen_is_fenced(scene: Scene) -> None:
    state = initialized(scene)
    assert state.read(leader_epoch=5)[0] == 0
    assert state.write((0, 0, ACKNOWLEDGED, 1), leader_epoch=4) == FENCED_LEADER
    assert state.read(leader_epoch=4)[0] == FENCED_LEADER
    assert state.write((0, 0, ACKNOWLEDGED, 1), leader_epoch=5) == 0


def test_state_7_leader_that_reads_is_remembered(scene: Scene) -> None:
    state = initialized(scene)
    assert state.read(leader_epoch=5)[0] == 0
    assert state.summary().leader_epoch == 5
    assert state.write((0, 0, ACKNOWLEDGED, 1), leader_epoch=9) == 0
    assert state.summary().leader_epoch == 5


def test_state_8_lower_state_epoch_than_was_seen_is_fenced(scene: Scene) -> None:
    state = State(scene)
    assert state.initialize(5, 0) == 0
    assert state.write((0, 0, ACKNOWLEDGED, 1), state_epoch=4) == FENCED_STATE
    assert state.initialize(4, 0) == FENCED_STATE
    assert state.write((0, 0, ACKNOWLEDGED, 1), state_epoch=5) == 0


def test_state_9_start_offset_never_decreases(scene: Scene) -> None:
    state = initialized(scene)
    assert state.write(start=10, complete=0) == 0
    assert state.write((3, 4, ACKNOWLEDGED, 1), start=3, complete=2) == 0
    assert state.read() == (0, 1, 10, [])
    assert state.summary()[3:] == (10, 0)


def test_state_10_complete_count_never_decreases_at_one_start_offset(scene: Scene) -> None:
    state = initialized(scene)
    assert state.write(start=10, complete=5) == 0
    assert state.write(start=10, complete=3) == 0
    assert state.summary()[3:] == (10, 5)
    assert state.write(start=12, complete=3) == 0
    assert state.summary()[3:] == (12, 3)


def test_state_11_higher_count_then_higher_state_wins(scene: Scene) -> None:
    """In whatever order two statements about one offset come."""
    state = initialized(scene)
    assert state.write((0, 9, ACKNOWLEDGED, 1)) == 0
    assert state.write((0, 4, AVAILABLE, 1)) == 0
    assert state.write((5, 6, AVAILABLE, 2)) == 0
    expected = [(0, 4, ACKNOWLEDGED, 1), (5, 6, AVAILABLE, 2), (7, 9, ACKNOWLEDGED, 1)]
    assert state.read()[3] == expected


def test_state_12_neighbours_of_one_state_are_joined(scene: Scene) -> None:
    state = initialized(scene)
    for first, last in ((0, 1), (4, 5), (2, 3)):
        assert state.write((first, last, ACKNOWLEDGED, 1)) == 0
    assert state.read()[3] == [(0, 5, ACKNOWLEDGED, 1)]


def test_state_13_below_the_start_is_cut(scene: Scene) -> None:
    state = initialized(scene)
    assert state.write((0, 9, ACKNOWLEDGED, 1), (10, 19, AVAILABLE, 1)) == 0
    assert state.write(start=5) == 0
    assert state.write((20, 20, ARCHIVED, 1), start=15) == 0
    assert state.read()[2:] == (15, [(15, 19, AVAILABLE, 1), (20, 20, ARCHIVED, 1)])


def test_state_14_holds_over_snapshots(scene: Scene) -> None:
    """Twelve writes, one in five of which is a snapshot."""
    state = initialized(scene)
    for offset in range(0, 24, 2):
        assert state.write((offset, offset, ACKNOWLEDGED, 1)) == 0
    assert state.read()[3] == [(offset, offset, ACKNOWLEDGED, 1) for offset in range(0, 24, 2)]


def test_state_15_deleted_state_is_missing(scene: Scene) -> None:
    state = initialized(scene, start=5)
    assert state.delete() == 0
    assert state.read()[0] == INVALID
    assert state.summary() == Summary(0, 0, 0, -1, -1)
    assert state.delete() == 0, "a missing state can be deleted, too"


def test_state_16_state_of_a_missing_partition_is_an_error(scene: Scene) -> None:
    gone, past = State(scene), State(scene)
    gone.topic_id, past.partition = uuid4(), 9
    for state in (gone, past):
        assert state.initialize(1, 0) == UNKNOWN_PARTITION
        assert state.summary().error == UNKNOWN_PARTITION
        assert state.delete() == UNKNOWN_PARTITION


def test_state_17_negative_numbers_are_invalid(scene: Scene) -> None:
    state = initialized(scene)
    assert state.initialize(-1, 0) == INVALID
    assert state.write(state_epoch=-1) == INVALID
    assert state.write(leader_epoch=-1) == INVALID
    assert state.read(leader_epoch=-1)[0] == INVALID
    state.partition = -1
    assert state.initialize(1, 0) == INVALID
    assert state.delete() == INVALID


def test_state_18_request_about_nothing_is_answered_with_nothing(scene: Scene) -> None:
    request = initialize_state.InitializeShareGroupStateRequest
    assert scene.ask(request(group_id=scene.new_name("group"), topics=())).results == ()
    partition = initialize_state.PartitionData(partition=0, state_epoch=1, start_offset=0)
    topic = initialize_state.InitializeStateData(topic_id=scene.topic().id, partitions=(partition,))
    assert scene.ask(request(group_id="", topics=(topic,))).results == ()


def test_state_19_initializing_again_replaces_the_state(scene: Scene) -> None:
    state = initialized(scene)
    assert state.write((0, 9, ACKNOWLEDGED, 1), start=0, complete=10) == 0
    assert state.initialize(2, 4) == 0
    assert state.read() == (0, 2, 4, [])
    assert state.summary()[3:] == (4, 0)


def test_state_20_equal_initialisation_is_no_error(scene: Scene) -> None:
    state = initialized(scene, start=3)
    assert state.initialize(1, 3) == 0
    assert state.read() == (0, 1, 3, [])


def test_state_21_version_0_of_write_and_summary(scene: Scene) -> None:
    """It has no delivery-complete count: the one that is kept stays."""
    state = initialized(scene)
    partition = write_state_v0.PartitionData(
        partition=0,
        state_epoch=1,
        leader_epoch=0,
        start_offset=0,
        state_batches=(
            write_state_v0.StateBatch(
                first_offset=0, last_offset=1, delivery_state=ACKNOWLEDGED, delivery_count=1
            ),
        ),
    )
    data = write_state_v0.WriteStateData(topic_id=state.topic_id, partitions=(partition,))
    request = write_state_v0.WriteShareGroupStateRequest(group_id=state.group, topics=(data,))
    assert scene.ask(request).results[0].partitions[0].error_code == 0
    wanted = read_summary_v0.PartitionData(partition=0, leader_epoch=0)
    topic = read_summary_v0.ReadStateSummaryData(topic_id=state.topic_id, partitions=(wanted,))
    summary = read_summary_v0.ReadShareGroupStateSummaryRequest(
        group_id=state.group, topics=(topic,)
    )
    assert scene.ask(summary).results[0].partitions[0].start_offset == 0
    assert state.read()[3] == [(0, 1, ACKNOWLEDGED, 1)]


def test_state_22_state_follows_the_acknowledgements_of_the_group(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 4)
    member = scene.member(scene.group(), topic)
    member.take(4)
    assert member.acknowledge([(2, 2, ACCEPT)]).outcome == 0
    state = State(scene, topic)
    state.group = member.group
    assert state.read()[2:] == (0, [(2, 2, ACKNOWLEDGED, 1)])
    assert state.summary()[3:] == (0, 1)


def test_state_23_coordinator_of_a_share_partition_is_found_by_its_key(scene: Scene) -> None:
    topic = scene.topic()
    known = f"{scene.new_name('group:with:colons')}:{topic_id_text(TopicId(topic.id))}:0"
    request = find_coordinator.FindCoordinatorRequest(
        key_type=2, coordinator_keys=(known, "no key")
    )
    found = {coordinator.key: coordinator for coordinator in scene.ask(request).coordinators}
    assert (found[known].error_code, found[known].node_id) == (0, 1)
    assert found["no key"].error_code == INVALID


def test_state_24_invalid_batches_are_refused(scene: Scene) -> None:
    """A share partition is built from the batches. Kafka keeps some and fails on others."""
    state = initialized(scene)
    descending, no_state, negative = (5, 3, 2, 1), (0, 1, 77, 1), (0, 1, 2, -1)
    outcomes = [state.write(batch) for batch in (descending, negative, no_state)]
    expected = {"ours": [INVALID, INVALID, INVALID], "kafka": [0, -1, -1]}[scene.kind]
    assert outcomes == expected


def test_state_25_identical_initialization_keeps_later_writes(scene: Scene) -> None:
    """Ours keeps them, as Kafka 4.5 will; Kafka 4.4 discards them."""
    state = initialized(scene)
    assert state.write((0, 4, ACKNOWLEDGED, 1)) == 0
    assert state.initialize(1, 0) == 0
    kept = {"ours": [(0, 4, ACKNOWLEDGED, 1)], "kafka": []}[scene.kind]
    assert state.read() == (0, 1, 0, kept)


def held(scene: Scene) -> tuple[State, Member]:
    """A member that holds the two records of a topic, and the state behind it."""
    topic = scene.topic()
    scene.produce(topic, 2)
    member = scene.member(scene.group(), topic)
    assert member.take(2) == [(0, 1, 1)]
    state = State(scene, topic)
    state.group = member.group
    return state, member


def test_state_26_external_initialization_fences_members_with_records(scene: Scene) -> None:
    """Ours drops the share partition immediately, Kafka at its next write. The next fetch uses the
    new state.
    """
    state, member = held(scene)
    assert state.initialize(9, 0) == 0
    outcome = member.acknowledge([(0, 1, ACCEPT)]).outcome
    assert outcome == {"ours": UNKNOWN_PARTITION, "kafka": NOT_LEADER}[scene.kind]
    assert state.read()[3] == []
    assert member.take(2) == [(0, 1, 1)]
    assert member.acknowledge([(0, 1, ACCEPT)]).outcome == 0


def test_state_27_later_leader_and_the_one_before(scene: Scene) -> None:
    """Ours is the only leader there is, and goes on."""
    state, member = held(scene)
    assert state.read(leader_epoch=2**31 - 1)[0] == 0
    outcome = member.acknowledge([(0, 1, ACCEPT)]).outcome
    assert outcome == {"ours": 0, "kafka": NOT_LEADER}[scene.kind]


def test_state_29_group_continues_from_an_external_write(scene: Scene) -> None:
    """Ours loads the share partition again, and former locks are void. Kafka ignores the write."""
    state, member = held(scene)
    epoch = state.read()[1]
    outcome = state.write((0, 0, ACKNOWLEDGED, 1), state_epoch=epoch, start=0, complete=1)
    assert outcome == 0
    late = member.acknowledge([(0, 1, RELEASE)]).outcome
    assert late == {"ours": UNKNOWN_PARTITION, "kafka": 0}[scene.kind]
    comes = {"ours": [(1, 1, 1)], "kafka": [(0, 1, 2)]}[scene.kind]
    assert member.take(len(comes)) == comes


def test_state_28_leader_that_was_seen_is_remembered_over_a_new_beginning(scene: Scene) -> None:
    """Though the state shows the leader epoch 0 again."""
    state = initialized(scene)
    assert state.read(leader_epoch=5)[0] == 0
    assert state.initialize(2, 0) == 0
    assert state.summary().leader_epoch == 0
    late = state.write((0, 0, ACKNOWLEDGED, 1), state_epoch=2, leader_epoch=4)
    assert late == FENCED_LEADER
    assert state.read(leader_epoch=4)[0] == FENCED_LEADER
