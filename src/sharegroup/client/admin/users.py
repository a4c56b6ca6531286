"""Requests about the SCRAM credentials of users (KIP-554).

A broker gets the salted password and never the password itself.  Computing it is slow on purpose,
so it is done in a thread.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kio.static.primitive import i8, i32

from sharegroup.client.admin.calls import ask_any, by_item, call, check, outcome, several
from sharegroup.client.admin.types import (
    ScramCredentialAlteration,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.core.security.scram import salted_password
from sharegroup.errors import InvalidRequest, KafkaError
from sharegroup.protocol_enums import ScramMechanism

SALT_BYTES = 24


@call
async def describe_user_scram_credentials(
    cluster: Cluster, users: Iterable[str] | None = None, *, timeout: float | None = None
) -> dict[str, tuple[ScramCredentialInfo, ...] | KafkaError]:
    """Return the SCRAM credentials of these users, or of all users: mechanisms, no keys."""
    names = None if users is None else several(users)
    if names == ():
        return {}  # For a broker, an empty list means all users.
    request = DescribeUserScramCredentialsRequest(
        users=None if names is None else tuple(UserName(name=user) for user in names)
    )
    answer = await ask_any(cluster, request, subject="describe_user_scram_credentials")
    check(cluster, answer, "DESCRIBE")
    described: dict[str, tuple[ScramCredentialInfo, ...] | KafkaError] = {}
    for result in answer.results:
        error = outcome(cluster, result, user=result.user)
        described[result.user] = error or tuple(
            ScramCredentialInfo(ScramMechanism.of(int(info.mechanism)), int(info.iterations))
            for info in result.credential_infos
        )
    if names is None:
        return dict(sorted(described.items()))
    return by_item(names, described, "user")


@call
async def alter_user_scram_credentials(
    cluster: Cluster,
    alterations: Iterable[ScramCredentialAlteration],
    *,
    timeout: float | None = None,
) -> dict[str, KafkaError | None]:
    """Set and remove passwords of users for SCRAM; a user may be named once."""
    listed = tuple(alterations)
    deletions = [change for change in listed if isinstance(change, UserScramCredentialDeletion)]
    upsertions = [change for change in listed if isinstance(change, UserScramCredentialUpsertion)]
    if len(deletions) + len(upsertions) < len(listed):
        raise TypeError(
            "expected UserScramCredentialUpsertion and UserScramCredentialDeletion objects"
        )
    if not listed:
        return {}
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(
            ScramCredentialDeletion(name=change.user, mechanism=i8(change.mechanism))
            for change in deletions
        ),
        # The thousands of iterations for each password would block the event loop.
        upsertions=await asyncio.to_thread(lambda: tuple(map(_upsertion, upsertions))),
    )
    answer = await ask_any(cluster, request, subject="alter_user_scram_credentials")
    results: dict[str, KafkaError | None] = {
        result.user: outcome(cluster, result, "ALTER", user=result.user)
        for result in answer.results
    }
    return by_item(dict.fromkeys(change.user for change in listed), results, "user")


def _upsertion(change: UserScramCredentialUpsertion) -> ScramCredentialUpsertion:
    if change.mechanism is ScramMechanism.UNKNOWN or not change.password:
        raise InvalidRequest(
            f"user {change.user!r}: expected a mechanism and a password that is not empty"
        )
    salt = change.salt or secrets.token_bytes(SALT_BYTES)
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=i8(change.mechanism),
        iterations=i32(change.iterations),
        salt=salt,
        salted_password=salted_password(
            # Fewer than 1 would raise here; the broker refuses the number with its own error.
            change.mechanism,
            change.password,
            salt=salt,
            iterations=max(1, change.iterations),
        ),
    )
