"""Health of a worker, for whoever restarts it or sends it work.

/live     200 while leaving the process alone is right; no answer at all when its loop hangs
/ready    200 while it takes records of all its groups; 503 quiet, stopping or not joined yet
/status   how everything stands, as JSON
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from sharegroup.worker.living.endpoint import Answer, Page
from sharegroup.worker.seeing.state import Observed

OK = 200
UNAVAILABLE = 503


def pages(worker: Callable[[], Observed | None], about: Mapping[str, Any]) -> dict[str, Page]:
    """The pages of a worker that may not be there yet; ``about`` begins the status."""

    async def live() -> Answer:
        one = worker()
        alive = one is None or one.state.is_alive
        return _said(alive, one.state.phase if one else "starting")

    async def ready() -> Answer:
        one = worker()
        return _said(one is not None and one.state.is_ready, _unready(one))

    async def status() -> Answer:
        one = worker()
        return Answer.json(OK, {**about, **(status_of(one) if one else {"phase": "starting"})})

    return {"/live": live, "/ready": ready, "/status": status}


def status_of(worker: Observed) -> dict[str, Any]:
    """How everything stands, for JSON."""
    state = worker.state
    return {
        "phase": str(state.phase),
        "ready": state.is_ready,
        "groups": [asdict(one) for one in state.groups],
        "handlers": [
            {
                "group": one.group,
                "handler": one.handler,
                "running": one.running,
                "succeeded": one.succeeded,
                "failed": dict(one.failed),
                "rejected": one.rejected,
                "released": one.released,
                "held": one.held,
                "postponed": one.postponed,
                "dead_lettered": one.dead_lettered,
            }
            for one in worker.counts
        ],
    }


def _unready(worker: Observed | None) -> str:
    if worker is None:
        return "starting"
    absent = [one.group for one in worker.state.groups if not one.joined]
    joining = f"; not joined: {', '.join(absent)}" if absent else ""
    return f"{worker.state.phase}{joining}"


def _said(is_so: bool, text: str) -> Answer:
    return Answer(OK if is_so else UNAVAILABLE, f"{text}\n".encode())
