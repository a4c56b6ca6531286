"""Requests about SCRAM users (50, 51): describe and change their credentials."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.broker.cluster.scram_credentials import (
    DECOY_KEY_BYTES,
    Removal,
    ScramCredentials,
    Upsertion,
)
from sharegroup.broker.handler_contract import (
    NO_THROTTLE,
    ApiHandler,
    Handling,
    Later,
    RequestContext,
    error_code,
)
from sharegroup.broker.handlers.parts import HasConfig, HasTopics
from sharegroup.core.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    USER_BYTES_MAX,
    credential_of,
)
from sharegroup.errors import (
    DuplicateResource,
    KafkaError,
    PolicyViolation,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from sharegroup.protocol_enums import ScramMechanism
from sharegroup.steps import Steps, of_each


class UsersParts(HasConfig, HasTopics, Protocol):
    """What these requests touch of the broker."""


def describe_user_scram_credentials(
    parts: UsersParts, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    """DescribeUserScramCredentials (50): mechanisms and iterations of users, without their keys."""
    credentials = parts.topics.catalog.scram_credentials
    named = Counter(user.name for user in request.users or ()) or Counter(credentials.users)
    results = yield from of_each(
        lambda entry: _described(credentials, entry[0], named_twice=entry[1] > 1),
        tuple(named.items()),
    )
    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=results,
    )


def _described(
    credentials: ScramCredentials, user: str, *, named_twice: bool
) -> DescribeUserScramCredentialsResult:
    credentials_of_user = credentials.of_user(user)
    error: KafkaError | None = None
    if named_twice:
        error = DuplicateResource(
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif not credentials_of_user:
        error = ResourceNotFound(
            f"Attempt to describe a user credential that does not exist: {user}"
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else str(error),
        credential_infos=()
        if error is not None
        else tuple(
            CredentialInfo(mechanism=i8(mechanism), iterations=i32(credential.iterations))
            for mechanism, credential in sorted(credentials_of_user.items())
        ),
    )


log = logging.getLogger(__name__)

SALT_BYTES_MAX = 1_024
"""Maximum length of a salt, and of a salted password."""


@dataclass(slots=True)
class _Changes:
    """The changes of a request by user, and the users whose changes are refused."""

    removed: dict[str, Removal] = field(default_factory=dict)
    upserted: dict[str, Upsertion] = field(default_factory=dict)
    errors: dict[str, KafkaError] = field(default_factory=dict)


def alter_user_scram_credentials(
    parts: UsersParts, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Later[AlterUserScramCredentialsResponse]:
    """AlterUserScramCredentials (51): sets and removes SCRAM credentials of users (KIP-554).

    Changes of users without an error happen together, durably before the reply. The checks and
    their order are those of Kafka's ScramControlManager: a user may be named once in a request.
    """
    return Later(_alter(parts, context, request))


def refuse_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(
        change.name for changes in (request.deletions, request.upsertions) for change in changes
    )
    return _response(dict.fromkeys(users, error))


async def _alter(
    parts: UsersParts, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    credentials = parts.topics.catalog.scram_credentials
    count_max = parts.config.started.sasl.scram_credentials_max
    changes = _checked(credentials, request, count_max)
    if not (changes.upserted or changes.removed):
        return _response(changes.errors)
    # The reply is about what `event` decides when the change is written, not about this first
    # check.
    latest = [changes]

    def event() -> Event:
        # Called when earlier changes of the catalog have happened.
        changes = latest[0] = _checked(credentials, request, count_max)
        decoy_key = secrets.token_bytes(DECOY_KEY_BYTES)
        return credentials.changed(
            changes.upserted.values(), changes.removed.values(), decoy_key=decoy_key
        )

    await parts.topics.alter(event)
    (changes,) = latest
    log.info(
        "event=scram_credentials_changed principal=%r peer=%s set=%r removed=%r refused=%d",
        str(context.peer.principal),
        context.peer,
        ",".join(changes.upserted)[:500],
        ",".join(changes.removed)[:500],
        len(changes.errors),
    )
    return _response({**dict.fromkeys([*changes.removed, *changes.upserted]), **changes.errors})


def _checked(
    credentials: ScramCredentials, request: AlterUserScramCredentialsRequest, count_max: int
) -> _Changes:
    """Return the changes of a request that may happen, and the errors of the others."""
    changes = _Changes()
    for deletion in request.deletions:
        user = deletion.name
        if _is_named_again(changes, user):
            continue
        mechanism = ScramMechanism.of(int(deletion.mechanism))
        error = _name_error(user, mechanism)
        if error is None and mechanism not in credentials.of_user(user):
            error = ResourceNotFound("Attempt to delete a user credential that does not exist")
        if error is None:
            changes.removed[user] = Removal(user, mechanism)
        else:
            changes.errors[user] = error
    for upsertion in request.upsertions:
        user = upsertion.name
        if _is_named_again(changes, user):
            continue
        mechanism = ScramMechanism.of(int(upsertion.mechanism))
        error = _name_error(user, mechanism) or _credential_error(upsertion)
        is_new = mechanism not in credentials.of_user(user)
        if error is None and is_new and credentials.count + len(changes.upserted) >= count_max:
            error = PolicyViolation(
                f"there are {count_max} credentials, as many as sharegroup.scram.credentials.max "
                "allows; remove some, or raise the limit and restart the broker"
            )
        if error is None:
            changes.upserted[user] = _upsertion(upsertion, mechanism)
        else:
            changes.errors[user] = error
    return changes


def _is_named_again(changes: _Changes, user: str) -> bool:
    """Return whether the user was named before; then its earlier change is refused, too."""
    if user in changes.errors:
        return True
    removed, upserted = changes.removed.pop(user, None), changes.upserted.pop(user, None)
    if removed is None and upserted is None:
        return False
    changes.errors[user] = DuplicateResource(
        "A user credential cannot be altered twice in the same request"
    )
    return True


def _name_error(user: str, mechanism: ScramMechanism) -> KafkaError | None:
    if not user:
        return UnacceptableCredential("Username must not be empty")
    if mechanism is ScramMechanism.UNKNOWN:
        return UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    if len(user.encode()) > USER_BYTES_MAX or "\0" in user:
        return UnacceptableCredential(
            f"a user name must have at most {USER_BYTES_MAX} bytes and no NUL character"
        )
    return None


def _credential_error(upsertion: ScramCredentialUpsertion) -> KafkaError | None:
    if upsertion.iterations < ITERATIONS_MIN:
        return UnacceptableCredential("Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        return UnacceptableCredential("Too many iterations")
    for name, value in (
        ("salt", upsertion.salt),
        ("salted password", upsertion.salted_password),
    ):
        if not 0 < len(value) <= SALT_BYTES_MAX:
            return UnacceptableCredential(
                f"the {name} must have 1 to {SALT_BYTES_MAX} bytes, not {len(value)}"
            )
    return None


def _upsertion(upsertion: ScramCredentialUpsertion, mechanism: ScramMechanism) -> Upsertion:
    credential = credential_of(
        mechanism,
        bytes(upsertion.salted_password),
        salt=bytes(upsertion.salt),
        iterations=int(upsertion.iterations),
    )
    return Upsertion(upsertion.name, mechanism, credential)


def _response(results: Mapping[str, KafkaError | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterUserScramCredentialsResult(
                user=user,
                error_code=ErrorCode.none if error is None else error_code(error),
                error_message=None if error is None else str(error),
            )
            for user, error in results.items()
        ),
    )


SERVED = {
    50: ApiHandler(
        describe_user_scram_credentials,
        handling=Handling.READS_IN_STEPS,
        gates=(required.DESCRIBE_CLUSTER,),
    ),
    51: ApiHandler(
        alter_user_scram_credentials,
        refuse_alter_user_scram_credentials,
        gates=(required.ALTER_CLUSTER,),
    ),
}
