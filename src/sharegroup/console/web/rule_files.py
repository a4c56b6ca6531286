"""Reads the files of tokens and roles again when they change, and applies them to all sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sharegroup.console.access.changing_file import ChangingFile
from sharegroup.console.access.roles_file import read_roles
from sharegroup.console.access.tokens import read_tokens
from sharegroup.console.web.visitors import Visitors
from sharegroup.errors import InvalidConfig

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""The time after which a change of a file counts."""
STILL = "what was read before still counts; correct the file"


class RuleFiles:
    """The files that say who may come in and do what."""

    def __init__(
        self,
        visitors: Visitors,
        tell: Callable[[str, str | None], None],
        *,
        tokens: Path | None,
        roles: Path | None,
    ) -> None:
        """Watch these files; ``tell`` gets what is wrong with one of them, or None."""
        self._tell = tell
        self._problems: dict[str, str] = {}
        self._files: list[tuple[ChangingFile[Any], Callable[[Any], Awaitable[None]]]] = []
        if tokens is not None:
            file = ChangingFile[Any]("file of tokens", tokens, read_tokens)
            self._files.append((file, visitors.use_tokens))
        if roles is not None:
            file = ChangingFile[Any]("file of roles", roles, read_roles)
            self._files.append((file, visitors.use_roles))

    async def run(self) -> None:
        """Look at the files until this is cancelled."""
        while self._files:
            for file, use in self._files:
                await self._look(file, use)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, file: ChangingFile[Any], use: Callable[[Any], Awaitable[None]]) -> None:
        try:
            content = await asyncio.to_thread(file.look)
        except InvalidConfig as error:
            problem = f"{error}; {STILL}"
            if self._problems.get(file.subject) != problem:
                log.warning("event=console.rules_kept reason=%r action=%r", str(error), STILL)
            self._problems[file.subject] = problem
            self._tell(file.subject, problem)
            return
        if content is None:
            return
        await use(content)
        if self._problems.pop(file.subject, None) is not None:
            self._tell(file.subject, None)
        log.info("event=console.rules_read file=%r", file.subject)
