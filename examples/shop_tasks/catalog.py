"""The catalogue: prices, stock and pictures."""

from __future__ import annotations

import time
from typing import Any

from examples.shop_tasks import tables
from examples.shop_tasks.celery import app
from sharegroup.worker.tasks import Task


@app.task(autoretry_for=(tables.ServiceDown,), default_retry_delay=10)
def fetch_rates() -> dict[str, float]:
    """Read the exchange rates."""
    tables.call("rates")
    return {"EUR": 1.0, "USD": 1.1}


@app.task
def set_price(article: str, cents: int) -> None:
    """Change a price."""
    tables.PRICES[article] = cents


@app.task
def raise_prices(percent: int, articles: list[str] | None = None) -> int:
    """Change many prices, a task for each."""
    chosen = sorted(tables.PRICES) if articles is None else articles
    for article in chosen:
        set_price.delay(article, tables.PRICES[article] * (100 + percent) // 100)
    return len(chosen)


@app.task(priority=9)
def restock(article: str, pieces: int) -> int:
    """Note a delivery."""
    tables.STOCK[article] = tables.STOCK.get(article, 0) + pieces
    return tables.STOCK[article]


@app.task(time_limit=1, priority=0)
def thumbnail(path: str, width: int = 200) -> str:
    """Make a picture smaller; one that takes too long is given up."""
    while path == "endless.png":
        time.sleep(0.01)
    return f"{path}-{width}"


@app.task(bind=True, name="catalog.import")
def import_file(self: Task[..., Any], path: str) -> dict[str, Any]:
    """Import a file, and say which run did it."""
    tables.REPORTS[path] = self.request.id
    return {
        "path": path,
        "run": self.request.retries,
        "queue": self.request.delivery_info["routing_key"],
    }
