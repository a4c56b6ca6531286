"""Dead letters as the broker writes them: what they say, and what happens when it cannot."""

from __future__ import annotations

from pathlib import Path

from sharegroup.core.delivery import Ack
from tests.unit.broker.dead_letter_scene import Scene, played

ACCEPT, RELEASE, REJECT = Ack.ACCEPT, Ack.RELEASE, Ack.REJECT


def test_rejected_record_is_copied_with_key_value_and_headers_and_then_settled(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce((b"k", b"v", [("trace", b"t1"), ("empty", None)]), (b"k2", b"v2", ()))
        assert await scene.take() == [(0, 1), (1, 1)]
        await scene.settle((0, REJECT), (1, ACCEPT))
        await scene.settles_up_to(2)
        [letter] = scene.letters()
        assert (letter.key, letter.value) == (b"k", b"v")
        assert letter.headers == [
            ("trace", b"t1"),
            ("empty", None),
            ("__dlq.errors.topic", b"orders"),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"0"),
            ("__dlq.errors.group", b"g"),
            ("__dlq.errors.delivery.count", b"1"),
            ("__dlq.errors.message", b"Offset rejected by client."),
        ]
        assert letter.timestamp == scene.broker.clock.wall_ms()

    played(scenario, tmp_path)
