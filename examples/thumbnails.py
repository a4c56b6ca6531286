"""CPU-bound work in separate processes: reduces the size of pictures.

    pip install '.[worker]'
    sharegroup serve --port 9092
    sharegroup worker examples.thumbnails:app
    echo '{"path": "cat.pgm", "thumbnail": "small.pgm"}' | sharegroup produce uploads

Python runs one thread of Python code at a time, so such work gets a process for each core.  The
worker starts, watches and replaces these processes.  If a picture crashes its process, only this
record fails.  It is retried, as after any other failure, and finally becomes a dead letter.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sharegroup.worker import App, DeadLetter, Reject, Retry

HEADER = re.compile(rb"P5\s+(\d+)\s+(\d+)\s+255\s")
app = App("thumbnails")


@dataclass
class Upload:
    """A picture file (PGM, eight bits) and the path of its thumbnail."""

    path: str
    thumbnail: str
    factor: int = 4


@app.share_group(
    "thumbnails",
    topics="uploads",
    processes=os.cpu_count() or 1,
    max_handling="1m",
    retry=Retry(max_attempts=3, initial_delay="500ms"),
    dead_letter=DeadLetter("uploads.dead"),
)
def shrink(upload: Upload) -> None:
    """Reads, averages and writes a picture, so that a second run after a crash is safe."""
    width, height, pixels = read_pgm(Path(upload.path))
    small = averaged(width, height, pixels, upload.factor)
    target = Path(upload.thumbnail)
    unfinished = target.with_suffix(f".{os.getpid()}")
    header = f"P5 {width // upload.factor} {height // upload.factor} 255\n"
    unfinished.write_bytes(header.encode() + small)
    unfinished.replace(target)  # Atomic: the file is complete or does not exist.


def read_pgm(path: Path) -> tuple[int, int, bytes]:
    """Returns width, height and pixels."""
    try:
        picture = path.read_bytes()
    except OSError as error:
        raise Reject(f"{path} can't be read: {error}") from error
    header = HEADER.match(picture)
    if header is None:
        raise Reject(f"{path} begins with {picture[:20]!r}, expected P5 and a size")
    width, height = int(header[1]), int(header[2])
    pixels = picture[header.end() :]  # The first pixels may look like white space.
    if len(pixels) != width * height:
        raise Reject(f"{path} has {len(pixels)} pixels, expected {width} times {height}")
    return width, height, pixels


def averaged(width: int, height: int, pixels: bytes, factor: int) -> bytes:
    """Returns one averaged pixel for each square of ``factor`` by ``factor``."""
    return bytes(
        sum(
            sum(pixels[(top + row) * width + left : (top + row) * width + left + factor])
            for row in range(factor)
        )
        // factor**2
        for top in range(0, height - factor + 1, factor)
        for left in range(0, width - factor + 1, factor)
    )
