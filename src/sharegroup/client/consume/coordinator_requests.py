"""Sends one request to the coordinator of a group, and finds another coordinator after an error."""

from __future__ import annotations

from typing import Any

from sharegroup.client.net.cluster import Cluster, ConnectionPurpose
from sharegroup.client.net.refusals import refused
from sharegroup.errors import NONE, KafkaError, NoAnswer


async def ask_group_coordinator(
    cluster: Cluster,
    group_id: str,
    request: Any,
    *,
    purpose: ConnectionPurpose = ConnectionPurpose.CONTROL,
    timeout_ms: int | None = None,
) -> Any:
    """Return the answer to one attempt; a coordinator without an answer is forgotten."""
    try:
        node_id = await cluster.coordinator(group_id)
        connection = await cluster.connection(node_id, purpose)
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
