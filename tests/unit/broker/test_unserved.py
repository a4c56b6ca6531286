"""Log lines about features that this broker does not serve."""

from __future__ import annotations

import logging

import pytest

from sharegroup.broker.load.log_limit import LINE_INTERVAL_MS, UnservedFeatures
from sharegroup.testing import ManualClock

HOSTILE = "x\x1b]0;owned\x07\r\n\u202e"


def test_a_feature_has_one_line_in_each_interval(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = ManualClock()
    unserved = UnservedFeatures(clock)
    for _ in range(1000):
        unserved.refused("transactions", client_id="billing", name="orders")
    unserved.refused("other", client_id="billing", name="orders")
    clock.advance(LINE_INTERVAL_MS / 1000)
    unserved.refused("transactions", client_id="billing", name="orders")
    assert [message.partition("feature=")[2] for message in caplog.messages] == [
        "transactions client='billing' name='orders' requests=1",
        "other client='billing' name='orders' requests=1",
        "transactions client='billing' name='orders' requests=1000",
    ]


def test_names_are_escaped_and_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    unserved = UnservedFeatures(ManualClock())
    unserved.refused("transactions", client_id=HOSTILE, name=HOSTILE + "y" * 32_767)
    (message,) = caplog.messages
    assert message.isprintable()
    assert len(message) < 500
