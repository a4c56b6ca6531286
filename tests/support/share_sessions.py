"""A share session's fetch as the broker makes it: accepted, then filled with its partitions."""

from __future__ import annotations

from collections.abc import Collection

from sharegroup.core.security.principal import Principal
from sharegroup.core.sessions.share_session import Closed, Fetching, SessionKey, ShareSessions
from sharegroup.ids import TopicIdPartition
from sharegroup.steps import run_to_end


def fetch_filled(
    sessions: ShareSessions,
    key: SessionKey,
    epoch: int,
    *,
    connection_id: str,
    partitions: Collection[TopicIdPartition],
    forgotten: Collection[TopicIdPartition],
    has_acks: bool,
    user: Principal | None = None,
) -> Fetching | Closed:
    """Accept a fetch, then add and remove its partitions without a pause."""
    outcome = sessions.fetch(
        key,
        epoch,
        connection_id=connection_id,
        partitions=partitions,
        forgotten=forgotten,
        has_acks=has_acks,
        user=user,
    )
    if isinstance(outcome, Fetching):
        run_to_end(outcome.partitions.fill(dict.fromkeys(partitions), forgotten))
    return outcome
