"""Features: the levels that this broker supports and the levels that are in use (KIP-584).

The *supported* range of levels belongs to the software.  A *finalized* level is set by an
administrator and kept in the catalog.  An epoch counts the changes, so clients recognize the newer
of two responses.

    share.version     0  no share groups: requests for them fail with UNSUPPORTED_VERSION
                      1  share groups (KIP-932)
                      2  and dead letters (KIP-1191)
    group.version     0  no consumer groups of KIP-848: requests for them fail likewise
                      1  consumer groups of KIP-848
    metadata.version  the level of Kafka 4.4; it cannot change, because the catalog has one format
    transaction.version
                      0  transactions (KIP-98)
                      1  and records with tagged fields in ``__transaction_state``
                      2  and a new producer epoch for each transaction (KIP-890)

A new data directory begins with the levels of Kafka 4.4.  A data directory without levels comes
from an older version of sharegroup and keeps the behaviour of that version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.errors import InvalidRequest, InvalidUpdateVersion, UnsupportedVersion
from sharegroup.protocol_enums import UpgradeType

SHARE_VERSION = "share.version"
GROUP_VERSION = "group.version"
METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
SHARE_GROUPS_LEVEL = 1
DEAD_LETTERS_LEVEL = 2

SHARE_APIS = frozenset({76, 77, 78, 79, 90, 91, 92})
"""The APIs that need `share.version` 1: heartbeat, describe, fetch, acknowledge, offsets."""


CONSUMER_APIS = frozenset({68, 69})
"""The APIs that need `group.version` 1: heartbeat, describe."""


class Feature(NamedTuple):
    """A feature with its oldest and newest supported level, both inclusive."""

    name: str
    oldest: int
    newest: int


FEATURES = (
    Feature(GROUP_VERSION, 0, 1),
    # Kafka 4 has no lower level than 7 (`MetadataVersion.MINIMUM_VERSION`).
    Feature(METADATA_VERSION, 7, 33),
    Feature(SHARE_VERSION, 0, 2),
    Feature(TRANSACTION_VERSION, 0, 2),
)
FIRST_LEVELS: Mapping[str, int] = MappingProxyType(
    {feature.name: feature.newest for feature in FEATURES}
)
"""The levels of a new data directory."""


class Update(NamedTuple):
    """One feature of an UpdateFeatures request; ``upgrade_type`` is not validated yet."""

    name: str
    level: int
    upgrade_type: int


class FinalizedFeatures:
    """The finalized feature levels of the cluster, and the checks for changes to them."""

    __slots__ = ("_catalog", "_off")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._off: list[Callable[[], None]] = []

    @property
    def share_groups(self) -> bool:
        """Whether share groups are switched on."""
        return self._catalog.feature_levels[SHARE_VERSION] >= SHARE_GROUPS_LEVEL

    @property
    def dead_letters(self) -> bool:
        """Whether dead letters of share groups are switched on."""
        return self._catalog.feature_levels[SHARE_VERSION] >= DEAD_LETTERS_LEVEL

    @property
    def transaction_version(self) -> int:
        """The protocol of transactions that clients may use (KIP-890)."""
        # Data directories from before transactions have no level for it (`LEVELS_BEFORE`).
        return self._catalog.feature_levels.get(TRANSACTION_VERSION, 0)

    @property
    def consumer_groups(self) -> bool:
        """Whether consumer groups of KIP-848 are switched on."""
        return self._catalog.feature_levels[GROUP_VERSION] > 0

    @property
    def finalized(self) -> Mapping[str, int]:
        """The level of each feature; features at level 0 are off and not listed."""
        return {name: level for name, level in self._catalog.feature_levels.items() if level}

    @property
    def epoch(self) -> int:
        """The epoch of the levels, which grows with each change."""
        return self._catalog.features_epoch

    def on_share_groups_off(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when share groups are switched off."""
        self._off.append(callback)

    def check_served(self, api_key: int) -> None:
        """Raise UnsupportedVersion if the API belongs to a feature that is switched off."""
        if api_key in SHARE_APIS and not self.share_groups:
            raise UnsupportedVersion(
                "share groups are disabled: share.version is 0; upgrade it to 1 or 2 to enable them"
            )

        if api_key in CONSUMER_APIS and not self.consumer_groups:
            raise UnsupportedVersion(
                "consumer groups of KIP-848 are disabled: group.version is 0; upgrade it to 1, or "
                "set group.protocol=classic in the consumer"
            )

    def changed(self, updates: tuple[Update, ...]) -> Event:
        """Return the event that sets all these levels; raise if one of them is not allowed."""
        if not updates:
            raise InvalidRequest("the request to update features names no feature")
        levels = dict(self._catalog.feature_levels)
        for update in updates:
            _check(update, levels.get(update.name, 0))
            levels[update.name] = update.level
        return {"event": "features", "levels": levels, "epoch": self.epoch + 1}

    def happened(self) -> None:
        """Call the callbacks after a durable change that switched share groups off."""
        if not self.share_groups:
            for callback in self._off:
                callback()


def _check(update: Update, current: int) -> None:
    """Raise InvalidUpdateVersion; the checks have the order of Kafka's controller."""
    change = f"feature {update.name!r} cannot go from level {current} to {update.level}"
    feature = next((candidate for candidate in FEATURES if candidate.name == update.name), None)
    problem = ""
    if update.upgrade_type not in tuple(UpgradeType):
        problem = f"upgrade type {update.upgrade_type} is unknown; expected 1, 2 or 3"
    elif feature is None:
        problem = "this broker has no such feature"
    elif not feature.oldest <= update.level <= feature.newest:
        problem = f"this broker supports {feature.oldest} to {feature.newest}"
    elif update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        problem = "a lower level needs the upgrade type safe or unsafe downgrade"
    elif update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        problem = "a higher level is not a downgrade"
    elif update.name == METADATA_VERSION and update.level != current:
        problem = "this broker has only one metadata format"
    if problem:
        raise InvalidUpdateVersion(f"{change}: {problem}")
