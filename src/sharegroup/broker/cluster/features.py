"""Features: what this broker could do, and the level that the cluster was told to use (KIP-584).

A *supported* range is the software's; a *finalized* level is an administrator's decision, kept
in the catalog and counted by an epoch, so that clients know the newer of two answers.

    share.version     0  no share groups: every request for them is UNSUPPORTED_VERSION
                      1  share groups (KIP-932)
                      2  and dead letters (KIP-1191)
    group.version     what Kafka 4.4 reports; nothing here depends on it
    metadata.version  the same; it cannot change, since the catalog has one format

A new data directory begins with the levels of Kafka 4.4.  One of a version of sharegroup that
did not write levels goes on with what that version did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from sharegroup.broker.cluster.catalog import Catalog, Event
from sharegroup.errors import InvalidRequest, InvalidUpdateVersion, UnsupportedVersion

SHARE_VERSION = "share.version"
METADATA_VERSION = "metadata.version"
SHARE_GROUPS_LEVEL = 1
DEAD_LETTERS_LEVEL = 2

SHARE_APIS = frozenset({76, 77, 78, 79, 90, 91, 92})
"""What needs `share.version` 1: heartbeat, describe, fetch, acknowledge, and offsets."""


class UpgradeType(IntEnum):
    """How far an update may go (UpdateFeatures' UpgradeType)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Feature(NamedTuple):
    """What the software can do; both levels are inclusive."""

    name: str
    oldest: int
    newest: int


FEATURES = (
    Feature("group.version", 0, 1),
    Feature(METADATA_VERSION, 7, 33),
    Feature(SHARE_VERSION, 0, 2),
)
FIRST_LEVELS: Mapping[str, int] = MappingProxyType(
    {feature.name: feature.newest for feature in FEATURES}
)
"""The levels of a new data directory."""


class Update(NamedTuple):
    """One feature of an UpdateFeatures; ``upgrade_type`` is whatever the client sent."""

    name: str
    level: int
    upgrade_type: int


class Features:
    """See the module's text."""

    __slots__ = ("_catalog", "_off")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._off: list[Callable[[], None]] = []

    @property
    def share_groups(self) -> bool:
        """Whether there are share groups at the moment."""
        return self._catalog.feature_levels[SHARE_VERSION] >= SHARE_GROUPS_LEVEL

    @property
    def dead_letters(self) -> bool:
        """Whether share groups may have dead letters at the moment."""
        return self._catalog.feature_levels[SHARE_VERSION] >= DEAD_LETTERS_LEVEL

    @property
    def finalized(self) -> Mapping[str, int]:
        """The level of each feature; one at level 0 is off, and not listed."""
        return {name: level for name, level in self._catalog.feature_levels.items() if level}

    @property
    def epoch(self) -> int:
        """Goes up with every change."""
        return self._catalog.features_epoch

    def on_share_groups_off(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when share groups are switched off."""
        self._off.append(callback)

    def check_served(self, api_key: int) -> None:
        """Raise UnsupportedVersion for a request that is switched off."""
        if api_key in SHARE_APIS and not self.share_groups:
            raise UnsupportedVersion(
                "share groups are switched off: share.version is 0; an upgrade to 1 or 2 switches "
                "them on"
            )

    def changed(self, updates: tuple[Update, ...]) -> Event:
        """The event that sets these levels, all of them; raises when one cannot be."""
        if not updates:
            raise InvalidRequest("an update of features names none")
        levels = dict(self._catalog.feature_levels)
        for update in updates:
            _check(update, levels.get(update.name, 0))
            levels[update.name] = update.level
        return {"event": "features", "levels": levels, "epoch": self.epoch + 1}

    def happened(self) -> None:
        """A change is durable: what is switched off ends now."""
        if not self.share_groups:
            for tell in self._off:
                tell()


def _check(update: Update, current: int) -> None:
    """Raise InvalidUpdateVersion in the order in which Kafka's controller would."""
    asked = f"feature {update.name!r} cannot go from level {current} to {update.level}"
    feature = next((one for one in FEATURES if one.name == update.name), None)
    problem = ""
    if update.upgrade_type not in tuple(UpgradeType):
        problem = f"upgrade type {update.upgrade_type} is none of 1, 2 and 3"
    elif feature is None:
        problem = "this broker has no such feature"
    elif not feature.oldest <= update.level <= feature.newest:
        problem = f"this broker supports {feature.oldest} to {feature.newest}"
    elif update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        problem = "a lower level needs the upgrade type safe or unsafe downgrade"
    elif update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        problem = "a higher level is not a downgrade"
    elif update.name == METADATA_VERSION and update.level != current:
        problem = "the metadata of this broker has one format"
    if problem:
        raise InvalidUpdateVersion(f"{asked}: {problem}")
