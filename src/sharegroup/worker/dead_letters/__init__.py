"""Records that could not be done: written, looked at, sent back, and given up.

    burier       a worker writes them        reader     they are read, in bulk
    redrive      they go back                purge      they are deleted

What writes and what reads them meet only in the headers (`headers`, `letter`): the reading half
also takes the letters that a broker wrote (KIP-1191), and needs no application to be loaded.
"""

from __future__ import annotations

from sharegroup.worker.dead_letters.topics import (
    DeclaredTopic,
    group_configs_of,
    letters_topic,
    topics_of,
)

__all__ = ["DeclaredTopic", "group_configs_of", "letters_topic", "topics_of"]
