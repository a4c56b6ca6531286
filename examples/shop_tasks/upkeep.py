"""Upkeep: what runs by itself."""

from __future__ import annotations

from examples.shop_tasks import tables
from examples.shop_tasks.celery import app


@app.task
def remove_old_carts(days: int = 30) -> int:
    """Remove carts that nobody has touched for a time."""
    old = [cart for cart, age in tables.CARTS.items() if age > days]
    for cart in old:
        del tables.CARTS[cart]
    return len(old)


@app.task
def ping() -> str:
    """Answer, for a check of the workers."""
    return "pong"


@app.task
def reindex(articles: list[str]) -> int:
    """Write articles to the search index."""
    tables.call("search")
    return len(articles)
