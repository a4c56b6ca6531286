"""The tables: results of tasks, and the outbox."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models.deletion import CASCADE


class Migration(migrations.Migration):
    """Creates both tables."""

    initial = True

    dependencies: list[tuple[str, str]] = []

    operations = [
        migrations.CreateModel(
            name="StoredResult",
            fields=[
                ("id", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=100)),
                ("task_path", models.TextField()),
                ("queue_name", models.CharField(max_length=255)),
                ("priority", models.SmallIntegerField()),
                ("run_after", models.DateTimeField(null=True)),
                ("args", models.JSONField()),
                ("kwargs", models.JSONField()),
                ("status", models.CharField(max_length=10)),
                ("enqueued_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("last_attempted_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("return_value", models.JSONField(null=True)),
                ("errors", models.JSONField(default=list)),
                ("worker_ids", models.JSONField(default=list)),
                ("publication", models.CharField(default="", max_length=32)),
                ("redrives", models.IntegerField(default=0)),
            ],
            options={
                "verbose_name": "task result",
                "indexes": [models.Index(fields=["finished_at"], name="sharegroup_tasks_finished")],
            },
        ),
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("claimed_until", models.DateTimeField()),
                ("claim", models.CharField(default="", max_length=32)),
                (
                    "result",
                    models.OneToOneField(
                        on_delete=CASCADE,
                        to="sharegroup_tasks.storedresult",
                    ),
                ),
            ],
            options={
                "verbose_name": "task to be published",
                "verbose_name_plural": "tasks to be published",
                "indexes": [
                    models.Index(fields=["claimed_until", "id"], name="sharegroup_tasks_claimed")
                ],
            },
        ),
    ]
