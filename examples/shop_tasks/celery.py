"""The application: the file ``celery.py`` of a project that came from Celery.

    sharegroup worker examples.shop_tasks.celery:app

What changed is in docs/tasks.md, with the lines before and after.
"""

from sharegroup.worker.tasks import TaskApp as Celery, crontab

app = Celery(
    "shop",
    broker="127.0.0.1:9092",
    backend="sqlite:///results.db",
    include=[
        "examples.shop_tasks.orders",
        "examples.shop_tasks.mail",
        "examples.shop_tasks.catalog",
        "examples.shop_tasks.reports",
        "examples.shop_tasks.upkeep",
    ],
)
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    timezone="Europe/Berlin",
    enable_utc=True,
    result_expires=3600,
    task_acks_late=True,
    task_time_limit=300,
    task_queue_max_priority=9,
    task_routes={
        "examples.shop_tasks.mail.*": {"queue": "mail"},
        "examples.shop_tasks.reports.*": {"queue": "reports"},
    },
    worker_concurrency=8,
    worker_enable_remote_control=True,
    queue_options={"mail": {"rate_limit": "20/s"}, "reports": {"concurrency": 2}},
    beat_schedule={
        "sales-of-the-day": {
            "task": "examples.shop_tasks.reports.sales",
            "schedule": crontab(hour=6, minute=0, day_of_week="mon-fri"),
            "args": ("day",),
        },
        "carts": {
            "task": "examples.shop_tasks.upkeep.remove_old_carts",
            "schedule": 600.0,
            "kwargs": {"days": 30},
        },
        "rates": {
            "task": "examples.shop_tasks.catalog.fetch_rates",
            "schedule": crontab(minute="*/15"),
            "options": {"expires": 600},
        },
    },
)
