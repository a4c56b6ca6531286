"""A refused batch names the records that it is refused for (KIP-467)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker
from tests.integration.broker.test_recompression import create_topic, produced, run

INVALID_TIMESTAMP, INVALID_RECORD = 32, 87


def keyed(count: int, without: set[int], size: int = 1) -> list[SimpleRecord]:
    return [
        SimpleRecord(None if number in without else b"k", b"v" * size, 0) for number in range(count)
    ]


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("size", [1, 1_000], ids=["small", "large"])
def test_records_without_a_key_are_named(tmp_path: Path, codec: int, size: int) -> None:
    async def scenario(broker: Broker) -> None:
        await create_topic(broker, cleanup_policy="compact")
        batch = encode_batch(keyed(100, {3, 99}, size), codec=codec)
        answer = await produced(broker, batch)
        assert int(answer.error_code) == INVALID_RECORD
        assert "without a key: found 2 of them, the first at position 3" in answer.error_message
        found = [(error.batch_index, error.batch_index_error_message) for error in named(answer)]
        text = "the topic is compacted (cleanup.policy), but the record has no key"
        assert found == [(3, text), (99, text)]
        accepted = await produced(broker, encode_batch(keyed(100, set(), size), codec=codec))
        assert (int(accepted.error_code), named(accepted)) == (0, ())

    run(scenario, tmp_path)


def named(answer: object) -> tuple[object, ...]:
    errors: tuple[object, ...] = answer.record_errors  # type: ignore[attr-defined]
    return errors


@pytest.mark.parametrize("size", [1, 1_000], ids=["small", "large"])
def test_records_out_of_time_are_named(tmp_path: Path, size: int) -> None:
    async def scenario(broker: Broker) -> None:
        await create_topic(
            broker, message_timestamp_before_max_ms="10", message_timestamp_after_max_ms="10"
        )
        now_ms = broker.clock.wall_ms()
        times = [now_ms, now_ms - 11, now_ms + 10, now_ms + 11] * 50
        batch = encode_batch([SimpleRecord(b"k", b"v" * size, time) for time in times])
        answer = await produced(broker, batch)
        assert int(answer.error_code) == INVALID_TIMESTAMP
        assert [error.batch_index for error in named(answer)] == [
            number for number in range(200) if number % 4 in (1, 3)
        ]
        assert named(answer)[0].batch_index_error_message == (
            f"timestamp {now_ms - 11} is not within {now_ms - 10} and {now_ms + 10}"
        )

    run(scenario, tmp_path)


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("size", [1, 1_000], ids=["small", "large"])
def test_an_old_record_between_newer_ones_is_found(tmp_path: Path, codec: int, size: int) -> None:
    """The header has only the first and the largest timestamp."""

    async def scenario(broker: Broker) -> None:
        await create_topic(broker, message_timestamp_before_max_ms="10")
        now_ms = broker.clock.wall_ms()

        def batch(timestamp: int) -> bytearray:
            times = [now_ms, timestamp, -1] * 50
            records = [SimpleRecord(b"k", b"v" * size, time) for time in times]
            return encode_batch(records, codec=codec)

        accepted = await produced(broker, batch(now_ms - 10))
        assert int(accepted.error_code) == 0
        answer = await produced(broker, batch(now_ms - 11))
        assert int(answer.error_code) == INVALID_TIMESTAMP
        assert [error.batch_index for error in named(answer)] == list(range(1, 150, 3))

    run(scenario, tmp_path)


def test_named_records_are_bounded(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await create_topic(broker, cleanup_policy="compact")
        answer = await produced(broker, encode_batch(keyed(3_000, set(range(3_000)))))
        assert [error.batch_index for error in named(answer)] == list(range(1_000))

    run(scenario, tmp_path)


def test_compacted_topic_with_a_codec_names_records_too(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await create_topic(broker, cleanup_policy="compact", compression_type="gzip")
        answer = await produced(broker, encode_batch(keyed(3, {1})))
        assert [error.batch_index for error in named(answer)] == [1]
        assert int((await produced(broker, encode_batch(keyed(3, set())))).error_code) == 0

    run(scenario, tmp_path)
