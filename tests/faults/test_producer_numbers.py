"""A broker that has a batch and refuses it as out of order: the producer must not write it twice.

Seen on a cluster whose leaders were killed: a batch stays in doubt while later ones are
acknowledged, and lies further back than the five batches that a broker compares when it comes
again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sharegroup.client import Producer
from sharegroup.errors import NotEnoughReplicasAfterAppend, OutOfOrderSequenceNumber
from sharegroup.wire.codec.encoder import encode_response
from tests.faults.lying_broker import PRODUCE, LyingBroker, Request, honest_but
from tests.support.limits import HANGING_SECONDS

LIMITS = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50, "linger_ms": 0}


def refused(honest: Any, code: int) -> Any:
    (topic,) = honest.responses
    (partition,) = topic.partition_responses
    partition = honest_but(partition, error_code=code, base_offset=-1)
    return honest_but(honest, responses=(honest_but(topic, partition_responses=(partition,)),))


class Forgetful:
    """Answers one producer's requests, each with one batch.

    The second batch is written, but its answer is an error, and the third one is acknowledged.
    From then on the second one is out of order.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.third_came = asyncio.Event()

    def __call__(self, request: Request, honest: Any) -> Any:
        self.requests.append(request)
        match len(self.requests):
            case 1:
                return honest
            case 2:
                return None
            case 3:
                second = self.requests[1]
                failed = refused(honest, NotEnoughReplicasAfterAppend.code)
                return b"".join(
                    (
                        encode_response(second.correlation_id, failed),
                        encode_response(request.correlation_id, honest),
                    )
                )
            case _:
                return refused(honest, OutOfOrderSequenceNumber.code)


def test_a_batch_before_an_acknowledged_one_is_not_written_again() -> None:
    async def run() -> tuple[int, int, int]:
        forgetful = Forgetful()
        async with LyingBroker() as broker:
            broker.lies[PRODUCE] = forgetful
            async with Producer(bootstrap_servers=broker.bootstrap_servers, **LIMITS) as producer:
                await producer.send_and_wait("t", b"first")
                second = await producer.send("t", b"second")
                while len(forgetful.requests) < 2:
                    await asyncio.sleep(0)
                third = await producer.send("t", b"third")
                async with asyncio.timeout(HANGING_SECONDS):
                    return (await second).offset, (await third).offset, len(forgetful.requests)

    assert asyncio.run(run()) == (-1, 11, 4), "written at an offset that is not known"
