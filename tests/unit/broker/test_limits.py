"""The table of limits agrees with the configuration, the metrics and the memory budget."""

from __future__ import annotations

import re

import pytest

from sharegroup.broker.configuration.config import (
    ConsumerGroupConfig,
    CoordinatorConfig,
    LogConfig,
    ModernGroupConfig,
    SaslConfig,
    ServerConfig,
    ShareGroupConfig,
)
from sharegroup.broker.configuration.config_values import entries
from sharegroup.broker.configuration.quota_config import QuotaConfig
from sharegroup.broker.configuration.transaction_config import TransactionConfig
from sharegroup.broker.metrics.families import FAMILIES
from tests.docs.limits.limit import Limit
from tests.docs.limits.table import LIMITS, MEMORY_BYTES_MAX, NO_LIMITS
from tests.docs.write_docs import limit_default

KEYS = {
    entry.metadata["name"]
    for part in (
        ServerConfig,
        LogConfig,
        ModernGroupConfig,
        ShareGroupConfig,
        ConsumerGroupConfig,
        CoordinatorConfig,
        TransactionConfig,
        QuotaConfig,
        SaslConfig,
    )
    for entry in entries(part)
    if entry.metadata["effect"]
}
LIMIT_NAME = re.compile(r"(^|\.)(max|limit)(\.|$)")


@pytest.mark.parametrize("limit", LIMITS, ids=[limit.setting for limit in LIMITS])
def test_setting_of_a_limit_exists(limit: Limit) -> None:
    assert isinstance(limit_default(limit), int)


def test_every_metric_of_a_limit_exists() -> None:
    assert {limit.metric for limit in LIMITS if limit.metric} <= {
        family.name for family in FAMILIES
    }


def test_every_key_named_like_a_limit_is_in_the_table() -> None:
    """If this fails: add a row to `broker/configuration/limits.py`, or say why in `NO_LIMITS`."""
    listed = {limit.setting for limit in LIMITS} | set(NO_LIMITS)
    assert sorted(key for key in KEYS if LIMIT_NAME.search(key) and key not in listed) == []


def test_keys_that_are_no_limits_exist() -> None:
    assert set(NO_LIMITS) <= KEYS
    assert not set(NO_LIMITS) & {limit.setting for limit in LIMITS}


def test_no_limit_is_listed_twice() -> None:
    settings = [limit.setting for limit in LIMITS]
    assert len(settings) == len(set(settings))


def test_memory_budgets_add_up_to_at_most_530_megabytes() -> None:
    assert sum(limit_default(limit) * limit.memory_each for limit in LIMITS) <= 530_000_000
    assert MEMORY_BYTES_MAX == 530_000_000
