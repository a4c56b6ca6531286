"""Answers that are files: sent while they are read, in a bounded number at once.

A file ends with a line that says that it is not complete (`records.exports`).  If the browser takes
it too slowly, or goes away, the connection is closed, so a browser shows that the download failed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from sharegroup.console.access.audit import log_exported, quoted
from sharegroup.console.pages.exports import Export
from sharegroup.console.records.exports import EXPORT_SECONDS, Written, written

log = logging.getLogger(__name__)

EXPORTS_MAX = 4
"""Files that are sent at once, to all users together."""
STALLED_SECONDS = 60.0
"""Time in addition to `EXPORT_SECONDS` for a browser that takes a file slowly."""


class Downloads:
    """The files that a console sends."""

    def __init__(self, *, seconds_max: float = EXPORT_SECONDS + STALLED_SECONDS) -> None:
        self._seconds_max = seconds_max
        self._under_way = 0

    @property
    def is_full(self) -> bool:
        """Whether no further file can be sent now."""
        return self._under_way >= EXPORTS_MAX

    def response(self, export: Export, *, has_body: bool = True) -> Response:
        """Return the answer with a file, which is read when it is sent; without it for HEAD."""
        headers = {"Content-Disposition": f'attachment; filename="{export.file_name}"'}
        if not has_body:
            return Response(headers=headers, media_type=export.form.media_type)
        return _Download(self, export, headers)

    async def send(self, response: _Download, send: Send) -> None:
        """Send a file, and log who has got how much of it."""
        export, told = response.export, response.told
        self._under_way += 1
        try:
            async with asyncio.timeout(self._seconds_max), aclosing(response.parts):
                await response.send_parts(send)
        except TimeoutError:
            # Without the end of the answer, the server closes the connection.
            log.warning(
                "event=console.export_stalled user=%s seconds=%d action='download less at once'",
                quoted(export.user.name), self._seconds_max,
            )  # fmt: skip
        finally:
            self._under_way -= 1
            log_exported(
                export.user, export.contents.topic, values=export.contents.is_shown,
                rows=told.rows, outcome=told.outcome,
            )  # fmt: skip


class _Download(StreamingResponse):
    """An answer that is a file."""

    def __init__(self, downloads: Downloads, export: Export, headers: dict[str, str]) -> None:
        self._downloads = downloads
        self.export = export
        self.told = Written()
        self.parts = written(export.rows, export.form, self.told)
        super().__init__(self.parts, headers=headers, media_type=export.form.media_type)

    async def stream_response(self, send: Send) -> None:
        """Send the file within its bounds; the base class calls this."""
        await self._downloads.send(self, send)

    async def send_parts(self, send: Send) -> None:
        """Send the answer and its parts."""
        await super().stream_response(send)
