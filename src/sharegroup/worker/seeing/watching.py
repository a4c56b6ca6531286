"""What looks at an application without being asked: its log, and traces where there are any."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sharegroup.worker.seeing.logs import EventLog

if TYPE_CHECKING:
    from sharegroup.worker.application import Application


def watch(app: Application) -> None:
    """Write its events to the log, and trace it if a tracer provider is set; once."""
    if app.is_watched:
        return
    app.is_watched = True
    EventLog().listen(app.events)
    if "opentelemetry.trace" in sys.modules:  # Else nobody can have set a provider.
        from sharegroup.worker.seeing.tracing import tracing

        traced = tracing()
        if traced is not None:
            app.middlewares.insert(0, traced)
            app.outlet.before_send += (traced.before_send,)
