"""The settings of a `Consumer`."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.client.settings.client_config import config_from
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "age_ms"),
    [
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P2DT0.5S", 172_800_500),
        ("earliest", None),
        ("none", None),
    ],
)
def test_reset_by_duration(text: str, age_ms: int | None) -> None:
    assert ConsumerConfig(auto_offset_reset=text).reset_age_ms == age_ms


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"auto_offset_reset": "by_duration:1h"}, "by_duration:PT1H30M"),
        ({"auto_offset_reset": "by_duration:P"}, "ISO 8601"),
        ({"auto_offset_reset": "first"}, "expected earliest, latest, none"),
        ({"group_id": ""}, "None for no group"),
        ({"group_instance_id": "i"}, "needs group_id"),
        ({"partition_assignment_strategy": ("ranger",)}, "range, roundrobin, sticky"),
        ({"partition_assignment_strategy": ()}, "one or more"),
        ({"group_remote_assignor": "uniform"}, "group_protocol='consumer'"),
        ({"heartbeat_interval_ms": 45_000}, "less than session_timeout_ms"),
        ({"group_protocol": "consumer", "session_timeout_ms": 9}, "consumer.session.timeout.ms"),
        ({"group_protocol": "streams"}, "expected classic or consumer"),
        ({"isolation_level": "serializable"}, "read_uncommitted or read_committed"),
        ({"max_poll_records": 0}, "1 or more"),
        ({"fetch_min_bytes": -1}, "0 or more"),
        ({"value_deserializer": 3}, "a function of bytes"),
        ({"share_acknowledgement_mode": "explicit"}, "a ShareConsumer"),
        ({"auto_offset_rest": "latest"}, "did you mean auto_offset_reset"),
    ],
)
def test_invalid_options_say_what_is_expected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        config_from(ConsumerConfig, options)


def test_one_assignor_may_be_given_as_text() -> None:
    config = ConsumerConfig(group_id="g", partition_assignment_strategy="cooperative-sticky")
    assert config.assignors == ("cooperative-sticky",)
    assert config.is_cooperative
    assert not ConsumerConfig().is_cooperative
