"""A worker that has the rights of docs/clusters.md works; without one of them it says which.

The commands for dead letters are here, too.  Each attempt is a worker of its own that handles two
orders, so all of this is for ``make interop`` and ``make interop-kafka``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.errors import KafkaError
from sharegroup.worker import App, DeadLetter, Holding, Retry
from sharegroup.worker.infrastructure.applying import prepare
from tests.integration.cli.piping import sharegroup
from tests.interop.guarded import Guarded, Right, Visitor, each_missing, furnish, guarded, tables
from tests.support.chosen_broker import KAFKA, LONG_WITH_A_JVM, ON_KAFKA, chosen

pytestmark = [LONG_WITH_A_JVM, *(ON_KAFKA if chosen() == KAFKA else [])]

TABLES = tables()
BARE = TABLES["A worker with `--no-prepare`, without retries and dead letters"].rights
RETRIES, LETTERS = TABLES["Its retries"].rights, TABLES["Its dead letters"].rights
LOOKING = TABLES["A user who runs `worker plan` or `worker check`"].rights
MAKING = TABLES["A user who runs `worker apply`, in addition"].rights
LETTER_COMMANDS = TABLES["Dead letters"].rows
WAITING_COMMANDS = TABLES["Waiting records"].rows
ALL = [*BARE, *RETRIES, *LETTERS]
WORK_SECONDS = 40.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as node:
        yield node


class Attempt:
    """A worker whose handler fails, unless there is neither a retry nor a dead letter for that."""

    def __init__(self, visitor: Visitor, *, retries: bool, letters: bool, prepare: bool) -> None:
        self.done = asyncio.Event()
        ended: list[object] = []
        prefix, ending = visitor.prefix, "record.succeeded"
        if retries or letters:
            ending = "record.dead_lettered" if letters else "record.rejected"
        app = self.app = App(
            "orders-service",
            bootstrap_servers=visitor.bootstrap_servers,
            prepare=prepare,
            grace="1s",
        )
        app.client_options |= visitor.options
        del app.client_options["bootstrap_servers"]

        @app.share_group(
            prefix + "billing",
            topics=prefix + "orders",
            retry=Retry(max_attempts=2, initial_delay="200ms", multiplier=1, jitter=0)
            if retries
            else None,
            retry_tiers=("200ms",),
            holding=Holding(longest_seconds=0),
            dead_letter=DeadLetter(prefix + "orders.dead") if letters else None,
        )
        async def bill(value: bytes) -> None:
            if retries or letters:
                raise ConnectionError("no answer")

        @app.on(ending)
        def end(event: object) -> None:
            ended.append(event)
            if len(ended) == 2:
                self.done.set()

    def use_open_door(self, visitor: Visitor) -> None:
        """Work as the user who may everything."""
        self.app.bootstrap_servers, self.app.client_options = visitor.open_door, {}


class Lines(logging.Handler):
    """What is logged, as one text."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"


@contextmanager
def logged() -> Iterator[Lines]:
    lines, logger = Lines(), logging.getLogger("sharegroup")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


def work(
    kafka: Guarded,
    rights: Sequence[Right],
    *,
    absent: Right | None = None,
    made: bool = True,
    **kinds: bool,
) -> tuple[bool, str]:
    """Whether a worker did its work, or said that ``absent`` is missing; and what it said.

    Unless everything is ``made`` before, the worker makes it.
    """
    visitor = kafka.visitor(rights)
    pattern = None if absent is None else absent.missing(visitor.name, visitor.prefix)

    async def scenario(lines: Lines) -> None:
        await furnish(visitor)
        if made:
            maker = Attempt(visitor, retries=True, letters=True, prepare=True)
            maker.use_open_door(visitor)
            async with AdminClient(bootstrap_servers=visitor.open_door) as admin:
                await prepare(maker.app, admin)
        attempt = Attempt(visitor, **kinds)
        async with asyncio.timeout(WORK_SECONDS), attempt.app:
            while not attempt.done.is_set():
                if pattern is not None and pattern.search(lines.text):
                    return
                await asyncio.sleep(0.02)

    with logged() as lines:
        try:
            asyncio.run(scenario(lines))
            done = True
        except (KafkaError, TimeoutError) as error:
            lines.text += repr(error)
            done = False
    return done if pattern is None else pattern.search(lines.text) is not None, lines.text


