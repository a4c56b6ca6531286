"""The tasks of the shop."""

from django.tasks import TaskContext, task

from shop.models import Order


@task(priority=10, takes_context=True)
def send_receipt(context: TaskContext, order_id: int) -> str:
    """Send the receipt of an order; the first attempt fails, as mail servers do."""
    order = Order.objects.get(id=order_id)
    if context.attempt == 1:
        raise ConnectionError("the mail server hung up")
    if not order.has_receipt:  # A task may run twice.
        print(f"receipt for {order}", flush=True)  # noqa: T201  The output of the example.
        Order.objects.filter(id=order_id).update(has_receipt=True)
    return order.email
