"""The backend of Django's tasks, as the setting TASKS names it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.tasks import task_backends
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import Task, TaskResult
from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
from django.utils import timezone

from sharegroup.django.options import TaskOptions, read_options
from sharegroup.durations import DELAY_DAYS_MAX
from sharegroup.errors import InvalidConfig

if TYPE_CHECKING:
    from sharegroup.django.task_app import TaskApp

APPLICATION = "sharegroup.django"


class SharegroupBackend(BaseTaskBackend):
    """Tasks on share groups, with results and outbox in Django's database.

    ``OPTIONS`` are those of `sharegroup.django.options.TaskOptions`; each of ``QUEUES`` has a share
    group and three topics.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @cached_property
    def task_options(self) -> TaskOptions:
        """The OPTIONS; raises InvalidTaskBackend if they are wrong."""
        options, problems = read_options(self.options, self.queues)
        if options is None:
            raise InvalidTaskBackend(f"TASKS[{self.alias!r}]: {'; '.join(problems)}")
        return options

    @cached_property
    def task_app(self) -> TaskApp:
        """The application that sends and runs the tasks of this backend."""
        # Imported here: tasks are declared before models may be imported.
        from sharegroup.django.task_app import task_app

        return task_app(self.alias, self.task_options, self.queues, type(self))

    def validate_task(self, task: Task) -> None:
        """Raise InvalidTask if the backend cannot run this task."""
        super().validate_task(task)
        if task.run_after is not None and _is_too_late(task.run_after):
            raise InvalidTask(
                f"run_after: expected a time within the next {DELAY_DAYS_MAX} days, got "
                f"{task.run_after.isoformat()}"
            )

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Store a task in the caller's transaction; its record is written after the commit."""
        # Imported here: tasks are declared before models may be imported.
        from sharegroup.django.enqueueing import enqueue

        self.validate_task(task)
        return enqueue(self.task_app, task, args, kwargs)

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result with this id; raises TaskResultDoesNotExist if there is none."""
        # Imported here: tasks are declared before models may be imported.
        from sharegroup.django.models import StoredResult
        from sharegroup.django.results import is_id, result_of

        name = str(result_id)
        if not is_id(name):
            raise TaskResultDoesNotExist(result_id)
        rows = StoredResult.objects.using(self.task_options.database)
        row = rows.filter(id=name, backend=self.alias).first()
        if row is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(row)

    def check(self, **_: Any) -> Iterable[checks.CheckMessage]:
        """Yield what is wrong with QUEUES and OPTIONS, and with the settings they depend on."""
        options, problems = read_options(self.options, self.queues)
        where = f"TASKS[{self.alias!r}]"
        for problem in problems:
            yield checks.Error(f"{where}: {problem}", id="sharegroup.E001")
        if not apps.is_installed(APPLICATION):
            hint = f"Add {APPLICATION!r} to INSTALLED_APPS, then run: manage.py migrate"
            yield checks.Error(f"{where}: its tables are missing.", hint=hint, id="sharegroup.E002")
            return
        if options is None:
            return
        if options.database not in settings.DATABASES:
            found = ", ".join(sorted(settings.DATABASES))
            text = f"{where}: OPTIONS: database: {options.database!r} is not in DATABASES: {found}"
            yield checks.Error(text, id="sharegroup.E003")
        for other in self._backends_with_same_groups(options):
            text = (
                f"{where}: OPTIONS: name {options.name!r} and a queue are those of TASKS[{other!r}]"
            )
            hint = "Workers would reject each other's tasks: give each backend a name of its own."
            yield checks.Error(f"{text}.", hint=hint, id="sharegroup.E004")
        try:
            self.task_app  # noqa: B018  Its declaration checks the rest.
        except InvalidConfig as error:
            yield checks.Error(f"{where}: {error}", id="sharegroup.E001")

    def _backends_with_same_groups(self, options: TaskOptions) -> Iterator[str]:
        """Yield the names in TASKS of other backends that share a group with this one."""
        for other in task_backends.all():
            if other.alias == self.alias or not isinstance(other, SharegroupBackend):
                continue
            others, _ = read_options(other.options, other.queues)
            if (
                others is not None
                and (others.name, others.bootstrap_servers)
                == (options.name, options.bootstrap_servers)
                and self.queues & other.queues
            ):
                yield other.alias


def _is_too_late(run_after: datetime) -> bool:
    if timezone.is_naive(run_after):
        run_after = timezone.make_aware(run_after, timezone.get_default_timezone())
    return run_after > timezone.now().astimezone(run_after.tzinfo) + timedelta(days=DELAY_DAYS_MAX)