def check_each(
    kafka: Guarded, rights: Sequence[Right], needed: Sequence[Right], **kinds: bool
) -> None:
    """All of these rights suffice, and without one that is ``needed`` the worker says which."""
    worked, said = work(kafka, rights, **kinds)
    assert worked, said
    for absent, others in each_missing(rights):
        if absent in needed:
            told, said = work(kafka, others, absent=absent, **kinds)
            assert told, f"without {absent} it says {said}"


def test_worker_without_retries_and_dead_letters(kafka: Guarded) -> None:
    check_each(kafka, BARE, BARE, retries=False, letters=False, prepare=False)


def test_worker_with_retries_and_dead_letters(kafka: Guarded) -> None:
    check_each(kafka, ALL, ALL, retries=True, letters=True, prepare=False)


@pytest.mark.parametrize(("retries", "letters"), [(True, False), (False, True)])
def test_worker_with_retries_or_dead_letters_needs_their_rights(
    kafka: Guarded, retries: bool, letters: bool
) -> None:
    rights = [*BARE, *(RETRIES if retries else LETTERS)]
    worked, said = work(kafka, rights, retries=retries, letters=letters, prepare=False)
    assert worked, said


def test_worker_that_creates_missing_topics_needs_more_rights(kafka: Guarded) -> None:
    rights = [*ALL, *LOOKING, *MAKING]
    check_each(kafka, rights, MAKING, made=False, retries=True, letters=True, prepare=True)


MODULE = """
from sharegroup.worker import App, DeadLetter, Retry

app = App("orders-service")

@app.share_group({billing!r}, topics={orders!r}, dead_letter=DeadLetter({orders!r} + ".dead"))
async def bill(value: bytes) -> None: ...
"""


