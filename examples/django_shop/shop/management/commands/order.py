"""``manage.py order CENTS EMAIL``: stores an order, and enqueues its receipt with it."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from shop.models import Order
from shop.tasks import send_receipt


class Command(BaseCommand):
    """Takes an order."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the arguments."""
        parser.add_argument("cents", type=int)
        parser.add_argument("email")

    def handle(self, **options: Any) -> None:
        """Store the order and the task in one transaction: both, or neither."""
        with transaction.atomic():
            order = Order.objects.create(cents=options["cents"], email=options["email"])
            result = send_receipt.enqueue(order.id)
        self.stdout.write(f"{order}, task {result.id}")
