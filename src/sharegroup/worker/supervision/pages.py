"""The health pages of a supervisor, for all its processes.

/live       200 while the supervisor works: a process that hangs is replaced by it
/ready      200 while as many processes as shall run take records of all their groups
/status     all processes with their states, as JSON
/1/status   the page of one process, also /1/live and /1/ready
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from sharegroup.http_endpoint import HttpResponse, Page
from sharegroup.worker.lifecycle.health import OK, UNAVAILABLE
from sharegroup.worker.supervision.supervisor import SPARE, Running, Supervisor

PAGE_SECONDS_MAX = 4.0
"""How long a page waits for the answer of a process; without one it leaves the process out."""
HEALTH_PAGES = ("/live", "/ready", "/status")


def health_pages(supervisor: Supervisor, about: Mapping[str, Any]) -> dict[str, Page]:
    """The health pages; ``about`` has the first facts of ``/status``."""

    async def live() -> HttpResponse:
        return HttpResponse(OK, f"{supervisor.phase}\n".encode())

    async def ready() -> HttpResponse:
        counts = f"{supervisor.ready_count} of {supervisor.count}"
        text = f"{supervisor.phase}; {counts} processes are ready\n"
        return HttpResponse(OK if supervisor.is_ready else UNAVAILABLE, text.encode())

    async def status() -> HttpResponse:
        answers = await asked(supervisor, "/status")
        processes = [
            {**_facts(running), "status": _document(answers.get(running.child.number))}
            for running in supervisor.running
        ]
        facts = {
            "phase": supervisor.phase,
            "ready": supervisor.is_ready,
            "processes": processes,
        }
        return HttpResponse.json(OK, {**about, **facts})

    pages = {"/live": live, "/ready": ready, "/status": status}
    return pages | pages_of_each(supervisor, HEALTH_PAGES)


def pages_of_each(supervisor: Supervisor, paths: tuple[str, ...]) -> dict[str, Page]:
    """Return these pages of each process, below its number."""

    def page_of(number: int, path: str) -> Page:
        async def page() -> HttpResponse:
            for running in supervisor.running:
                if running.child.number == number:
                    response = await running.child.ask(path, PAGE_SECONDS_MAX)
                    if response is not None:
                        return response
                    return HttpResponse(UNAVAILABLE, b"the process does not answer\n")
            return HttpResponse(UNAVAILABLE, b"there is no such process now\n")

        return page

    return {
        f"/{number}{path}": page_of(number, path)
        for number in range(1, supervisor.count + SPARE + 1)
        for path in paths
    }


async def asked(supervisor: Supervisor, path: str) -> dict[int, str]:
    """Return a page of each process that answers, by the number of the process."""
    running = supervisor.running
    responses = await asyncio.gather(
        *(process.child.ask(path, PAGE_SECONDS_MAX) for process in running)
    )
    return {
        process.child.number: response.body.decode()
        for process, response in zip(running, responses, strict=True)
        if response is not None and response.status == OK and isinstance(response.body, bytes)
    }


def _facts(running: Running) -> dict[str, Any]:
    return {
        "process": running.child.number,
        "pid": running.child.pid,
        "phase": running.state.phase,
        "ready": running.state.ready and not running.is_stopping,
        "memory_bytes": running.child.memory_bytes(),
    }


def _document(text: str | None) -> Any:
    """Return the state that a process has answered; None if it has not."""
    return None if text is None else json.loads(text)
