"""One module for each request type: the list of files is the list of APIs.

`broker.handler_contract` says what the functions of a module get and may return, and
`broker.handler_table` names them for each API.
"""

import datetime as dt
from functools import lru_cache

from kio.static.primitive import i32Timedelta


@lru_cache(maxsize=1024)
def milliseconds(count: int) -> i32Timedelta:
    """Return a duration in the type that kio's messages have."""
    return i32Timedelta.parse(dt.timedelta(milliseconds=count))


def count_ms(duration: dt.timedelta) -> int:
    """Return the milliseconds of a duration from a message."""
    return duration // dt.timedelta(milliseconds=1)


NO_THROTTLE = milliseconds(0)
"""The throttle time that handlers set; `dispatch` replaces it if the client is over a quota."""
