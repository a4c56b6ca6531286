"""Dead letters of a broker copy odd records with their bytes."""

from __future__ import annotations

from pathlib import Path

from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches.compression import ZSTD
from sharegroup.wire.batches.header_names import header_name, name_bytes
from tests.integration.broker.dead_letter_scene import Scene, played

MIB = 1024 * 1024


def test_letter_has_the_bytes_of_header_names_that_are_not_utf_8(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        names = [b"caf\xe9", "café".encode(), b"\xed\xa0\x80"]
        await scene.produce((b"k", b"v", [(header_name(name), b"h") for name in names]))
        assert await scene.take() == [(0, 1)]
        await scene.reject(0)
        await scene.until(lambda: len(scene.letters()) == 1, "a letter")
        (letter,) = scene.letters()
        assert (letter.key, letter.value) == (b"k", b"v")
        assert [name_bytes(name) for name, _ in letter.headers[:3]] == names

    played(scenario, tmp_path)


def test_records_of_a_batch_that_is_too_large_for_memory_are_copied(tmp_path: Path) -> None:
    """Forty MiB in one batch; only 16 are held in memory. One record alone is larger than that."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up(share_delivery_count_limit="2")
        sizes = [MIB] * 12 + [17 * MIB] + [MIB] * 11
        values = [b"%02d" % number + bytes(size) for number, size in enumerate(sizes)]
        await scene.produce(*((None, value, ()) for value in values), codec=ZSTD)
        offsets = await scene.take_undecoded(500)
        assert offsets == list(range(24))
        rejected = (2, 3, 12, 20)
        await scene.settle(*((offset, AcknowledgeType.REJECT) for offset in rejected))
        await scene.until(lambda: len(scene.letters()) == len(rejected), "four letters")
        letters = dict(zip(scene.origins(), scene.letters(), strict=True))
        assert [letters[offset].value for offset in (2, 3, 20)] == [
            values[offset] for offset in (2, 3, 20)
        ]
        assert letters[12].value is None
        reason = dict(letters[12].headers)["sharegroup.dlq.not.copied"]
        assert reason == (
            b"the record cannot be read: the record at offset 12 has 17825803 bytes; expected at "
            b"most 16777216"
        )

    played(scenario, tmp_path)
