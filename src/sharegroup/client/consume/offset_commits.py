"""Commits and reads the offsets of a consumer group."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.types import GroupId as KioGroupId, TopicName as KioTopicName
from kio.static.primitive import i32

from sharegroup.client.consume.coordinator_requests import MemberIdentity, ask_group_coordinator
from sharegroup.client.consume.partition_states import PartitionState, PartitionStates
from sharegroup.client.metrics.client_metrics import ConsumerMetrics
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.leader_requests import by_topic, commit_topics
from sharegroup.client.net.refusals import answer_about, errors_of, refused
from sharegroup.client.records import (
    CommitFailedError,
    IllegalStateError,
    OffsetAndMetadata,
    TopicPartition,
)
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    NotCoordinator,
    RebalanceInProgress,
    RequestTimedOut,
    StaleMemberEpoch,
    UnknownMemberId,
)

log = logging.getLogger(__name__)


class Claim(NamedTuple):
    """What a consumer had of the group when it decided to commit."""

    generation: int
    assigned: tuple[PartitionState, ...]
    """The states of the partitions to commit, of those that were assigned."""


MOVED = (NotCoordinator, CoordinatorNotAvailable)
MEMBERSHIP_LOST = (
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMemberId,
)
"""The errors of a commit that the group refuses because the member does not own the partitions."""


class OffsetCommits:
    """The requests of one consumer about its group's offsets."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        identity: MemberIdentity,
        states: PartitionStates,
        metrics: ConsumerMetrics,
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._identity = identity
        self._states = states
        self._metrics = metrics

    def claim(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Claim:
        """Return the claim to commit these offsets; to call when they are decided."""
        states = (self._states.get(where) for where in offsets)
        return Claim(self._identity.epoch, tuple(state for state in states if state is not None))

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        claim: Claim,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets; retry while that can help and the time is not up.

        Raises CommitFailedError if the group has given the partitions to other members.
        """
        if not offsets:
            return

        async def attempt() -> None:
            self._check(claim)
            if not self._identity.may_commit:
                raise UnknownMemberId("this consumer is not a member of the group at the moment")
            await self._commit(offsets)

        try:
            await self._cluster.retrying(
                attempt, subject=f"commit of group {self._group_id!r}", timeout_ms=timeout_ms
            )
        except MEMBERSHIP_LOST as error:
            raise CommitFailedError(
                f"group {self._group_id!r}: the offsets of {len(offsets)} partitions were not "
                f"committed: {error}. The group is rebalancing, or has given the partitions to "
                "other members: go on with poll; if this repeats, poll more often, take fewer "
                "records per poll, or increase max_poll_interval_ms"
            ) from error

    def _check(self, claim: Claim) -> None:
        """Raise IllegalGeneration if other members may have the partitions by now.

        The coordinator compares the generation or member epoch of the request only, and accepts
        these offsets with the current one.
        """
        identity = self._identity
        if not identity.has_member_epoch and identity.epoch != claim.generation:
            raise IllegalGeneration("the group has rebalanced during the commit")
        if identity.is_subscribed and not all(state.is_current for state in claim.assigned):
            raise IllegalGeneration("partitions were given up during the commit")

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        request = self._commit_request(offsets)
        started_at = time.monotonic()
        response = await ask_group_coordinator(self._cluster, self._group_id, request)
        codes = {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        # A partition that the answer leaves out is not committed.
        errors = errors_of(
            codes,
            offsets,
            operation="READ",
            principal=self._cluster.principal,
            group=self._group_id,
        )
        for error in errors:
            if isinstance(error, MOVED):
                self._cluster.forget_coordinator(self._group_id)
            is_outdated = isinstance(error, StaleMemberEpoch)
            if is_outdated and request.generation_id_or_member_epoch != self._identity.epoch:
                # A heartbeat has brought a new member epoch, and this is still a member.
                raise CoordinatorLoadInProgress(str(error))
            if is_outdated:
                raise FencedMemberEpoch(str(error))
        if errors:
            raise errors[0]
        self._metrics.commit.add()
        self._metrics.commit_ms.observe((time.monotonic() - started_at) * 1000)

    def _commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=KioGroupId(self._group_id),
            generation_id_or_member_epoch=i32(self._identity.epoch),
            member_id=self._identity.member_id,
            group_instance_id=self._identity.instance_id if self._identity.member_id else None,
            topics=commit_topics(offsets, OffsetCommitRequestTopic, OffsetCommitRequestPartition),
        )

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of partitions; None for a partition without one.

        Offsets of open transactions are waited for.
        """

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            return await self._committed(partitions)

        return await self._cluster.retrying(
            attempt, subject=f"offsets of group {self._group_id!r}", timeout_ms=timeout_ms
        )

    async def _committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        epoch = self._identity.fetch_epoch
        request = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=KioGroupId(self._group_id),
                    member_id=None if epoch is None else self._identity.member_id,
                    member_epoch=i32(-1 if epoch is None else epoch),
                    topics=tuple(
                        OffsetFetchRequestTopics(
                            name=KioTopicName(topic), partition_indexes=tuple(map(i32, indexes))
                        )
                        for topic, indexes in by_topic(dict.fromkeys(partitions)).items()
                    ),
                ),
            ),
            # KIP-447: an open transaction gives UNSTABLE_OFFSET_COMMIT, which is retriable.
            require_stable=True,
        )
        response = await ask_group_coordinator(self._cluster, self._group_id, request)
        group = answer_about(self._group_id, response.groups)
        if group.error_code != NONE:
            raise self._group_refusal(group.error_code)
        answers = {
            TopicPartition(topic.name, partition.partition_index): partition
            for topic in group.topics
            for partition in topic.partitions
        }
        codes = {where: partition.error_code for where, partition in answers.items()}
        # Also for a partition that the answer leaves out: without a committed offset the consumer
        # would skip its records.
        for error in errors_of(
            codes,
            partitions,
            operation="READ",
            principal=self._cluster.principal,
            group=self._group_id,
        ):
            raise error
        return {where: _committed(answers[where]) for where in partitions}

    def _group_refusal(self, code: int) -> KafkaError:
        error = refused(
            code, None, operation="READ", principal=self._cluster.principal, group=self._group_id
        )
        if isinstance(error, MOVED):
            self._cluster.forget_coordinator(self._group_id)
        if isinstance(error, StaleMemberEpoch | UnknownMemberId):
            # A heartbeat brings the new member epoch, or a new membership.
            return CoordinatorLoadInProgress(str(error))
        return error


