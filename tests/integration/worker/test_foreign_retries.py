"""Records in retry topics that are not the worker's own, on either broker (`conftest`).

They came from a console, from MirrorMaker with renamed topics, from another group, or were forged.
Each of them ends as one dead letter of these failing handlers.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import pytest

from sharegroup.client import Producer
from sharegroup.dead_letters.letter_headers import DEAD_REASON
from sharegroup.dead_letters.story import RecordOrigin, Story
from sharegroup.dead_letters.story_headers import UNROUTED, story_headers
from sharegroup.worker import App, DeadLetter, Retry
from sharegroup.worker.ports import Header
from sharegroup.worker.running.record_routing import UNROUTED_MAX
from tests.integration.cli.piping import at
from tests.integration.worker.collecting import on_a_loop
from tests.integration.worker.dead import lying_in, make_topics, until_there
from tests.integration.worker.test_retry_app import TIERS, app_of, owned

TWICE = Retry(max_attempts=2, initial_delay="100ms", jitter=0)
Records = dict[str, tuple[str, tuple[Header, ...], str]]
"""By value: the topic that the record is written to, its headers, the reason of its letter."""


def failing(bootstrap: str, group: str, *topics: str) -> App:
    app = app_of(bootstrap)
    for topic in topics:

        async def fail(value: bytes) -> None:
            raise ConnectionError("gone")

        app.share_group(
            group, topics=topic, name=topic, handler=fail, retry=TWICE, retry_tiers=TIERS,
            dead_letter=DeadLetter(f"{group}.dead"),
        )  # fmt: skip
    return app


async def write(bootstrap: str, records: Records) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value, (topic, headers, _) in records.items():
            await producer.send_and_wait(topic, value.encode(), headers=headers)


async def reasons(bootstrap: str, dead: str, count: int) -> dict[str, str]:
    letters = await until_there(bootstrap, dead, count)
    assert Counter(letter.value for letter in letters).most_common(1)[0][1] == 1
    return {
        (letter.value or b"").decode(): (dict(letter.headers)[DEAD_REASON] or b"").decode()
        for letter in letters
    }


@on_a_loop
async def test_each_foreign_record_of_a_retry_topic_becomes_one_dead_letter(
    bootstrap: str, group: str, topic: str
) -> None:
    own, exhausted = f"{group}.retry", "attempts-exhausted"

    def origin(of: str, timestamp_ms: int = 0, **story: int) -> tuple[Header, ...]:
        return story_headers(Story(**story), RecordOrigin(of, 0, 7, timestamp_ms))  # type: ignore[arg-type]

    due_never = (("__sharegroup.due", b"9223372036854775807"), ("__sharegroup.delay", b"-1"))
    written_never = (("__sharegroup.written", b"9223372036854775807"),)
    records: Records = {
        "plain": (own, (), "unrouted"),
        "half an origin": (own, origin(topic)[:2], "unrouted"),
        "two origins": (own, (*origin(topic), *origin(f"{topic}-2")), "unrouted"),
        "of the own topic": (own, origin(own), "unrouted"),
        "before 1970": (own, origin(topic, -5, failures=1), exhausted),
        "first of all times": (own, origin(topic, -(2**63), failures=1), exhausted),
        "of another group": (own, (*origin(topic, failures=7), ("mine", b"\xff")), exhausted),
        "failures claimed": (own, origin(topic, failures=2**63 - 1), exhausted),
        "renamed": (own, (*origin(f"us.{topic}"), (UNROUTED, b"%d" % UNROUTED_MAX)), "unrouted"),
        "never due": (f"{own}.3s", (*origin(topic), *due_never), exhausted),
        "never written": (f"{own}.200ms", (*origin(topic), *written_never), exhausted),
        "due in due": (f"{own}.due", (*origin(topic), ("__sharegroup.due", b"soon")), exhausted),
        "plain in a tier": (f"{own}.1s", (), "unrouted"),
    }
    app = failing(bootstrap, group, topic, f"{topic}-2")
    await make_topics(bootstrap, topic, f"{topic}-2")
    async with app:
        await owned(app)
        await write(bootstrap, records)
        assert await reasons(bootstrap, f"{group}.dead", len(records)) == {
            value: reason for value, (_, _, reason) in records.items()
        }
        assert app.worker is not None
        assert app.worker.state.groups[0].unrouted == {"dead_lettered": 6}


@pytest.mark.parametrize("tier", ["", ".1s"])
def test_line_of_a_console_ends_in_the_only_handler_of_its_group(
    bootstrap: str, group: str, topic: str, tier: str
) -> None:
    """It failed, had its place in the retry topic as its origin, and circulated for ever."""

    async def test() -> None:
        app = failing(bootstrap, group, topic)
        await make_topics(bootstrap, topic)
        async with app:
            await owned(app)
            words = at(bootstrap, f"produce {group}.retry{tier}")
            sent = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sharegroup", *words, stdin=asyncio.subprocess.PIPE
            )
            await sent.communicate(b"x\n")
            assert sent.returncode == 0
            assert await reasons(bootstrap, f"{group}.dead", 1) == {"x": "attempts-exhausted"}

    asyncio.run(test())


@on_a_loop
async def test_record_of_a_renamed_topic_waits_for_a_process_with_its_handler(
    bootstrap: str, group: str, topic: str
) -> None:
    """It does not run in another handler, and each wait is counted in the record."""
    app = failing(bootstrap, group, topic)
    await make_topics(bootstrap, topic)
    headers = story_headers(Story(failures=1), RecordOrigin(f"us.{topic}", 0, 7, 0))
    async with app:
        await owned(app)
        await write(bootstrap, {"x": (f"{group}.retry", headers, "")})
        (waiting, *_) = await until_there(bootstrap, f"{group}.retry.3s", 1)
        told = dict(waiting.headers)
        assert told[UNROUTED] == b"1"
        assert told["__sharegroup.failures"] == b"1"
        assert await lying_in(bootstrap, f"{group}.dead") == []
