"""Reads and writes the file `.kafka_cleanshutdown`, which exists after a clean shutdown.

    {"version": 0, "journals": {"catalog.journal": [1234, 2893473261]}}

The size and the checksum of each journal tell whether it is the same as when the broker stopped.
An older copy may lack settings and topics without records, and nothing else would reveal that.
Files of older versions have no journals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sharegroup.storage.directory.journal import Mark
from sharegroup.storage.disk.checkpoint_files import read_file, replace_file
from sharegroup.storage.disk.files import Files

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"


def write_clean_shutdown(files: Files, root: str, journals: Mapping[str, Mark]) -> None:
    """Blocking: write the file durably, with the marks of the journals."""
    content = json.dumps({"version": 0, "journals": journals})
    replace_file(files, root, CLEAN_SHUTDOWN_FILE, f"{content}\n".encode("ascii"))


def read_clean_shutdown(files: Files, root: str) -> dict[str, Mark] | None:
    """Return the marks of the last broker's journals, or None if it did not shut down cleanly."""
    path = f"{root}/{CLEAN_SHUTDOWN_FILE}"
    if not files.exists(path):
        return None
    try:
        journals = json.loads(read_file(files, path)).get("journals", {})
        return {str(name): (int(size), int(crc)) for name, (size, crc) in journals.items()}
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):
        return {}  # The existence of the file marks the clean shutdown, even if it is damaged.
