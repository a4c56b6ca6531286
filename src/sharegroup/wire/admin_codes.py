"""Codes in requests of administrators, which clients send and the broker carries out."""

from __future__ import annotations

from enum import IntEnum


class ConfigOperation(IntEnum):
    """The kind of change of a config (IncrementalAlterConfigs); values as on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class UpgradeType(IntEnum):
    """The permitted change of a feature's level (UpdateFeatures); values as on the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
