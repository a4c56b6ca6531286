"""The orders of the shop."""

from django.db import models


class Order(models.Model):
    """An order, and whether its receipt was sent."""

    id = models.BigAutoField(primary_key=True)
    cents = models.IntegerField()
    email = models.TextField()
    has_receipt = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"order {self.id} of {self.email}: {self.cents} cents"
