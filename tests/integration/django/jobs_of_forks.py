"""The task of the program that forks, whose settings have one backend."""

from __future__ import annotations

from django.tasks import task


@task
def add(number: int) -> int:
    return number
