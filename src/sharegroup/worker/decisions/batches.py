"""Derives the end of each record from the end of a batch handler.

    returns nothing, or a value of its own       all are done
    returns a list with exceptions in it, as     those failed, the others are done
      asyncio.gather(..., return_exceptions=True)
    returns a generator, a dict, a set, or a     all failed: the records concerned are unknown
      list of another length
    raises SomeFailed({3: error})                the fourth failed, the others are done
    raises anything else                         all failed, each by its own retry policy

An explicit decision, such as ``records[3].reject()``, takes precedence in every case.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence, Set
from itertools import islice

from sharegroup.worker.records.outcomes import SomeFailed

Ends = Sequence[BaseException | None]
"""One entry for each record: its error, or None if it is done."""


def ends_of_returned(returned: object, count: int) -> Ends:
    """Return the ends of ``count`` records whose batch handler returned ``returned``."""
    if returned is None:
        return (None,) * count
    try:
        return _ends_of(returned, count)
    except BaseException as error:  # noqa: BLE001  An application's collection may raise anything.
        return (error,) * count


def _ends_of(returned: object, count: int) -> Ends:
    expected = "expected nothing, or a list with one entry for each record"
    if isinstance(returned, Iterator | AsyncIterator | Awaitable):
        # Nothing of it has run, as in a handler with a forgotten ``yield``.
        kind = type(returned).__qualname__
        if inspect.iscoroutine(returned):
            returned.close()
        raise TypeError(f"a batch handler of {count} records returned a {kind}; {expected}")
    if not isinstance(returned, list | tuple | Mapping | Set):
        return (None,) * count
    entries = tuple(islice(returned, count + 1))
    if isinstance(returned, list | tuple) and len(entries) == count:
        return tuple(entry if isinstance(entry, BaseException) else None for entry in entries)
    kind = type(returned).__qualname__
    raise ValueError(
        f"a batch handler of {count} records returned a {kind} of {len(returned)}; {expected}, or "
        f"SomeFailed to be raised with the index of each failed record"
    )


def ends_of_raised(error: BaseException, count: int) -> Ends:
    """Return the ends of ``count`` records whose batch handler raised ``error``."""
    try:
        if not isinstance(error, SomeFailed):
            return (error,) * count
        return _ends_of_some(error.errors, count)
    except BaseException as wrong:  # noqa: BLE001  A subclass of the application may raise anything.
        return (wrong,) * count


def _ends_of_some(errors: Mapping[int, BaseException], count: int) -> Ends:
    for index, failure in errors.items():
        if type(index) is not int or not 0 <= index < count:
            raise IndexError(
                f"SomeFailed: index {index!r:.50}; expected 0 to {count - 1}, as the records"
            )
        if not isinstance(failure, BaseException):
            raise TypeError(
                f"SomeFailed: index {index} has a {type(failure).__qualname__}; expected an "
                f"exception"
            )
    return tuple(errors.get(index) for index in range(count))
