"""The Django application with the tables of the backend."""

from __future__ import annotations

from django.apps import AppConfig


class SharegroupTasksConfig(AppConfig):
    """The application ``sharegroup.django``; the label of its tables is ``sharegroup_tasks``."""

    name = "sharegroup.django"
    label = "sharegroup_tasks"
    verbose_name = "Tasks on Kafka"
    default_auto_field = "django.db.models.BigAutoField"
