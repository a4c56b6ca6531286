"""The result of a redrive as JSON, and back, so the next runner goes on with the counts."""

from __future__ import annotations

from collections import Counter

from sharegroup.dead_letters.redriven import Redriven, Refused
from sharegroup.jobs.job import Document


def redriven_document(done: Redriven) -> Document:
    """Return the result as JSON."""
    return {
        "sent": dict(done.sent),
        "left": dict(done.left),
        "without_headers": done.without_headers,
        "refused": [
            {
                "target": refused.target,
                "reason": refused.reason,
                "letters": refused.letters,
                "runs": [list(run) for run in refused.runs],
            }
            for refused in done.refused
        ],
    }


def redriven_of(document: Document) -> Redriven:
    """Return the result that `redriven_document` wrote; an empty one before the first slice."""
    done = Redriven(
        Counter(document.get("sent", {})),
        Counter(document.get("left", {})),
        int(document.get("without_headers", 0)),
    )
    for entry in document.get("refused", ()):
        runs = [(int(partition), int(first), int(end)) for partition, first, end in entry["runs"]]
        done.refused.put(Refused(entry["target"], entry["reason"], int(entry["letters"]), runs))
    return done


def letters_of(done: Redriven) -> int:
    """Return the number of letters that were processed."""
    return sum(done.sent.values()) + sum(done.left.values()) + done.refused.letters
