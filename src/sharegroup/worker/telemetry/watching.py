"""Adds logging and, if OpenTelemetry is used, tracing to an application."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sharegroup.worker.telemetry.logs import EventLog

if TYPE_CHECKING:
    from sharegroup.worker.application import Application


def watch(app: Application) -> None:
    """Log the application's events, and trace it if a tracer provider is set.

    Further calls for the same application have no effect.
    """
    if app.is_watched:
        return
    app.is_watched = True
    EventLog().listen(app.events)
    if "opentelemetry.trace" in sys.modules:  # Otherwise no tracer provider can be set.
        # Imported here, because it needs OpenTelemetry, which the application need not have.
        from sharegroup.worker.telemetry.tracing import tracing

        traced = tracing()
        if traced is not None:
            app.middlewares.insert(0, traced)
            app.outlet.before_send += (traced.before_send,)
