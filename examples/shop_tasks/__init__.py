"""A shop whose 30 tasks came from Celery: the application is imported here, as Celery advises."""

from examples.shop_tasks.celery import app as app
