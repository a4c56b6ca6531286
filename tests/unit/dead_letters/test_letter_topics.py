"""How the settings that name dead-letter topics are read again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from sharegroup.client import ConfigEntry, ConfigResource, ConfigSource
from sharegroup.dead_letters.letter_topics import (
    ENABLED,
    NAME,
    READ_AGAIN_MAX,
    KnownNames,
    LetterSettings,
)
from sharegroup.errors import KafkaError, RequestTimedOut, TopicAuthorizationFailed


class Settings:
    """An admin client with settings by name of topic or group."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.errors: dict[str, KafkaError] = {}
        self.asked: list[str] = []

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, names: list[str]
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        (name,) = names
        assert name in (ENABLED, NAME)
        described: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
        for resource in resources:
            self.asked.append(resource.name)
            value = self.values.get(resource.name)
            entry = ConfigEntry(name, value, ConfigSource.TOPIC, False, False, None)
            described[resource] = self.errors.get(resource.name) or {name: entry}
        return described


def read(settings: LetterSettings, admin: Any, *topics: str, groups: tuple[str, ...] = ()) -> None:
    asyncio.run(settings.read(admin, KnownNames(dict.fromkeys(topics, 1), groups)))


def test_changed_settings_are_read_and_names_that_are_gone_are_forgotten() -> None:
    admin, settings = Settings(), LetterSettings()
    admin.values = {"a": "true", "billing": "b"}
    read(settings, admin, "a", "b", groups=("billing", "mailer"))
    assert settings.enabled_topics() == {"a"}
    assert settings.groups_by_topic() == {"b": ["billing"]}
    admin.values = {"b": "true", "mailer": "b"}
    read(settings, admin, "b", groups=("billing", "mailer"))
    assert settings.enabled_topics() == {"b"}
    assert settings.groups_by_topic() == {"b": ["mailer"]}
    read(settings, admin, groups=())
    assert (settings.enabled_topics(), settings.groups_by_topic()) == (set(), {})


def test_of_many_topics_new_ones_are_read_at_once_and_the_others_in_turn() -> None:
    admin, settings = Settings(), LetterSettings()
    topics = [f"topic-{number}" for number in range(2 * READ_AGAIN_MAX)]
    read(settings, admin, *topics)
    assert admin.asked == topics
    admin.asked.clear()
    read(settings, admin, "new", *topics)
    assert admin.asked == ["new", *topics[:READ_AGAIN_MAX]]
    admin.asked.clear()
    read(settings, admin, "new", *topics)
    assert admin.asked == topics[READ_AGAIN_MAX:]


def test_setting_that_cannot_be_read_for_a_moment_is_what_it_was() -> None:
    admin, settings = Settings(), LetterSettings()
    topics = [f"topic-{number}" for number in range(READ_AGAIN_MAX)]
    admin.values = {"topic-3": "true", "late": "true"}
    admin.errors = {"late": RequestTimedOut("planted")}
    read(settings, admin, *topics, "late")
    admin.errors = {"topic-3": RequestTimedOut("planted")}
    read(settings, admin, *topics, "late")
    assert settings.enabled_topics() == {"topic-3", "late"}
    admin.errors = {"topic-3": TopicAuthorizationFailed("planted")}
    read(settings, admin, *topics)
    assert settings.enabled_topics() == set()