@pytest.mark.parametrize("verb", ["plan", "check", "apply"])
def test_infrastructure_commands_need_their_rights(
    kafka: Guarded, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything exists for ``plan`` and ``check``, and nothing for ``apply``."""
    monkeypatch.chdir(tmp_path)
    is_made = verb != "apply"
    needed = LOOKING if is_made else MAKING
    rights = LOOKING if is_made else [*LOOKING, *MAKING]

    def attempt(given: Sequence[Right]) -> tuple[Visitor, int, str]:
        visitor = kafka.visitor(given)
        orders, billing = f"{visitor.prefix}orders", f"{visitor.prefix}billing"
        (tmp_path / f"{visitor.name}.py").write_text(MODULE.format(orders=orders, billing=billing))
        asyncio.run(furnish(visitor))
        app = f"{visitor.name}:app"
        if is_made:
            everything = ("worker", "apply", app, "--bootstrap", visitor.open_door)
            assert sharegroup(*everything).code == 0
        login = ("--command-config", str(visitor.properties(tmp_path)), "--json")
        done = sharegroup("worker", verb, app, "--bootstrap", visitor.bootstrap_servers, *login)
        return visitor, done.code, done.out.decode() + done.err

    _, code, said = attempt(rights)
    assert code == 0, said
    for absent, others in each_missing(rights):
        if absent in needed:
            visitor, code, said = attempt(others)
            if absent.operation == "DESCRIBE":
                unseen = [row["name"] for row in json.loads(said) if row["kind"] == "missing"]
                assert any(name.startswith(absent.of(visitor.prefix)) for name in unseen), said
            else:
                assert absent.missing(visitor.name, visitor.prefix).search(said), said


@pytest.mark.parametrize("row", LETTER_COMMANDS, ids=lambda row: row[0].replace("`", ""))
def test_dead_letters(kafka: Guarded, row: tuple[str, ...], tmp_path: Path) -> None:
    """Rights on the topic of notes are needed when it is made, or when it is there; each is."""
    rights = LETTER_COMMANDS[row]

    def attempt(words: str, given: Sequence[Right], *, noted: bool) -> tuple[Visitor, str]:
        visitor = kafka.visitor(given)
        asyncio.run(bury(visitor))
        dead, own = f"{visitor.prefix}orders.dead", f"{visitor.prefix}billing.retry"
        orders = f"{visitor.prefix}orders"
        if noted:
            first = f"dlq redrive {dead} --confirm {own} --limit 1 --bootstrap {visitor.open_door}"
            assert sharegroup(*first.split()).code == 0
        login = ("--command-config", str(visitor.properties(tmp_path)))
        words = words.replace("billing.retry", own).replace("confirm orders", f"confirm {orders}")
        done = sharegroup(*words.replace("orders.dead", dead).split(), *login)
        return visitor, done.out.decode() + done.err if done.code else ""

    for words in re.findall(r"`(.*?)`", row[0]):
        for noted in (False, True):
            assert attempt(words, rights, noted=noted)[1] == ""
        for absent, others in each_missing(rights):
            said = ""
            for noted in (False, True):
                visitor, error = attempt(words, others, noted=noted)
                if absent.missing(visitor.name, visitor.prefix).search(error):
                    break
                said += error
            else:
                raise AssertionError(f"{words}: without {absent} it says {said!r}")


@pytest.mark.parametrize("row", WAITING_COMMANDS, ids=lambda row: row[0].replace("`", ""))
def test_waiting_records(kafka: Guarded, row: tuple[str, ...], tmp_path: Path) -> None:
    """One record waits, with another id than that of the commands, so that nobody has to answer."""
    rights = WAITING_COMMANDS[row]

    def attempt(words: str, given: Sequence[Right]) -> tuple[Visitor, str]:
        visitor = kafka.visitor(given)
        asyncio.run(shelve(visitor))
        login = ("--command-config", str(visitor.properties(tmp_path)))
        words = words.replace(" billing", f" {visitor.prefix}billing")
        done = sharegroup(*words.split(), *login)
        return visitor, done.out.decode() + done.err

    for words in re.findall(r"`(.*?)`", row[0]):
        expected = "orders" if " list " in words else "f00  too-late"
        visitor, said = attempt(words, rights)
        assert expected in said, said
        for absent, others in each_missing(rights):
            visitor, said = attempt(words, others)
            assert expected not in said
            if absent.without == "fails":
                assert absent.missing(visitor.name, visitor.prefix).search(said), said


async def shelve(visitor: Visitor) -> None:
    """A record that waits for its retry, in a group that can be steered."""
    tier, control = (f"{visitor.prefix}billing.retry.{name}" for name in ("1h", "control"))
    async with AdminClient(bootstrap_servers=visitor.open_door) as admin:
        await admin.create_topics([NewTopic(tier, 1), NewTopic(control, 1)])
    place = [("topic", b"orders"), ("partition", b"0"), ("offset", b"0"), ("timestamp", b"1")]
    headers = [(f"__sharegroup.origin.{name}", value) for name, value in place]
    async with Producer(bootstrap_servers=visitor.open_door) as producer:
        await producer.send_and_wait(tier, b"{}", headers=[("__sharegroup.id", b"f01"), *headers])


async def bury(visitor: Visitor) -> None:
    """Two dead letters, and the topic that they are sent back to."""
    await furnish(visitor)
    attempt = Attempt(visitor, retries=False, letters=True, prepare=True)
    attempt.use_open_door(visitor)
    async with AdminClient(bootstrap_servers=visitor.open_door) as admin:
        # The topic of jobs is there already for all but the first one.
        await admin.create_topics(
            [NewTopic(f"{visitor.prefix}billing.retry", 1), NewTopic("__sharegroup.jobs", 1)]
        )
    async with asyncio.timeout(WORK_SECONDS), attempt.app:
        await attempt.done.wait()