def _committed(answer: Any) -> OffsetAndMetadata | None:
    # -1 in the protocol: nothing was committed.
    if answer.committed_offset < 0:
        return None
    leader_epoch = int(answer.committed_leader_epoch)
    return OffsetAndMetadata(
        int(answer.committed_offset),
        answer.metadata or "",
        None if leader_epoch < 0 else leader_epoch,
    )


# The commits of one consumer, in order: those of the application, and the automatic ones.


Positions = Mapping[TopicPartition, OffsetAndMetadata]


class CommitOrder:
    """Sends one commit at a time, so that an older one never overwrites a newer one."""

    def __init__(self, commits: OffsetCommits | None, config: ConsumerConfig) -> None:
        self._commits = commits
        self._config = config
        self._turn = asyncio.Lock()
        self._committed_at = time.monotonic()
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def requests(self) -> OffsetCommits:
        """The requests about the group's offsets; IllegalStateError without a group."""
        if self._commits is None:
            raise IllegalStateError("this consumer has no group: group_id is not set")
        return self._commits

    async def commit(self, offsets: Positions, *, timeout_ms: int | None = None) -> None:
        """Commit offsets after the commits before."""
        await self._commit(offsets, self.requests.claim(offsets), timeout_ms)

    async def _commit(self, offsets: Positions, claim: Claim, timeout_ms: int | None) -> None:
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        began_at = time.monotonic()
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._turn.acquire()
        except TimeoutError:
            raise RequestTimedOut(
                f"commit of group {self._config.group_id!r}: gave up after {limit_ms} ms; an "
                f"earlier commit of this consumer is still under way"
            ) from None
        try:
            waited_ms = round((time.monotonic() - began_at) * 1000)
            await self.requests.commit(offsets, claim, timeout_ms=max(limit_ms - waited_ms, 1))
        finally:
            self._turn.release()

    def commit_in_background(self, offsets: Positions) -> None:
        """Commit offsets without waiting; a failure is logged."""
        # Now, because the group may rebalance before it is this commit's turn.
        claim = self.requests.claim(offsets)

        async def commit() -> None:
            try:
                await self._commit(offsets, claim, None)
            except (CommitFailedError, KafkaError) as error:
                self._log_failure(error)

        task = asyncio.get_running_loop().create_task(commit(), name="commit")
        # The event loop holds tasks by weak references only.
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def commit_if_due(self, now: float, positions: Callable[[], Positions]) -> None:
        """Commit the records of earlier polls in the background, if it is time to."""
        config = self._config
        if self._commits is None or not config.enable_auto_commit:
            return
        if (now - self._committed_at) * 1000 < config.auto_commit_interval_ms:
            return
        if self._under_way:
            return  # It stays due, so the first poll after that commit sends it.
        self._committed_at = now
        if offsets := positions():
            self.commit_in_background(offsets)

    async def commit_automatically(self, offsets: Positions) -> None:
        """Commit the positions of partitions that are given up, if commits are automatic."""
        config = self._config
        if self._commits is None or not config.enable_auto_commit:
            return
        # The rebalance waits for this commit, and the group waits for a member only as long as its
        # rebalance timeout, which is `max_poll_interval_ms`.
        limit_ms = min(config.max_poll_interval_ms, config.default_api_timeout_ms)
        try:
            await self.commit(offsets, timeout_ms=limit_ms)
        except (CommitFailedError, KafkaError) as error:
            self._log_failure(error)

    async def finish(self) -> None:
        """Wait for the commits under way."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    @asynccontextmanager
    async def finished(self) -> AsyncIterator[None]:
        """Wait for the commits under way at the end of a block that gives up partitions.

        Also for those that a listener has begun in it, because none is sent for partitions that
        were given up.  A cancellation does not wait.
        """
        try:
            yield
        except Exception:
            await self.finish()
            raise
        await self.finish()

    def cancel(self) -> None:
        """Cancel the commits under way."""
        for task in self._under_way:
            task.cancel()

    def _log_failure(self, error: Exception) -> None:
        log.warning(
            "event=commit.failed group=%s error='%s' action='the records since the last commit may "
            "be read again'",
            self._config.group_id,
            error,
        )
