"""A backend of Django's tasks (``django.tasks``, since Django 6) on share groups of Kafka.

    INSTALLED_APPS = [..., "sharegroup.django"]
    TASKS = {"default": {"BACKEND": "sharegroup.django.SharegroupBackend"}}

    task.enqueue()     one transaction of the caller: a result (READY) and a row of the outbox
       commit          the process publishes the row and deletes it; the relay of a worker does so
                       for rows that were left, for example by a process that died
    manage.py sharegroup_worker
                       takes the record, runs the task, stores its outcome

A record has the task's id and nothing else, so a topic's writer cannot choose what runs.

Names are imported when they are first used, because Django imports this package before its models
may be imported.
"""

from typing import TYPE_CHECKING

from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install
from sharegroup.lazy_names import lazy_names

if TYPE_CHECKING:
    from sharegroup.django.backend import SharegroupBackend as SharegroupBackend

if not TYPE_CHECKING:
    _names, __dir__, __all__ = lazy_names(__name__, {"django.backend": "SharegroupBackend"})

    def __getattr__(name: str) -> object:
        """Return a public name, or raise what to install for it."""
        try:
            return _names(name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "django":
                raise
            raise MissingExtra(
                f"{error}: sharegroup.django needs Django 6 or newer, {pip_install('django')}"
            ) from error
