"""Calls to an external API that is slow, has a rate limit and is sometimes overloaded.

    pip install '.[worker]' httpx
    sharegroup serve --port 9092
    API=https://api.example.org/geocode sharegroup worker examples.slow_api:app
    echo '{"id": 1, "address": "Unter den Linden 1, Berlin"}' | sharegroup produce places

Up to a hundred calls wait for their responses at a time, and at most fifty start in a second.
If the API answers 429 with Retry-After, the record is retried after that time and does not block
others meanwhile.  An address that the API does not know (404) becomes a dead letter at once,
because a retry would not help.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import httpx

from sharegroup.worker import App, DeadLetter, RateLimit, Reject, Retry, RetryAfter

API = os.environ.get("API", "http://127.0.0.1:8000/geocode")
app = App("geocoding")


@dataclass
class Place:
    """An address to look up."""

    id: int
    address: str


@dataclass
class Found:
    """The coordinates of a place."""

    id: int
    latitude: float
    longitude: float


@app.on_startup
async def open_client() -> None:
    """Creates one client for all calls, which reuses its connections."""
    app.state.http = httpx.AsyncClient(base_url=API, timeout=10)


@app.on_shutdown
async def close_client() -> None:
    await app.state.http.aclose()


@app.share_group(
    "geocoding",
    topics="places",
    concurrency=100,
    rate_limit=RateLimit(50, 1.0),
    max_handling="30s",
    retry=Retry(
        max_attempts=6,
        initial_delay="500ms",
        multiplier=3,
        retry_on=(httpx.TransportError, OSError),
    ),
    dead_letter=DeadLetter("places.dead"),
)
async def geocode(place: Place) -> None:
    """Requests the coordinates and sends them to another handler of this application."""
    answer = await app.state.http.get("", params={"q": place.address})
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise RetryAfter(float(answer.headers.get("Retry-After", 1)), "the API is busy")
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise Reject(f"unknown address {place.address!r}")
    answer.raise_for_status()
    await store.send(Found(place.id, **answer.json()), key=str(place.id))


@app.share_group("found-places", topics="places.found", dead_letter=DeadLetter("places.dead"))
def store(found: Found) -> None:
    """Stores the coordinates in a file, as a stand-in for a database.  It runs in a thread."""
    with open(os.environ.get("FOUND", "found.csv"), "a") as file:
        file.write(f"{found.id},{found.latitude},{found.longitude}\n")
