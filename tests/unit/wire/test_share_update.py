"""Share updates by hand, against the compiled codec that reads whatever Kafka may write."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sharegroup.wire.codec.decoder import DecodeError
from sharegroup.wire.internal_topics.coordinator_records import VERSION, decode_value, encode_value
from sharegroup.wire.internal_topics.share_state_records import ShareUpdateValue, StoredStateBatch
from sharegroup.wire.internal_topics.share_update import (
    BATCHES_MAX,
    UpdateFields,
    decode_update,
    encode_update,
)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
batch = st.tuples(int64, int64, st.integers(-128, 127), int16)
updates = st.builds(
    UpdateFields, int32, int32, int64, int32 | st.just(-1), st.lists(batch, max_size=5).map(tuple)
)


def as_message(fields: UpdateFields) -> ShareUpdateValue:
    return ShareUpdateValue(
        snapshot_epoch=fields.snapshot_epoch,
        leader_epoch=fields.leader_epoch,
        start_offset=fields.start_offset,
        delivery_complete_count=fields.delivery_complete_count,
        state_batches=tuple(
            StoredStateBatch(
                first_offset=first, last_offset=last, delivery_state=s, delivery_count=n
            )
            for first, last, s, n in fields.batches
        ),
    )


@given(updates)
def test_update_has_the_bytes_of_the_compiled_encoder(fields: UpdateFields) -> None:
    assert encode_update(fields) == encode_value(as_message(fields))


@given(updates)
def test_update_is_decoded_as_by_the_compiled_decoder(fields: UpdateFields) -> None:
    value = encode_value(as_message(fields))
    assert decode_update(value) == fields
    assert decode_value(ShareUpdateValue, value) == as_message(fields)


@given(updates, st.data())
def test_damaged_update_is_decoded_as_by_the_compiled_decoder_or_not_at_all(
    fields: UpdateFields, data: st.DataObject
) -> None:
    value = bytearray(encode_value(as_message(fields)))
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    del value[data.draw(st.integers(1, len(value))) :]
    found = decode_update(bytes(value))
    if found is None:
        return
    assert as_message(found) == decode_value(ShareUpdateValue, bytes(value))


@pytest.mark.parametrize("count", [0, 1, 2, BATCHES_MAX])
def test_updates_up_to_the_limit_need_no_compiled_codec(count: int) -> None:
    fields = UpdateFields(7, 0, 100, count, tuple((n, n, 2, 1) for n in range(count)))
    value = encode_update(fields)
    assert value is not None
    assert decode_update(value) == fields


def test_more_batches_are_left_to_the_compiled_codec() -> None:
    batches = tuple((n, n, 2, 1) for n in range(BATCHES_MAX + 1))
    fields = UpdateFields(7, 0, 100, 3, batches)
    assert encode_update(fields) is None
    assert decode_update(encode_value(as_message(fields))) is None


def test_unknown_tags_are_left_to_the_compiled_decoder() -> None:
    fields = UpdateFields(7, 0, 100, -1, ())
    value = encode_update(fields)
    assert value is not None
    tagged = value[:-1] + bytes.fromhex("01 05 02 ff ff")
    assert decode_update(tagged) is None
    assert decode_value(ShareUpdateValue, tagged) == as_message(fields)


def test_another_version_is_left_to_the_compiled_decoder() -> None:
    value = encode_update(UpdateFields(7, 0, 100, 3, ((1, 2, 2, 1),)))
    assert value is not None
    newer = b"\0\1" + value[len(VERSION) :]
    assert decode_update(newer) is None
    with pytest.raises(DecodeError, match="expected version 0"):
        decode_value(ShareUpdateValue, newer)
