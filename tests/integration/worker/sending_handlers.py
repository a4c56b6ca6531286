"""Handlers that run in processes of their own and send, in several ways."""

from __future__ import annotations

import asyncio

from sharegroup.errors import MessageTooLarge
from sharegroup.worker import Reject, Retry, share_group

MANY = 250
RETRY = Retry(initial_delay="1s", jitter=0)


async def collect(word: str) -> None:
    """Get what the others send."""


words = share_group("words", topics="words", handler=collect)
_forgotten: set[asyncio.Task[object]] = set()


@share_group("relays", topics="relays", processes=1, retry=RETRY)
async def relay(how: str) -> None:
    """Send in this way."""
    match how:
        case "many":
            await asyncio.gather(*(words.send(f"{number}") for number in range(MANY)))
        case "later":
            await words.send("later", delay="10s")
        case "not awaited":
            _forgotten.add(asyncio.ensure_future(words.send(how)))
            await asyncio.sleep(0)
        case "refused":
            try:
                await words.send(how)
            except MessageTooLarge as error:
                raise Reject(f"seen: {error}") from error
        case "unique":
            await words.send(how, unique="name", for_="1h")
        case "blocking":
            await asyncio.to_thread(words.send.blocking, how)


@share_group("plain", topics="plain", processes=1)
def relay_plainly(how: str) -> None:
    """Send from a plain function."""
    written = words.send.blocking(how)
    assert written.topic == "words"
