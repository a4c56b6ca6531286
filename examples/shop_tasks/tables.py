"""The database of the example: dicts in memory, and services that fail as often as a test says."""

from __future__ import annotations

from typing import Any

ORDERS: dict[int, dict[str, Any]] = {}
STOCK: dict[str, int] = {}
MAILS: list[tuple[str, str]] = []
PRICES: dict[str, int] = {}
CARTS: dict[str, int] = {}
"""The age in days of each cart."""
REPORTS: dict[str, Any] = {}
FAILURES: dict[str, int] = {}
"""How often each service fails from now on."""


class ServiceDown(ConnectionError):
    """A service does not answer."""


def call(service: str) -> None:
    """Stand for a call of a service over the network."""
    if FAILURES.get(service, 0) > 0:
        FAILURES[service] -= 1
        raise ServiceDown(f"{service} does not answer")


def clear() -> None:
    """Empty all tables."""
    for table in (ORDERS, STOCK, MAILS, PRICES, CARTS, REPORTS, FAILURES):
        table.clear()
