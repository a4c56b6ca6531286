"""When to fetch before the application asks for more."""

from sharegroup.client.share.consumer.window import FUTILE_PAUSE, AheadOf
from sharegroup.client.share.session.share_requests import FetchLimits

PARKED = FetchLimits(max_records=500, max_bytes=1_000, max_wait_ms=500)
AHEAD = FetchLimits(max_records=500, max_bytes=1_000, max_wait_ms=0)


def test_broker_that_filled_the_last_fetch_may_have_more_records() -> None:
    ahead = AheadOf()
    assert not ahead.may_help(1)
    ahead.fetched(1, 500, PARKED)
    assert (ahead.may_help(1), ahead.may_help(2)) == (True, False)
    ahead.fetched(1, 512, AHEAD)
    assert ahead.may_help(1)
    ahead.fetched(1, 499, AHEAD)
    assert not ahead.may_help(1)


def test_fetching_ahead_pauses_after_a_fetch_without_records() -> None:
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
