"""Sends one request to the coordinator of a group, and finds another coordinator after an error."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from sharegroup.client.net.cluster import Cluster, ConnectionPurpose
from sharegroup.client.net.refusals import refused
from sharegroup.errors import NONE, KafkaError, NoAnswer

log = logging.getLogger(__name__)

IN_VAIN_MAX = 3
"""Number of times in a row that a member joins again at once; after that it pauses before."""
SILENCE_SECONDS = 5.0
"""Time without an answer after which that is logged once; a restart or a move takes less."""


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


def raise_refusal(cluster: Cluster, group_id: str, member_id: str, response: Any) -> None:
    """Raise the error of an answer about a membership, if it has one."""
    code = int(response.error_code)
    if code == NONE:
        return
    refusal = refused(
        code,
        getattr(response, "error_message", None),
        operation="READ",
        principal=cluster.principal,
        group=group_id,
        member=member_id,
    )
    if refusal.retriable:
        cluster.forget_coordinator(group_id)
    raise refusal


class CoordinatorContact:
    """Notes whether a member reaches its group coordinator, and logs a long silence once.

    Otherwise a wrong address would look like a topic without records.
    """

    __slots__ = ("_group_id", "_is_told", "_since", "error")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._since: float | None = None
        self._is_told = False
        self.error: KafkaError | None = None
        """The error of the last request; None if it was answered."""

    def answered(self) -> None:
        """Note an answer without error."""
        self.error = self._since = None
        self._is_told = False

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
