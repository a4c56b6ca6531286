"""With an authorizer the share coordinator serves its requests, to principals with CLUSTER_ACTION.

Without one a setting decides (ADR 0010); `tests/integration/broker/test_share_state_requests.py`
is about that.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from sharegroup.wire.codec.apis import APIS
from tests.authorization.in_process import AUTHORIZER, in_process
from tests.authorization.messages import message, outcome_of
from tests.authorization.probe import CLUSTER_FAILED, errors

UNKNOWN_TOPIC = 3
STATE_KEYS = {83, 84, 85, 86, 87}
DELETE_STATE = message(
    86, group_id="billing", topics=[{"topic_id": UUID(int=7), "partitions": [{"partition": 0}]}]
)


def test_an_authorizer_serves_the_requests_of_the_share_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with in_process(tmp_path / "data", **AUTHORIZER) as door:
            async with door.connect("ann") as ask:
                software = {"client_software_name": "test", "client_software_version": "1"}
                served = await ask(message(18, cluster_id=None, node_id=-1, **software))
                assert {int(api.api_key) for api in served.api_keys} >= STATE_KEYS <= APIS.keys()
                assert outcome_of(await ask(DELETE_STATE)).errors == errors(CLUSTER_FAILED)
            async with door.connect(None) as ask:
                assert outcome_of(await ask(DELETE_STATE)).errors == errors(UNKNOWN_TOPIC)

    asyncio.run(scenario())
