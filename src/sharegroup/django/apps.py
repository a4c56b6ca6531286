"""The Django application with the tables of the backend."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class SharegroupTasksConfig(AppConfig):
    """The application ``sharegroup.django``; the label of its tables is ``sharegroup_tasks``."""

    name = "sharegroup.django"
    label = "sharegroup_tasks"
    verbose_name = "Tasks on Kafka"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the check of the outbox."""
        # Imported here: models may be imported from now on.
        from sharegroup.django.removed_queues import check_outbox

        checks.register(check_outbox, checks.Tags.database)
