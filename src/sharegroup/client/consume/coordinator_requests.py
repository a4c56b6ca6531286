"""Requests of a consumer to the coordinator of its group, and the parts of its membership."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sharegroup.client.consume.handover import Handover
from sharegroup.client.consume.topic_watch import TopicWatch
from sharegroup.client.metrics.client_metrics import ConsumerMetrics
from sharegroup.client.net.cluster import Cluster, ConnectionPurpose
from sharegroup.client.net.refusals import refused
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.client.share.member.membership import SILENCE_SECONDS, is_answering
from sharegroup.errors import NONE, KafkaError, MemberIdRequired, NoAnswer

log = logging.getLogger(__name__)

IN_VAIN_MAX = 3
"""Number of times in a row that a member joins again at once; after that it pauses before."""
NO_GENERATION = -1


@dataclass(slots=True)
class MemberIdentity:
    """The current identity of a consumer in its group; the membership keeps it up to date."""

    member_id: str = ""
    epoch: int = NO_GENERATION
    """The generation or member epoch; NO_GENERATION without membership."""
    instance_id: str | None = None
    is_subscribed: bool = False
    """Whether the partitions come from the group, so only a member may commit offsets."""
    has_member_epoch: bool = False
    """Whether the epoch is a member epoch (KIP-848), which OffsetFetch carries, too."""

    left_unpolled: bool = False
    """Whether the member leaves because the application did not poll; its partitions are lost."""

    @property
    def may_commit(self) -> bool:
        """Whether this is a member of the group, or commits without a membership."""
        if self.left_unpolled:
            return False  # Also before the coordinator has the request that leaves.
        return not self.is_subscribed or self.epoch != NO_GENERATION

    @property
    def fetch_epoch(self) -> int | None:
        """The member epoch for OffsetFetch; None if the request carries none."""
        return self.epoch if self.has_member_epoch and self.epoch > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberParts:
    """What a membership works with, in either protocol."""

    cluster: Cluster
    config: ConsumerConfig
    identity: MemberIdentity
    handover: Handover
    topics: TopicWatch
    broker_pattern: Callable[[], str | None]
    """Returns the pattern that the group coordinator applies (KIP-848); None without one."""
    owned: Callable[[], frozenset[TopicPartition]]
    changed: Callable[[], None]
    """Called when the membership has ended by an error."""
    metrics: ConsumerMetrics

    @property
    def group_id(self) -> str:
        """The id of the group; a member has one."""
        assert self.config.group_id, "a member has a group"
        return self.config.group_id


async def ask_group_coordinator(
    cluster: Cluster,
    group_id: str,
    request: Any,
    *,
    purpose: ConnectionPurpose = ConnectionPurpose.CONTROL,
    timeout_ms: int | None = None,
    sending: Callable[[], None] | None = None,
) -> Any:
    """Return the answer to one attempt; a coordinator without an answer is forgotten.

    ``sending`` is called before the request may reach the coordinator.
    """
    try:
        node_id = await cluster.coordinator(group_id)
        connection = await cluster.connection(node_id, purpose)
        if sending is not None:
            sending()
        return await connection.request(request, timeout_ms=timeout_ms)
    except KafkaError as error:
        coordinator = cluster.known_coordinator(group_id)
        if isinstance(error, NoAnswer) and coordinator is not None:
            cluster.doubt(coordinator)
        cluster.forget_coordinator(group_id)
        raise


class CoordinatorContact:
    """Sends a member's requests to its group coordinator, and logs a long silence once.

    Otherwise a wrong address would look like a topic without records.
    """

    __slots__ = (
        "_answered_at",
        "_cluster",
        "_group_id",
        "_identity",
        "_is_told",
        "_since",
        "error",
    )

    def __init__(self, parts: MemberParts) -> None:
        self._cluster = parts.cluster
        self._group_id = parts.group_id
        self._identity = parts.identity
        self._since: float | None = None
        self._is_told = False
        self.error: KafkaError | None = None
        """The error of the last request; None if it was answered."""
        self._answered_at = 0.0

    def is_member(self, interval_ms: int) -> bool:
        """Whether this is a member, as far as the coordinator answers its heartbeats."""
        if self._identity.epoch <= 0 or self.error is not None:
            return False
        return is_answering(self._cluster, self._group_id, self._answered_at, interval_ms)

    async def ask(
        self,
        request: Any,
        *,
        purpose: ConnectionPurpose = ConnectionPurpose.CONTROL,
        timeout_ms: int | None = None,
        sending: Callable[[], None] | None = None,
    ) -> Any:
        """Send a request as `ask_group_coordinator` does; raise the error of its answer."""
        cluster, group_id, identity = self._cluster, self._group_id, self._identity
        response = await ask_group_coordinator(
            cluster, group_id, request, purpose=purpose, timeout_ms=timeout_ms, sending=sending
        )
        code = int(response.error_code)
        # KIP-394: the coordinator has assigned a member id, with which the next attempt joins.
        if code == MemberIdRequired.code:
            identity.member_id = response.member_id
        if code != NONE:
            refusal = refused(
                code,
                getattr(response, "error_message", None),
                operation="READ",
                principal=cluster.principal,
                group=group_id,
                member=identity.member_id,
            )
            if refusal.retriable:
                cluster.forget_coordinator(group_id)
            raise refusal
        self.error = self._since = None
        self._is_told = False
        self._answered_at = time.monotonic()
        return response

    def failed(self, error: KafkaError) -> None:
        """Note an error after which the request is retried."""
        now = time.monotonic()
        self.error = error
        if self._since is None:
            self._since = now
        if self._is_told or now - self._since < SILENCE_SECONDS:
            log.debug("event=group.retry group=%s error=%s", self._group_id, error)
            return
        self._is_told = True
        log.warning(
            "event=group.unreachable group=%s error=%s action='the request is retried'",
            self._group_id,
            error,
        )
