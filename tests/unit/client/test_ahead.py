"""When to fetch before the application asks for more."""

from sharegroup.client.share.fetches_ahead import FUTILE_PAUSE, AheadOf
from sharegroup.client.share_sessions.share_requests import FetchLimits

PARKED = FetchLimits(max_records=500, max_bytes=1_000, max_wait_ms=500)
AHEAD = FetchLimits(max_records=500, max_bytes=1_000, max_wait_ms=0)


def test_a_broker_that_had_all_that_was_asked_for_has_more() -> None:
    ahead = AheadOf()
    assert not ahead.may_help(1)
    ahead.fetched(1, 500, PARKED)
    assert (ahead.may_help(1), ahead.may_help(2)) == (True, False)
    ahead.fetched(1, 512, AHEAD)
    assert ahead.may_help(1)
    ahead.fetched(1, 499, AHEAD)
    assert not ahead.may_help(1)


def test_where_all_locks_are_in_use_it_is_not_tried_again_for_a_while() -> None:
    ahead = AheadOf()
    ahead.fetched(1, 500, PARKED)
    ahead.fetched(1, 0, AHEAD)
    for _ in range(FUTILE_PAUSE):
        assert not ahead.may_help(1)
        ahead.fetched(1, 500, PARKED)
    assert ahead.may_help(1)


def test_the_end_of_the_log_is_no_reason_to_wait() -> None:
    ahead = AheadOf()
    ahead.fetched(1, 500, PARKED)
    ahead.fetched(1, 0, AHEAD)
    ahead.fetched(1, 3, PARKED)
    ahead.fetched(1, 500, PARKED)
    assert ahead.may_help(1)
