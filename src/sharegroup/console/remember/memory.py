"""Chooses where a console keeps its history, by its settings."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from sharegroup.console.remember.file_memory import FileMemory
from sharegroup.console.remember.notice import Notice
from sharegroup.console.remember.shared_history import SharedHistory
from sharegroup.console.settings import ConsoleSettings
from sharegroup.console.watch.history import History
from sharegroup.console.watch.watcher import Watcher

SUBJECT = "history"
"""What a problem with the memory is about, on the pages."""


class Memory(Protocol):
    """Keeps the history while `run` runs."""

    async def run(self) -> None:
        """Keep the history until this is cancelled."""


def memory_of(settings: ConsoleSettings, history: History, watcher: Watcher) -> Memory | None:
    """Return what keeps the history; None if it is in memory only."""
    notice = Notice(partial(watcher.tell, SUBJECT))
    if settings.remember:
        return SharedHistory(history, settings.client_options, notice)
    if settings.history_file is not None:
        return FileMemory(history, settings.history_file, watcher.cluster_id, notice)
    return None
