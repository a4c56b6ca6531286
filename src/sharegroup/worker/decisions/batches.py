"""Derives the end of each record from the end of a batch handler.

    returns nothing, or anything else            all are done
    returns a list with exceptions in it, as     those failed, the others are done
      asyncio.gather(..., return_exceptions=True)
    raises SomeFailed({3: error})                the fourth failed, the others are done
    raises anything else                         all failed, each by its own retry policy

An explicit decision, such as ``records[3].reject()``, takes precedence in every case.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharegroup.worker.records.outcomes import SomeFailed

Ends = Sequence[BaseException | None]
"""One entry for each record: its error, or None if it is done."""


def ends_of_returned(returned: object, count: int) -> Ends:
    """Return the ends of ``count`` records whose batch handler returned ``returned``."""
    if not isinstance(returned, list | tuple):
        return (None,) * count
    ends = tuple(entry if isinstance(entry, BaseException) else None for entry in returned)
    if all(end is None for end in ends):
        return (None,) * count
    if len(ends) == count:
        return ends
    error = ValueError(
        f"a batch handler of {count} records returned a list of {len(ends)} with exceptions in "
        f"it; expected one entry for each record"
    )
    return (error,) * count


def ends_of_raised(error: BaseException, count: int) -> Ends:
    """Return the ends of ``count`` records whose batch handler raised ``error``."""
    if not isinstance(error, SomeFailed):
        return (error,) * count
    if all(0 <= index < count for index in error.errors):
        return tuple(error.errors.get(index) for index in range(count))
    wrong = IndexError(
        f"SomeFailed: indexes {sorted(error.errors)}; expected 0 to {count - 1}, as the records"
    )
    return (wrong,) * count
