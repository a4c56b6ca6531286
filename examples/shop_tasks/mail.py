"""Mails: shared tasks, which know no application, in the queue ``mail``."""

from __future__ import annotations

from examples.shop_tasks import tables
from sharegroup.worker.tasks import shared_task


def _send(address: str, text: str) -> None:
    tables.call("smtp")
    tables.MAILS.append((address, text))


@shared_task(autoretry_for=(tables.ServiceDown,), retry_backoff=True, ignore_result=True)
def welcome(address: str) -> None:
    """Greet a new customer."""
    _send(address, "welcome")


@shared_task(autoretry_for=(tables.ServiceDown,), retry_backoff=True, ignore_result=True)
def shipped(address: str, *, order: int) -> None:
    """Tell a customer that the parcel is on its way."""
    _send(address, f"order {order} is on its way")


@shared_task(ignore_result=True)
def review(address: str) -> None:
    """Ask for a review."""
    _send(address, "how was it?")


@shared_task(ignore_result=True, expires=300)
def login_code(address: str, code: str) -> None:
    """Send a code that is valid for five minutes."""
    _send(address, f"code {code}")


@shared_task(ignore_result=True)
def invoice(address: str, order: int, lines: list[dict[str, int]]) -> None:
    """Send an invoice."""
    _send(address, f"invoice {order}: {sum(line['cents'] for line in lines)}")


@shared_task(ignore_result=True)
def newsletter(addresses: list[str], text: str) -> None:
    """Send a mail to each, a task for each: where Celery had a group."""
    for address in addresses:
        one_newsletter.delay(address, text)


@shared_task(ignore_result=True)
def one_newsletter(address: str, text: str) -> None:
    """Send the newsletter to one address."""
    _send(address, text)
