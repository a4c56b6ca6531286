"""Totals that all users share: the part that one user may hold."""

from __future__ import annotations

import pytest

from sharegroup.core.security.principal import USER, Principal
from sharegroup.core.shared_totals import SharedTotal, part_refusal
from sharegroup.errors import PolicyViolation

ALICE, BOB, CAROL = (Principal(USER, name) for name in ("alice", "bob", "carol"))


def total(percent: int = 50) -> SharedTotal[str]:
    return SharedTotal[str]("bytes of things", "thing", PolicyViolation, percent)


def take(
    things: SharedTotal[str], user: Principal | None, item: str, more: int = 1, *, limit: int = 100
) -> None:
    """Let an item grow, as a command and the replay of its records do."""
    things.check(item, user, more, limit=limit)
    things.change(item, more)
    things.claim(item, user, more)


def take_all_of(things: SharedTotal[str], user: Principal, *, limit: int = 100) -> int:
    """Take one after the other until the user is refused; return how many it got."""
    for count in range(limit + 1):
        try:
            take(things, user, f"{user.name}-{things.refused_count}-{count}", limit=limit)
        except PolicyViolation:
            return count
    raise AssertionError("the user took more than the limit")


@pytest.mark.parametrize(("percent", "count"), [(1, 1), (25, 25), (50, 50), (75, 75), (99, 99)])
def test_one_user_gets_its_part(percent: int, count: int) -> None:
    assert take_all_of(total(percent), ALICE) == count


def test_one_user_that_takes_all_it_can_does_not_change_the_part_of_the_next() -> None:
    things = total(25)
    assert [take_all_of(things, user) for user in (ALICE, BOB, CAROL)] == [25, 25, 25]
    assert things.used == 75


def test_whole_limit_is_for_users_without_a_part() -> None:
    things = total()
    take(things, None, "a", 100)
    assert things.used == 100


def test_user_with_a_hundred_percent_has_no_part() -> None:
    things = total(100)
    take(things, ALICE, "a", 100)
    with pytest.raises(PolicyViolation):
        take(things, ALICE, "b", 1)


def test_owner_is_charged_whoever_asks() -> None:
    things = total()
    take(things, ALICE, "a", 50)
    with pytest.raises(PolicyViolation, match="User:alice holds 50 of 100 and asks for 1 more"):
        take(things, BOB, "a", 1)
    with pytest.raises(PolicyViolation):
        take(things, None, "a", 1)
    take(things, BOB, "b", 50)
    assert things.owner("a") == ALICE


def test_item_without_an_owner_goes_to_the_next_user() -> None:
    things = total()
    things.change("a", 20)
    assert things.owner("a") is None
    things.claim("a", None, 20)
    assert things.owner("a") is None
    things.claim("a", ALICE, 20)
    things.claim("a", BOB, 20)
    assert (things.owner("a"), things.held_by(ALICE), things.held_by(BOB)) == (ALICE, 20, 0)


def test_what_nobody_owns_counts_as_used() -> None:
    things = total()
    things.change("old", 60)
    assert take_all_of(things, ALICE) == 20


def test_waiting_for_restarts_does_not_give_a_user_everything() -> None:
    held = 0
    for _ in range(20):
        things = total()
        things.change("before", held)
        held += take_all_of(things, ALICE, limit=100)
    assert held == 99, "the last one is always left"


def test_freed_items_make_room_and_lose_their_owner() -> None:
    things = total()
    take(things, ALICE, "a", 30)
    take(things, ALICE, "b", 20)
    things.change("a", -30)
    assert (things.used, things.held_by(ALICE), things.owner("a")) == (20, 20, None)
    take(things, BOB, "a", 40)
    assert things.owner("a") == BOB


def test_user_who_holds_too_much_keeps_it_and_may_shrink_it() -> None:
    things = total()
    things.change("a", 80)
    things.claim("a", ALICE, 80)
    with pytest.raises(PolicyViolation, match="may take 0 more"):
        take(things, ALICE, "a", 1)
    take(things, ALICE, "a", -60)
    take(things, ALICE, "a", 30)
    assert things.held_by(ALICE) == 50


def test_error_says_who_holds_what_and_what_to_do() -> None:
    things = total()
    take(things, ALICE, "a", 48)
    with pytest.raises(PolicyViolation) as refused:
        take(things, ALICE, "b", 3)
    assert str(refused.value) == (
        "thing 'b', bytes of things: User:alice holds 48 of 100 and asks for 3 more; one user may "
        "take 2 more. Delete what it does not need, or raise the limit or "
        "sharegroup.user.limits.percent=50"
    )
    assert things.refused_count == 1


def test_new_reading_keeps_owners() -> None:
    things = total()
    take(things, ALICE, "a", 10)
    take(things, ALICE, "lost", 10)
    read = things.restarted()
    assert (read.used, read.held_by(ALICE)) == (0, 0)
    read.change("a", 5)
    read.change("a", -5)  # A log may replace an item several times.
    read.change("a", 12)
    read.change("new", 1)
    read.forget_lost()
    assert (read.used, read.held_by(ALICE)) == (13, 12)
    assert [read.owner(item) for item in ("a", "lost", "new")] == [ALICE, None, None]


def test_holdings_are_counted_only_if_the_user_may_hold_too_much() -> None:
    def never() -> int:
        raise AssertionError("counted for nothing")

    def refusal(more: int, *, held: int | None, used: int) -> str | None:
        count = never if held is None else lambda: held
        return part_refusal(ALICE, more, held=count, used=used, limit=100, percent=50)

    assert refusal(10, held=None, used=40) is None
    assert refusal(0, held=None, used=90) is None
    assert refusal(10, held=40, used=60) is None
    assert refusal(11, held=40, used=60) is not None
