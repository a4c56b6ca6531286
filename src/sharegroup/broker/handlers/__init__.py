"""One module for each request type: the list of files is the list of APIs.

A module has two functions.  ``handle(parts, context, request)`` answers a request; it is
called with the newest version of the message and may return the response or an awaitable of
it.  ``refuse(request, error)`` is the response of a request that failed as a whole.
"""

import datetime as dt
from functools import lru_cache

from kio.static.primitive import i32Timedelta


@lru_cache(maxsize=1024)
def milliseconds(count: int) -> i32Timedelta:
    """A duration as kio's messages hold it."""
    return i32Timedelta.parse(dt.timedelta(milliseconds=count))


def count_ms(duration: dt.timedelta) -> int:
    """The milliseconds of a duration that a message holds."""
    return duration // dt.timedelta(milliseconds=1)


NO_THROTTLE = milliseconds(0)
"""What every response says of throttling: this broker has no quotas yet."""
