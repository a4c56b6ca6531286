"""Determines the ordering key of a record, as its route declares it with ``order_by``."""

from __future__ import annotations

from sharegroup.worker.running.taken_record import OrderByFailure, TakenRecord


def find_key(record: TakenRecord) -> None:
    """Set the ordering key of a record; decodes its payload if ``order_by`` is a function.

    If this fails, the record gets an `OrderByFailure` as its payload and fails when its handler
    would run.  Raising here would disturb other records.
    """
    route = record.route
    order_by = route.order_by
    if not callable(order_by):
        record.key = record.delivery.key
        return
    try:
        record.payload = route.codec.decode(record.delivery.value)
        key = order_by(record.payload)
        hash(key)
    except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001  The application's function may raise anything.
        record.payload = OrderByFailure(error)
    else:
        record.key = key
