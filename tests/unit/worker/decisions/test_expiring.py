"""When a record expires: by its age, by its header, and not by the header after a redrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from sharegroup.dead_letters.story import NEW, Story
from sharegroup.worker.decisions.expiring import expires_at_ms
from sharegroup.worker.declarations.policies import Expiry


@dataclass
class Delivery:
    timestamp_ms: int = 1_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


MINUTE = Expiry(after="1m")


@pytest.mark.parametrize(
    ("expiry", "header", "story", "at_ms"),
    [
        pytest.param(MINUTE, None, NEW, 61_000, id="by its age"),
        pytest.param(MINUTE, b"5000", NEW, 5_000, id="the header is earlier"),
        pytest.param(MINUTE, b"90000", NEW, 61_000, id="the age is earlier"),
        pytest.param(Expiry(), b"90000", NEW, 90_000, id="by its header alone"),
        pytest.param(Expiry(), None, NEW, None, id="never"),
        pytest.param(Expiry(), b"5000", Story(redrives=1), None, id="redriven: no header"),
        pytest.param(MINUTE, b"5000", Story(redrives=1), 61_000, id="redriven: its age anew"),
    ],
)
def test_record_expires_by_the_earlier_of_its_age_and_its_header(
    expiry: Expiry, header: bytes | None, story: Story, at_ms: int | None
) -> None:
    headers = () if header is None else (("expires", b"1"), ("expires", header))
    delivery = Delivery(headers=headers)
    assert expires_at_ms(expiry, cast("Any", delivery), story) == at_ms


def test_record_without_a_timestamp_expires_by_its_header_alone() -> None:
    assert expires_at_ms(MINUTE, cast("Any", Delivery(timestamp_ms=-1)), NEW) is None
