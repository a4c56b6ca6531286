"""Our broker, asked without sockets, with the rights of its authorizer or of a simple model.

`ModelRights` reads all ACLs for every question.  It is the specification of an authorizer in
twenty lines, and it counts the questions of the handlers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from kio.static.primitive import i32

from sharegroup.broker import app
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.access.rights import operation_bits
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.server.dispatch import dispatch
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.core.security.principal import USER, Principal
from sharegroup.protocol_enums import (
    ACL_OPERATIONS,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from sharegroup.steps import Steps
from sharegroup.wire.codec.apis import response_class, response_header_version
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_request
from sharegroup.wire.codec.headers import decode_response_header
from tests.authorization.matrix import Acl
from tests.authorization.run import Ask, create_acls

HOST = "127.0.0.1"
IMPLIED_BY = {
    AclOperation.DESCRIBE: {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}
LONG_MS = "600000"
MODEL = {"sharegroup_share_state_apis_enable": "true"}
"""The setting of a broker without an authorizer of its own."""
AUTHORIZER = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.consumer.max.session.timeout.ms": LONG_MS,
    "group.consumer.session.timeout.ms": LONG_MS,
    "group.share.max.session.timeout.ms": LONG_MS,
    "group.share.session.timeout.ms": LONG_MS,
}


@dataclass
class ModelRights:
    """The rights that a list of ACLs gives one user."""

    acls: Sequence[Acl]
    user: str
    questions: Counter[tuple[AclOperation, AclResourceType, str]]
    """How often each question was asked."""
    is_unlimited: bool = False

    def of_request(self, api_key: int) -> ModelRights:
        return self

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        self.questions[operation, resource_type, name] += 1
        ours = [
            acl
            for acl in self.acls
            if acl.resource_type == resource_type
            and acl.principal == f"User:{self.user}"
            and acl.host in ("*", HOST)
            and (
                name.startswith(acl.name)
                if acl.pattern is AclPatternType.PREFIXED
                else acl.name in ("*", name)
            )
        ]
        allowing = {operation, AclOperation.ALL} | IMPLIED_BY.get(operation, set())
        if any(
            acl.permission is AclPermission.DENY and acl.operation in (operation, AclOperation.ALL)
            for acl in ours
        ):
            return False
        return any(
            acl.permission is AclPermission.ALLOW and acl.operation in allowing for acl in ours
        )

    may_see = may

    def may_any(self, operation: AclOperation, resource_type: AclResourceType) -> Steps[bool]:
        """Return whether an ACL allows it; no DENY of the matrix covers a whole ALLOW."""
        yield from ()
        return any(
            self.may(operation, resource_type, acl.name + "x" * (acl.pattern == 4))
            for acl in self.acls
            if acl.resource_type == resource_type and acl.permission is AclPermission.ALLOW
        )

    def authorized_operations(self, resource_type: AclResourceType, name: str) -> i32:
        return operation_bits(
            operation
            for operation in ACL_OPERATIONS[resource_type]
            if self.may(operation, resource_type, name)
        )


class InProcess:
    """A running broker of ours; the connections are calls of `dispatch`."""

    is_ours = True

    def __init__(self, running: app.Running) -> None:
        self._running = running
        self._acls: list[Acl] = []
        self.questions = Counter[tuple[AclOperation, AclResourceType, str]]()
        """How often the handlers asked each question."""
        self._ids = count(1_000_000)

    @asynccontextmanager
    async def connect(self, user: str | None) -> AsyncIterator[Ask]:
        """Open a connection of a user; None is the super user."""
        peer, connection_id = Peer(HOST), next(self._ids)
        if user is not None:
            peer.principal = Principal(USER, user)
            peer.rights = ModelRights(self._acls, user, self.questions)
        if self._running.parts.authorizer is not None:
            peer.rights = self._running.parts.rights_of(peer)

        async def ask(message: Any) -> Any:
            request = b"".join(encode_request(1, "matrix", message))[4:]
            reply = dispatch(
                self._running.parts,
                handler_of,
                memoryview(request),
                connection_id=connection_id,
                peer=peer,
            )
            chunks = await reply if isinstance(reply, asyncio.Future) else reply
            frame = b"".join(chunks)[4:]
            key, version = message.__api_key__, message.__version__
            _, position = decode_response_header(frame, response_header_version(key, version))
            return decode(response_class(key, version), frame, position)[0]

        yield ask

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Apply these ACLs."""
        if self._running.parts.authorizer is None:
            self._acls.extend(acls)
            return
        async with self.connect(None) as ask:
            await create_acls(ask, acls)


@asynccontextmanager
async def in_process(folder: Path, **settings: str) -> AsyncIterator[InProcess]:
    """Run a broker of ours in a folder; settings have underscores for dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    running = await app.start(Config.parse({**SETTINGS, **given, "log.dirs": str(folder)}))
    try:
        yield InProcess(running)
    finally:
        await running.stop()
