"""A worker process under a supervisor (``sharegroup worker -n 4``): the side of the process.

    supervisor                                    worker process
        |-- lifeline: a pipe that nobody writes --> a thread; its end says: the supervisor is gone
        |== channel: requests (`lifecycle.channel`) --> the event loop of the worker

The supervisor starts the same command line again, with `VARIABLE` in its environment.

If the supervisor is killed, the process stops in order: its records are finished or released.  It
learns of it by the end of the lifeline, on every platform, and on Linux by a signal of the kernel.
The lifeline is watched by a thread, because an event loop that hangs would watch nothing.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from dataclasses import asdict, dataclass, fields
from typing import Self

from sharegroup.errors import InvalidConfig

log = logging.getLogger(__name__)

VARIABLE = "SHAREGROUP_WORKER_SUPERVISED"
"""The environment variable with the facts of a supervised process."""
ORPHAN_SECONDS = 10.0
"""Time beyond the grace after which a process without a supervisor ends, whatever it is doing."""
ORPHANED = 1
PR_SET_PDEATHSIG = 1
GONE_SIGNAL = getattr(signal, "SIGRTMIN", signal.SIGTERM)
"""The kernel's signal that the supervisor is gone; it ends a process that does not handle it yet.

Not SIGTERM: it comes once for each thread of the supervisor, and a second SIGTERM ends the grace.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """What a process knows of its supervisor."""

    number: int
    """The number of this process among those of the supervisor, from 1."""
    channel: int
    lifeline: int
    """File descriptors that the process has inherited."""
    health: str | None = None
    metrics: str | None = None
    """Addresses of the supervisor's ports where it shows the pages of this process."""

    def as_text(self) -> str:
        """Return the value of the environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> Self | None:
        """Take the facts out of the environment: processes that this one starts have none.

        Returns None in a process without a supervisor.
        """
        text = environment.pop(VARIABLE, None)
        if text is None:
            return None
        try:
            given = json.loads(text)
            # The supervisor may be of another version, before an upgrade and a reload.
            facts = cls(**{own.name: given[own.name] for own in fields(cls) if own.name in given})
            for descriptor in (facts.channel, facts.lifeline):
                os.set_inheritable(descriptor, False)
        except (OSError, OverflowError, TypeError, ValueError) as error:
            raise InvalidConfig(
                f"{VARIABLE}={text!r:.200}: expected what a supervisor sets for its processes "
                f"({error}); unset the variable"
            ) from error
        return facts


class Lifeline:
    """Ends this process when its supervisor is gone: in order, or at once during the imports."""

    def __init__(self, supervised: Supervised) -> None:
        self._descriptor = supervised.lifeline
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._seconds = 0.0

    def watch(self) -> None:
        """Watch from now on, on a thread of its own."""
        if sys.platform == "linux":
            # Imported here, because only this needs it.
            import ctypes

            # Also if another process still has a copy of the lifeline's other end.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, GONE_SIGNAL)
        threading.Thread(target=self._wait, name="lifeline", daemon=True).start()

    def stop_with(self, stop: Callable[[], None], grace_seconds: float) -> None:
        """Stop by this call, made on the lifeline's thread, instead of ending at once."""
        with self._lock:
            self._stop, self._seconds = stop, grace_seconds + ORPHAN_SECONDS

    def _wait(self) -> None:
        while os.read(self._descriptor, 1):
            pass  # The supervisor writes nothing.
        with self._lock:
            stop, seconds = self._stop, self._seconds
        if stop is not None:
            log.warning("event=supervisor.gone action='this process stops'")
            stop()
            time.sleep(seconds)
            log.error("event=orphan_ended reason='it had not stopped in %g s'", seconds)
        os._exit(ORPHANED)
