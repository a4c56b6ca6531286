"""Draws ``docs/pictures/queue.svg``: a share partition in the middle of its work.

    python -m tests.docs.draw_queue

Three workers take, settle, release and lose records of one partition, in virtual time; the core
decides (`core.delivery`), and the picture shows its runs.  It follows the reader's colour scheme.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sharegroup.core.delivery.delivery import (
    AckBatch,
    AcquireRequest,
    InFlightState,
    LogBatches,
    RecordState,
    SharePartitionLimits,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcknowledgeType, AcquireMode

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "queue.svg"
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
RECORDS = 20
LIMITS = SharePartitionLimits()
ALICE, BOB, CAROL = MemberId("A"), MemberId("B"), MemberId("C")

WIDTH, HEIGHT = 690, 284
CELL, LEFT, TOP = 32, 25, 74
BOX_TOP, BOX_WIDTH, BOX_HEIGHT, BOX_GAP = 164, 140, 42, 26

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2733; }
.small { font-size: 12px; fill: #4d5b6a; }
.strong { font-weight: 600; }
.cell, .box { stroke: #7d8b99; stroke-width: 1; }
.new { fill: #ffffff; } .again { fill: #ffe2a8; } .done { fill: #d5dbe1; } .dead { fill: #f4b6ae; }
.A { fill: #a9cbe6; } .B { fill: #b9dfb3; } .C { fill: #d6c3e8; }
.line { stroke: #7d8b99; stroke-width: 1.2; fill: none; }
.on { fill: #1c2733; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e8ec; } .small { fill: #aab6c2; } .on { fill: #11181f; }
  .new { fill: #1b2127; } .done { fill: #3b444d; } .cell, .box, .line { stroke: #8795a3; }
}
"""


class Cell(NamedTuple):
    """A record of the picture."""

    look: str
    mark: str
    """Its text: the holder, or the number of the next delivery."""


def cells() -> list[Cell]:
    """Return the records after some work of three workers."""
    partition = SharePartition.restore(0, (), log_end=0)

    def take(member: MemberId, records: int, now_ms: int = 0) -> None:
        first = partition.next_fetch_offset()
        log = LogBatches(first, list(range(first, RECORDS)), list(range(first + 1, RECORDS + 1)))
        request = AcquireRequest(records, 1, AcquireMode.RECORD_LIMIT)
        partition.acquire(member, log, request=request, limits=LIMITS, now_ms=now_ms)

    def settle(member: MemberId, now_ms: int = 0, **offsets: Sequence[int]) -> None:
        types = {"accept": ACCEPT, "release": RELEASE, "reject": REJECT}
        for name, settled in offsets.items():
            batches = [AckBatch(offset, offset + 1, (types[name],)) for offset in settled]
            partition.acknowledge(member, batches, limits=LIMITS, now_ms=now_ms)

    take(ALICE, 5)
    take(BOB, 4)
    take(CAROL, 2)
    settle(ALICE, accept=(0, 1, 2), reject=(4,))
    settle(BOB, accept=(6, 7), release=(5,))
    # The worker C is gone: its locks have expired.
    partition.expire(limits=LIMITS, now_ms=LIMITS.lock_ms)
    later = LIMITS.lock_ms + 1
    take(BOB, 2, later)
    take(ALICE, 3, later)
    take(CAROL, 3, later)
    settle(ALICE, later, accept=(10,))
    settle(BOB, later, release=(3,))
    shown = [
        _cell(run.value)
        for run in partition.runs()
        for _ in range(run.first, min(run.end, RECORDS))
    ]
    first = partition.start_offset
    return [Cell("done", "✓")] * first + shown + [Cell("new", "")] * (RECORDS - first - len(shown))


def _cell(value: InFlightState) -> Cell:
    match value.state:
        case RecordState.ACQUIRED:
            return Cell(value.member_id, value.member_id)
        case RecordState.AVAILABLE:
            return Cell("again", f"{value.delivery_count + 1}.")
        case RecordState.ACKNOWLEDGED:
            return Cell("done", "✓")
        case _:
            return Cell("dead", "✗")


