"""A web application with background jobs: it answers at once and sends the mail later.

    pip install '.[worker]' starlette uvicorn
    sharegroup serve --port 9092
    uvicorn examples.web_app:web
    curl -d '{"name": "Ada", "address": "ada@example.org"}' 127.0.0.1:8000/signups
    curl 127.0.0.1:8000/mails
    curl 127.0.0.1:8000/ready

The worker starts and stops with the web application, in the same process and on the same event
loop.  At SIGTERM the server finishes its requests, and then the worker its records.  If one process
is not enough, run additional workers:

    sharegroup worker examples.web_app:jobs
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sharegroup.worker import App, DeadLetter, Record, Retry

jobs = App("signups", bootstrap_servers=os.environ.get("BOOTSTRAP", "127.0.0.1:9092"))


@dataclass
class Signup:
    """A person to be welcomed."""

    name: str
    address: str


@jobs.on_startup
async def connect() -> None:
    """Would open the connection to a mail server; `on_shutdown` would close it."""
    jobs.state.mails = []


@jobs.share_group(
    "welcome",
    topics="signups",
    retry=Retry(max_attempts=5, initial_delay="200ms", retry_on=(ConnectionError,)),
    dead_letter=DeadLetter("signups.dead"),
)
async def welcome(signup: Signup, record: Record) -> None:
    """Sends a mail; the first attempt fails for some names, as with a real mail server."""
    if signup.name.startswith("unlucky") and record.attempt == 1:
        raise ConnectionError("the mail server hung up")
    jobs.state.mails.append({**asdict(signup), "attempt": record.attempt})


async def sign_up(request: Request) -> JSONResponse:
    """Answers 202 (accepted) when the record is durable on the broker."""
    signup = Signup(**await request.json())
    written = await welcome.send(signup, key=signup.address)
    return JSONResponse({"partition": written.partition, "offset": written.offset}, 202)


async def mails(_request: Request) -> JSONResponse:
    """Returns the mails sent so far."""
    return JSONResponse(jobs.state.mails)


async def ready(_request: Request) -> JSONResponse:
    """Answers 200 while the worker takes records; for the readiness probe of Kubernetes."""
    health = jobs.health()
    return JSONResponse(health.facts, 200 if health.is_healthy else 503)


web = Starlette(
    routes=[
        Route("/signups", sign_up, methods=["POST"]),
        Route("/mails", mails),
        Route("/ready", ready),
    ],
    lifespan=jobs.lifespan,
)
