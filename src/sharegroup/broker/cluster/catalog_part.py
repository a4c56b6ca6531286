"""What the catalog keeps besides topics: parts that know their own events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeAlias

Event: TypeAlias = dict[str, Any]
"""A change of the catalog, as its journal has it; ``event`` names its kind."""


class CatalogPart(Protocol):
    """A part of the catalog, which only `replay` changes."""

    kinds: frozenset[str]
    """The kinds of events that belong to this part."""

    def __len__(self) -> int:
        """Return the number of events that `events` yields."""
        ...

    def events(self) -> Iterator[Event]:
        """Yield the shortest sequence of events that leads to this state."""
        ...

    def replay(self, event: Event) -> None:
        """Apply one event of the kinds of this part."""
        ...


class ClientMetricsSettings:
    """The settings of the client metrics resources by name (KIP-714)."""

    kinds = frozenset({"client_metrics"})

    __slots__ = ("_settings",)

    def __init__(self) -> None:
        self._settings: dict[str, dict[str, str]] = {}

    def __len__(self) -> int:
        return len(self._settings)

    def all(self) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of every resource by its name."""
        return self._settings

    def events(self) -> Iterator[Event]:
        for name, settings in self._settings.items():
            yield {"event": "client_metrics", "name": name, "settings": settings}

    def replay(self, event: Event) -> None:
        self._settings.pop(event["name"], None)
        if event["settings"]:
            self._settings[event["name"]] = event["settings"]
