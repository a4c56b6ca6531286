"""The shortest sequence of steps that shows a finding, kept as a case and replayed by a test."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from sharegroup.broker.handler_contract import HandlerOf
from sharegroup.broker.server.handler_table import handler_of
from tests.fuzz.engine import Engine, Finding, Step, split

CASES = Path(__file__).resolve().parent.parent / "attacks" / "cases"
TRIES_MAX = 120


class Case(NamedTuple):
    """Steps that broke something once."""

    signature: str
    text: str
    topic_ids: dict[str, UUID]
    """The ids that the topics had; a replay puts its own ones in their place."""
    steps: list[Step]

    def save(self, folder: Path = CASES) -> Path:
        name = hashlib.sha256(self.signature.encode()).hexdigest()[:12]
        path = folder / f"{name}.json"
        content = {
            "signature": self.signature,
            "text": self.text,
            "topic_ids": {name: str(value) for name, value in self.topic_ids.items()},
            "steps": [[step.connection, step.data.hex(), step.advance_ms] for step in self.steps],
        }
        path.write_text(json.dumps(content, indent=1) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Case:
        content: dict[str, Any] = json.loads(path.read_text())
        return cls(
            content["signature"],
            content["text"],
            {name: UUID(text) for name, text in content["topic_ids"].items()},
            [Step(number, bytes.fromhex(data), ms) for number, data, ms in content["steps"]],
        )


async def replay(folder: Path, case: Case, handler_of: HandlerOf = handler_of) -> list[Finding]:
    """What a new broker shows when it gets the steps of a case."""
    engine = await Engine.start(folder, handler_of)
    for step in case.steps:
        await engine.feed(step._replace(data=engine.translated(step.data, case.topic_ids)))
    await engine.stop()
    return engine.findings


async def minimised(
    folder: Path,
    finding: Finding,
    steps: Sequence[Step],
    topic_ids: dict[str, UUID],
    *,
    any_finding: bool = False,
    handler_of: HandlerOf = handler_of,
) -> Case | None:
    """The shortest tail of ``steps`` that shows the finding, with what is not needed left out.

    None: none of them shows it again.  With ``any_finding`` the first finding of another
    signature counts, too, and is the case's: a broker process tells a signature by its log alone.
    """
    tries = 0

    async def shows(some: Sequence[Step]) -> bool:
        nonlocal tries, finding, any_finding
        tries += 1
        case = Case(finding.signature, finding.text, topic_ids, list(some))
        findings = await replay(folder, case, handler_of)
        if findings and any_finding:
            finding, any_finding = findings[0], False
        return any(found.signature == finding.signature for found in findings)

    length = 1
    while not await shows(steps[-length:]):
        if length >= len(steps):
            return None
        length = min(len(steps), length * 8)

    async def without_unneeded(kept: list[Step]) -> list[Step]:
        size = max(1, len(kept) // 2)
        while size and tries < TRIES_MAX:
            at = 0
            while at < len(kept) and tries < TRIES_MAX:
                fewer = kept[:at] + kept[at + size :]
                if fewer and await shows(fewer):
                    kept = fewer
                else:
                    at += size
            size //= 2
        return kept

    kept = await without_unneeded(list(steps[-length:]))
    single = [part for step in kept for part in _parts(step)]
    if len(single) > len(kept) and await shows(single):
        kept = await without_unneeded(single)
    return Case(finding.signature, finding.text, topic_ids, kept)


def _parts(step: Step) -> list[Step]:
    """A step for each frame; the clock moves behind the last one."""
    frames = split(step.data)
    parts = [Step(step.connection, frame, 0) for frame in frames[:-1]]
    return [*parts, Step(step.connection, frames[-1], step.advance_ms)]
