"""numpy's numbers as Arrow arrays, compared with what ``pyarrow.array`` makes of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sharegroup.wire.batches.number_arrays import flag_array, number_array


def test_numbers_keep_their_type_and_values() -> None:
    array = number_array(np.array([-(2**63), 0, 2**63 - 1], dtype=np.int64))
    array.validate(full=True)
    assert array.type == pa.int64()
    assert array.to_pylist() == [-(2**63), 0, 2**63 - 1]
    assert number_array(np.array([7], dtype=np.int32)).type == pa.int32()


def test_absent_numbers_are_null_in_every_bit_of_a_byte() -> None:
    absent = np.arange(19) % 3 == 0
    array = number_array(np.arange(19, dtype=np.int32), absent=absent)
    array.validate(full=True)
    assert array.null_count == 7
    assert array.to_pylist()[:5] == [None, 1, 2, None, 4]
    assert array.to_pylist()[16:] == [16, 17, None]


def test_numbers_of_every_second_place_are_copied_together() -> None:
    assert number_array(np.arange(6, dtype=np.int64)[::2]).to_pylist() == [0, 2, 4]


def test_numbers_become_another_type_of_the_same_width_only() -> None:
    kind = pa.timestamp("us", tz="UTC")
    assert number_array(np.array([1], dtype=np.int64), kind).cast(pa.int64()).to_pylist() == [1]
    with pytest.raises(AssertionError, match="int32 are not numbers of timestamp"):
        number_array(np.array([1], dtype=np.int32), kind)


def test_flags_are_booleans() -> None:
    array = flag_array(np.arange(11) % 5 == 0)
    array.validate(full=True)
    assert array.type == pa.bool_()
    assert array.to_pylist() == [True, *[False] * 4, True, *[False] * 4, True]


def test_empty_arrays_are_valid() -> None:
    number_array(np.empty(0, dtype=np.int64), absent=np.empty(0, dtype=bool)).validate(full=True)
    flag_array(np.empty(0, dtype=bool)).validate(full=True)
