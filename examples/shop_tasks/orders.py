"""Orders: charged, reserved and shipped, each step sends the next, where Celery had a chain."""

from __future__ import annotations

from typing import Any

from examples.shop_tasks import mail, tables
from examples.shop_tasks.celery import app
from sharegroup.worker import Reject
from sharegroup.worker.tasks import Ignore, Task


@app.task
def place(order: int, article: str, cents: int, *, customer: str) -> int:
    """Store an order, and begin its chain."""
    row = {"article": article, "cents": cents, "customer": customer, "state": "new"}
    if tables.ORDERS.setdefault(order, row) == row:  # A second run finds its own row.
        charge.apply_async((order,), task_id=f"charge-{order}", priority=9)
    return order


@app.task(autoretry_for=(tables.ServiceDown,), max_retries=5, retry_backoff=2, retry_jitter=False)
def charge(order: int) -> str:
    """Charge an order; the payment service knows the order's number, so a second call is none."""
    row = tables.ORDERS[order]
    if row["cents"] <= 0:
        raise Reject(f"order {order} has nothing to pay")
    tables.call("payments")
    row["state"] = "charged"
    reserve.delay(order)
    return f"receipt-{order}"


@app.task(bind=True, max_retries=3, default_retry_delay=60)
def reserve(self: Task[..., Any], order: int) -> None:
    """Take the article from the stock, and try again when there is none."""
    row = tables.ORDERS[order]
    if row["state"] != "charged":
        raise Ignore
    if tables.STOCK.get(row["article"], 0) == 0:
        raise self.retry(exc=LookupError(f"no {row['article']} in stock"), countdown=60)
    tables.STOCK[row["article"]] -= 1
    row["state"] = "reserved"
    ship.delay(order)


@app.task(autoretry_for=(tables.ServiceDown,), retry_kwargs={"max_retries": 2, "countdown": 30})
def ship(order: int) -> None:
    """Order the parcel, and tell the customer."""
    tables.call("parcels")
    tables.ORDERS[order]["state"] = "shipped"
    mail.shipped.delay(tables.ORDERS[order]["customer"], order=order)


@app.task
def cancel(order: int, reason: str = "asked for") -> bool:
    """Cancel an order that is not shipped."""
    row = tables.ORDERS[order]
    if row["state"] == "shipped":
        return False
    row.update(state="cancelled", reason=reason)
    return True


@app.task
def refund(order: int, cents: int) -> None:
    """Pay money back."""
    tables.call("payments")
    tables.ORDERS[order]["refunded"] = cents


@app.task
async def track(order: int) -> str:
    """Ask where a parcel is; a coroutine, which occupies no thread."""
    tables.call("parcels")
    return str(tables.ORDERS[order]["state"])


@app.task(ignore_result=True, expires=3600)
def remind(order: int) -> None:
    """Ask for a review; worth nothing when it is late."""
    mail.review.delay(tables.ORDERS[order]["customer"])
