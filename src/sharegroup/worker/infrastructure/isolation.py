"""Checks that the groups of a worker read committed records only.

Jobs send dead letters back in transactions (ADR 0044).  If a runner is fenced in the middle, the
copies of its open transaction are aborted and sent again.  A group that reads uncommitted records,
as is the default, would run its handlers for both.
"""

from __future__ import annotations

import asyncio
import logging

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import ConfigResource
from sharegroup.errors import InvalidConfig, KafkaError, RequestTimedOut, UnsupportedVersion
from sharegroup.protocol_enums import ResourceType
from sharegroup.worker.application import Application
from sharegroup.worker.infrastructure.asking import UNSEEN
from sharegroup.worker.infrastructure.rights import ANSWER_SECONDS_MAX
from sharegroup.worker.infrastructure.wanted import COMMITTED, ISOLATION

log = logging.getLogger(__name__)


async def check_isolation(app: Application, admin: AdminClient) -> None:
    """Raise InvalidConfig if a group of this application reads uncommitted records.

    A group whose settings this user may not see passes, and so does one of brokers without the
    setting.  If no broker answers, nothing is raised, because the members wait for one.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await _check(app, admin)
    except (TimeoutError, RequestTimedOut, UnsupportedVersion) as error:
        log.warning(
            "event=isolation.unknown error=%r reason='no broker reported the settings of groups'",
            error,
        )


async def _check(app: Application, admin: AdminClient) -> None:
    # The consumers of consumer groups have the isolation level themselves.
    groups = sorted({route.group for route in app.route_list if route.is_share})
    resources = [ConfigResource(ResourceType.GROUP, group) for group in groups]
    for resource, configs in (await admin.describe_configs(resources)).items():
        if isinstance(configs, KafkaError):
            if not isinstance(configs, UNSEEN):
                raise configs
            continue
        entry = configs.get(ISOLATION)
        if entry is not None and entry.value != COMMITTED:
            raise InvalidConfig(
                f"group {resource.name!r}: expected {ISOLATION}={COMMITTED}, found "
                f"{entry.value!r}: its handlers would get records of aborted transactions, in "
                "which dead letters are sent back. Somebody with ALTER_CONFIGS on the group sets "
                f"it with: sharegroup configs alter --group {resource.name} --set "
                f"{ISOLATION}={COMMITTED} (or with: sharegroup worker apply)"
            )
