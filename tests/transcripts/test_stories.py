"""The stories that matter most, word for word: request, state, reply.

A change of behaviour shows as a diff that reads.  After an intended one:
``python -m tests.transcripts --rewrite``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.script import STORIES, told_again

STORIES_MIN = 20


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_replays_with_the_recorded_output(path: Path) -> None:
    text = path.read_text()
    assert told_again(text).splitlines() == text.splitlines()


def test_minimum_number_of_stories_exists() -> None:
    assert len(STORIES) >= STORIES_MIN
