"""The tables of the backend: results of tasks, and the outbox of tasks to be published."""

from __future__ import annotations

from django.db import models

ID_CHARACTERS = 32


class StoredResult(models.Model):
    """A task with its arguments and its outcome; rows are removed by ``sharegroup_purge``."""

    id = models.CharField(max_length=ID_CHARACTERS, primary_key=True)
    backend = models.CharField(max_length=100)
    task_path = models.TextField()
    queue_name = models.CharField(max_length=255)
    priority = models.SmallIntegerField()
    run_after = models.DateTimeField(null=True)
    args = models.JSONField()
    kwargs = models.JSONField()
    status = models.CharField(max_length=10)
    enqueued_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    last_attempted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    return_value = models.JSONField(null=True)
    errors = models.JSONField(default=list)
    worker_ids = models.JSONField(default=list)
    publication = models.CharField(max_length=ID_CHARACTERS, default="")
    """The publication whose record runs the task: records of others are duplicates."""
    redrives = models.IntegerField(default=0)
    """How often the record had been redriven from the dead letters when it last ran."""

    class Meta:
        """The index is the purge's."""

        verbose_name = "task result"
        indexes = (models.Index(fields=["finished_at"], name="sharegroup_tasks_finished"),)

    def __str__(self) -> str:
        return f"{self.task_path} {self.id} {self.status}"


class OutboxRow(models.Model):
    """A task to be published; deleted when the broker has confirmed its record."""

    id = models.BigAutoField(primary_key=True)
    result = models.OneToOneField(StoredResult, on_delete=models.CASCADE)
    claimed_until = models.DateTimeField()
    """Until then the process that claimed the row publishes it, and others leave it alone."""
    claim = models.CharField(max_length=ID_CHARACTERS, default="")

    class Meta:
        """The index is the relay's."""

        verbose_name = "task to be published"
        verbose_name_plural = "tasks to be published"
        indexes = (models.Index(fields=["claimed_until", "id"], name="sharegroup_tasks_claimed"),)

    def __str__(self) -> str:
        return f"{self.id} {self.result_id}"