def lines(row: Sequence[Cell]) -> Iterator[str]:
    """Yield the lines of the picture."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="A partition whose records are locked, settled and delivered again one by one">'
    )
    yield f"<style>{STYLE}</style>"
    yield _text(LEFT, 24, "One partition, one share group, three workers", "strong")
    facts = "Each record has its own lock, acknowledgement and number of deliveries."
    yield _text(LEFT, 44, facts, "small")
    for offset, cell in enumerate(row):
        yield _cell_shape(LEFT + offset * CELL, TOP, cell)
        middle = LEFT + (offset + 0.5) * CELL
        yield _text(middle, TOP + CELL + 15, str(offset), "small", middle=True)
    boxes = [_dead_letters(row), *(_worker(row, member) for member in (BOB, ALICE, CAROL))]
    for number, box in enumerate(boxes):
        yield from _box(box, LEFT + number * (BOX_WIDTH + BOX_GAP))
    yield from _legend()
    yield "</svg>"


class Box(NamedTuple):
    """A place below the partition, with lines to its records."""

    look: str
    title: str
    text: str
    offsets: list[int]


def _dead_letters(row: Sequence[Cell]) -> Box:
    offsets = [offset for offset, cell in enumerate(row) if cell.look == "dead"]
    return Box("dead", "orders.dead", "copy and reason", offsets)


def _worker(row: Sequence[Cell], member: str) -> Box:
    offsets = [offset for offset, cell in enumerate(row) if cell.look == member]
    count = f"holds {len(offsets)} record{'' if len(offsets) == 1 else 's'}"
    return Box(member, f"worker {member}", count, offsets)


def _cell_shape(x: float, y: float, cell: Cell, size: int = CELL) -> str:
    shape = f'<rect class="cell {cell.look}" x="{x:g}" y="{y:g}" width="{size}" height="{size}"/>'
    look = "" if cell.look in ("new", "done") else "on"
    return shape + _text(x + size / 2, y + size / 2 + 5, cell.mark, look, middle=True)


def _box(box: Box, x: float) -> Iterator[str]:
    middle, top = x + BOX_WIDTH / 2, TOP + CELL + 20
    for offset in box.offsets:
        at = LEFT + (offset + 0.5) * CELL
        yield (
            f'<path class="line" d="M{at:g} {top} C{at:g} {top + 26} {middle:g} {top + 10} '
            f'{middle:g} {BOX_TOP}"/>'
        )
    yield (
        f'<rect class="box {box.look}" x="{x:g}" y="{BOX_TOP}" width="{BOX_WIDTH}" '
        f'height="{BOX_HEIGHT}" rx="6"/>'
    )
    yield _text(middle, BOX_TOP + 18, box.title, "on strong", middle=True)
    yield _text(middle, BOX_TOP + 35, box.text, "on", middle=True)


def _legend() -> Iterator[str]:
    """Yield what the looks mean."""
    looks = (
        (Cell("done", "✓"), "settled, never delivered again"),
        (Cell("A", "A"), "locked by a worker"),
        (Cell("again", "3."), "waits for its third delivery"),
        (Cell("dead", "✗"), "rejected, or delivered too often"),
        (Cell("new", ""), "not delivered yet"),
    )
    for number, (cell, meaning) in enumerate(looks):
        x, y = LEFT + 224 * (number % 3), BOX_TOP + BOX_HEIGHT + 20 + 26 * (number // 3)
        yield _cell_shape(x, y, cell, size=20)
        yield _text(x + 28, y + 15, meaning, "small")


def _text(x: float, y: float, text: str, look: str = "", *, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text class="{look}" x="{x:g}" y="{y:g}"{anchor}>{text}</text>'


def picture() -> str:
    """Return the picture as SVG."""
    return "\n".join(lines(cells())) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture())
