"""The settings of all groups have a total, whether the groups exist or not."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.attacks.target import join_request
from tests.attacks.total_attacks import set_groups
from tests.faults.in_process import Broker

NONE, INVALID_GROUP_ID, POLICY_VIOLATION = 0, 24, 44


def test_settings_of_groups_are_bounded_in_total_and_outlive_the_limit(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path), sharegroup_group_settings_bytes_max="8999")
        answer = await broker.ask(set_groups(range(20)))
        codes = [int(response.error_code) for response in answer.responses]
        assert codes == [NONE] * 10 + [POLICY_VIOLATION] * 10
        total = broker.running.parts.topics.catalog.group_settings_bytes
        assert total == 8_600
        again = await broker.ask(set_groups(range(5)))
        assert {int(response.error_code) for response in again.responses} == {NONE}
        await broker.stop()
        broker = await Broker.start(None, str(tmp_path), sharegroup_group_settings_bytes_max="0")
        assert broker.running.parts.topics.catalog.group_settings_bytes == total
        answer = await broker.ask(join_request("0", "m", ["none"]))
        assert int(answer.error_code) == NONE
        answer = await broker.ask(set_groups(range(10), delete=True))
        assert {int(response.error_code) for response in answer.responses} == {NONE}
        assert broker.running.parts.topics.catalog.group_settings_bytes == 0
        await broker.stop()

    asyncio.run(main())


def test_settings_of_an_invalid_group_id_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path))
        answer = await broker.ask(set_groups(range(2), name_characters=250))
        assert {int(response.error_code) for response in answer.responses} == {INVALID_GROUP_ID}
        await broker.stop()

    asyncio.run(main())


def test_groups_that_were_refused_are_not_remembered(tmp_path: Path) -> None:
    """Their ids may have 32,767 characters each, and a peer may name ten thousand of them."""

    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path))
        settings = broker.running.parts.group_settings
        for number in range(20):
            answer = await broker.ask(join_request(f"{number}-".ljust(250, "g"), "m", ["none"]))
            assert int(answer.error_code) == INVALID_GROUP_ID
        assert not settings._own
        assert not settings._group_limits
        await broker.stop()

    asyncio.run(main())
