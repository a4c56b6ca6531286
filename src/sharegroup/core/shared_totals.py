"""Totals that all users share, such as the memory of all groups, and what each user holds of them.

A total has a limit.  So that one user cannot take it from all others, a user may hold a part of
it: 50 percent, unless the settings say otherwise.

An item, such as a group, belongs to the user who made it.  After a restart nobody owns the stored
items, because the records of Kafka have no place for a user.  An item without an owner goes to the
next user who uses it.  Until then a user may hold its part of the rest only.  So a user who takes
its part again after each restart never gets everything.

Users whose rights are not limited have no part: without an authorizer, and for super users, the
user is None here.  Only growth is refused; a user who holds too much keeps what it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sharegroup.core.security.principal import Principal
from sharegroup.errors import KafkaError

PERCENT_KEY = "sharegroup.user.limits.percent"
"""The setting with the part that one user may hold; errors name it."""

Item = TypeVar("Item", bound=Hashable)


def part_left(*, held: int, limit: int, percent: int, unowned: int = 0) -> int:
    """Return how much more a user may take who holds ``held``; negative if it holds too much."""
    return percent * (limit - unowned) // 100 - held


def part_refusal(
    user: Principal,
    more: int,
    *,
    held: Callable[[], int],
    used: int,
    limit: int,
    percent: int,
) -> str | None:
    """Return the text of an error if ``more`` exceeds a user's part of a limit, otherwise None.

    ``held`` counts what the user holds. It is called only if the user might hold too much, because
    counting may take long: a user holds at most what is used.
    """
    if more <= max(0, part_left(held=used, limit=limit, percent=percent)):
        return None
    own = held()
    room = part_left(held=own, limit=limit, percent=percent)
    if more <= room:
        return None
    return _too_much(user, held=own, more=more, left=room, limit=limit, percent=percent)


def _too_much(user: Principal, *, held: int, more: int, left: int, limit: int, percent: int) -> str:
    """Return the text of the error for a user whose part of a total is used up."""
    return (
        f"{user} holds {held} of {limit} and asks for {more} more; one user may take "
        f"{max(left, 0)} more. Delete what it does not need, or raise the limit or "
        f"{PERCENT_KEY}={percent}"
    )


class _Holding:
    __slots__ = ("amount", "user")

    def __init__(self, user: Principal, amount: int) -> None:
        self.user = user
        self.amount = amount


class SharedTotal(Generic[Item]):
    """The sum of the amounts of all items, and of those of each user."""

    __slots__ = (
        "_held",
        "_holdings",
        "_keeps_lost",
        "_owned",
        "error",
        "item_kind",
        "name",
        "percent",
        "refused_count",
        "used",
    )

    def __init__(
        self, name: str, item_kind: str, error: type[KafkaError], percent: int = 100
    ) -> None:
        self.name = name
        """What is counted, as errors say it: "bytes of share groups"."""
        self.item_kind = item_kind
        """What an item is, as errors say it: "group"."""
        self.error = error
        """The error of a user whose part is used up."""
        self.percent = percent
        self.used = 0
        """The amounts of all items."""
        self.refused_count = 0
        """How often a user's part was used up."""
        self._held: Counter[Principal] = Counter()
        self._owned = 0
        """The amounts of all items that belong to a user."""
        self._holdings: dict[Item, _Holding] = {}
        """The items that belong to a user."""
        self._keeps_lost = False
        """Whether items without an amount keep their owner, because all items are being read."""

    def held_by(self, user: Principal) -> int:
        """Return the amounts of all items of a user."""
        return self._held[user]

    def owner(self, item: Item) -> Principal | None:
        """Return the user to whom an item belongs; None if nobody owns it."""
        holding = self._holdings.get(item)
        return None if holding is None else holding.user

    def change(self, item: Item, more: int) -> None:
        """Add to the amount of an item, or subtract from it; without an amount it is forgotten."""
        self.used += more
        holding = self._holdings.get(item)
        if holding is None:
            return
        self._hold(holding, more)
        if holding.amount <= 0 and not self._keeps_lost:
            self._forget(item, holding)

    def claim(self, item: Item, user: Principal | None, amount: int) -> None:
        """Give an item with this amount to a user, if it belongs to nobody yet."""
        if user is None or amount <= 0 or item in self._holdings:
            return
        holding = self._holdings[item] = _Holding(user, 0)
        self._hold(holding, amount)

    def check(
        self, item: Item, user: Principal | None, more: int, *, limit: int, named: str = ""
    ) -> None:
        """Raise the error of this total if an item may not grow: its user's part is used up.

        ``user`` is the one who asks; it matters only if nobody owns the item.  The caller checks
        the limit itself.  ``named`` names the item in the error, if its key does not.
        """
        if self.excess(item, user, more, limit=limit) > 0:
            raise self.refusal(item, user, more, limit=limit, named=named)

    def excess(self, item: Item, user: Principal | None, more: int, *, limit: int) -> int:
        """Return by how much ``more`` exceeds the part of an item's user; negative if it fits."""
        user = self.owner(item) or user
        # The owner's part counts, not that of the user who asks: otherwise others could fill an
        # item for a user whose part is used up.
        if user is None or more <= 0:
            return 0
        return more - self._left(user, limit)

    def refusal(
        self, item: Item, user: Principal | None, more: int, *, limit: int, named: str = ""
    ) -> KafkaError:
        """Count and return the error for a user whose part is used up."""
        self.refused_count += 1
        user = self.owner(item) or user
        assert user is not None, "only users are refused"
        held, room = self._held.get(user, 0), self._left(user, limit)
        text = _too_much(user, held=held, more=more, left=room, limit=limit, percent=self.percent)
        return self.error(f"{self.item_kind} {named or item!r}, {self.name}: {text}")

    def restarted(self) -> SharedTotal[Item]:
        """Return the total of a new reading of all items, which have the same owners.

        Call `forget_lost` after the reading.
        """
        total = SharedTotal[Item](self.name, self.item_kind, self.error, self.percent)
        total.refused_count, total._keeps_lost = self.refused_count, True
        for item, holding in self._holdings.items():
            total._holdings[item] = _Holding(holding.user, 0)
        return total

    def forget_lost(self) -> None:
        """Forget the owners of items that a new reading did not find."""
        self._keeps_lost = False
        lost = [item for item, holding in self._holdings.items() if holding.amount <= 0]
        for item in lost:
            self._forget(item, self._holdings[item])

    def _left(self, user: Principal, limit: int) -> int:
        return part_left(
            held=self._held.get(user, 0),
            limit=limit,
            percent=self.percent,
            unowned=self.used - self._owned,
        )

    def _hold(self, holding: _Holding, more: int) -> None:
        holding.amount += more
        self._held[holding.user] += more
        self._owned += more

    def _forget(self, item: Item, holding: _Holding) -> None:
        del self._holdings[item]
        self._hold(holding, -holding.amount)
        if self._held[holding.user] <= 0:
            del self._held[holding.user]


def text_bytes(text: str | None) -> int:
    """Return the memory of a text's characters, estimated upwards."""
    return 0 if text is None else len(text) * (1 if text.isascii() else 4)
