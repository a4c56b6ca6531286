"""What to use in place of a name that another task queue has: ``@app.task``, ``handler.delay``.

Users of Celery, Dramatiq, Faust and Karafka type these first. An ``AttributeError`` that names the
attribute alone would not help them.
"""

from __future__ import annotations

from collections.abc import Mapping

DECLARE = 'declare a handler with @app.share_group("billing", topics="orders")'
SEND = 'send a value with await handler.send(value), later with delay="10m"'
OF_APPS: Mapping[str, str] = {
    **dict.fromkeys(
        ("actor", "agent", "consumer", "handler", "job", "shared_task", "subscriber", "task"),
        DECLARE,
    ),
    **dict.fromkeys(("delay", "send_task"), SEND),
    **dict.fromkeys(("conf", "config_from_object"), "settings are arguments of App"),
    **dict.fromkeys(
        ("add_periodic_task", "beat_schedule", "on_after_configure", "on_after_finalize", "timer"),
        'send a handler a record with @app.every("5m") or @app.cron("0 6 * * 1-5")',
    ),
    "autodiscover_tasks": "register the handlers of a module with app.routes(module)",
    "control": "use sharegroup worker status, stop and quiet",
    "start_worker": "run it with: sharegroup worker MODULE:APP",
    "worker_main": "run it with: sharegroup worker MODULE:APP",
}
OF_HANDLERS: Mapping[str, str] = dict.fromkeys(
    (
        *("apply_async", "delay", "enqueue", "kiq", "message", "perform_async", "perform_later"),
        *("s", "send_with_options", "si"),
    ),
    SEND,
)


def missing_attribute(owner: object, name: str, others: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that ``owner`` lacks, with what to use in its place."""
    text = f"{type(owner).__name__!r} object has no attribute {name!r}"
    advice = f"; {others[name]} (docs/migrating.md has more)" if name in others else ""
    return AttributeError(f"{text}{advice}", name=name, obj=owner)
