"""A web application with background jobs: it answers at once, and the mail goes out later.

    pip install 'sharegroup[worker]' starlette uvicorn
    sharegroup serve --port 9092
    uvicorn examples.web_app:web
    curl -d '{"name": "Ada", "address": "ada@example.org"}' 127.0.0.1:8000/signups
    curl 127.0.0.1:8000/mails

The worker lives as long as the web application does, in the same process and on the same event
loop.  When there is more to do than one process can, run workers alone, as many as you like:

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
    """Who wants to be welcomed."""

    name: str
    address: str


@jobs.on_startup
async def connect() -> None:
    """A mail server's connection would be opened here, and closed in `on_shutdown`."""
    jobs.state.mails = []


@jobs.share_group(
    "welcome",
    topics="signups",
    retry=Retry(max_attempts=5, initial_delay="200ms", retry_on=(ConnectionError,)),
    dead_letter=DeadLetter("signups.dead"),
)
async def welcome(signup: Signup, record: Record) -> None:
    """Send a mail; the first try fails now and then, as mail servers do."""
    if signup.name.startswith("unlucky") and record.attempt == 1:
        raise ConnectionError("the mail server hung up")
    jobs.state.mails.append({**asdict(signup), "attempt": record.attempt})


async def sign_up(request: Request) -> JSONResponse:
    """202: it will be done.  The record is on the broker's disk when the answer goes out."""
    signup = Signup(**await request.json())
    written = await welcome.send(signup, key=signup.address)
    return JSONResponse({"partition": written.partition, "offset": written.offset}, 202)


async def mails(_request: Request) -> JSONResponse:
    """What went out so far."""
    return JSONResponse(jobs.state.mails)


web = Starlette(
    routes=[Route("/signups", sign_up, methods=["POST"]), Route("/mails", mails)],
    lifespan=jobs.lifespan,
)
