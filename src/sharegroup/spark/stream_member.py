"""The member of the share group that a query's reader runs in the driver's process.

It is apart from `stream_reader` because it imports the client.  Spark also loads the reader's class
in the processes that plan a query and that run its tasks, and none of them has a member.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar

from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.client.share.ranges.share_ranges import ShareRanges
from sharegroup.errors import KafkaError
from sharegroup.spark.decision_files import DecisionFiles, default_location
from sharegroup.spark.kept_records import Keeper
from sharegroup.spark.lifecycle import GOODBYE_SECONDS, exit_as_orphan, exit_on_sigterm
from sharegroup.spark.options import SourceOptions
from sharegroup.spark.share_stream import ShareStream

if TYPE_CHECKING:
    from sharegroup.spark.group_states import GroupStates

log = logging.getLogger(__name__)

T = TypeVar("T")


class StreamMember:
    """The member with its thread, so heartbeats and renewals continue between Spark's calls."""

    def __init__(self, options: SourceOptions, load: str, query: str) -> None:
        # Before the thread and the member exist: a signal in between would leave a member behind.
        exit_on_sigterm()
        self._thread = LoopThread("kafka-share-driver")
        self._thread.enter()
        self.keeper = Keeper(options.kept_bytes_max)
        self._ranges = self._thread.run(_make_ranges(options, query, self.keeper))
        files = DecisionFiles(
            options.outcomes_location or default_location(),
            options.group,
            load,
            fail_on_missing=options.fail_on_data_loss,
        )
        self.stream = ShareStream(self._ranges, files, query=query, load=load)
        self._states: GroupStates | None = None
        if options.reports_states:
            # Imported here because few queries ask for it.
            from sharegroup.spark.group_states import GroupStates

            self._states = GroupStates(self._ranges, options.group)
        # After a kill of the JVM nobody calls `stop`, and heartbeats would keep the locks for ever.
        self._thread.submit(exit_as_orphan(self._ranges.close))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the member's thread and return its result."""
        return self._thread.run(work)

    def report(self) -> dict[str, Any]:
        """Return the stream's figures; the loop, which changes them, does not run meanwhile."""
        with self._thread.lock:
            states = {} if self._states is None else self._states.report()
            return {**self.stream.report(), **states}

    def refresh(self) -> None:
        """Request the group's positions, and its states if they are reported, in the background."""
        self._thread.submit(self.stream.refresh_positions())
        if self._states is not None:
            self._thread.submit(self._states.refresh())

    def close(self) -> None:
        leaving = self._thread.submit(self._ranges.close())
        try:
            leaving.result(GOODBYE_SECONDS)
        except (FutureTimeout, KafkaError) as error:
            log.warning(
                "event=stream.leave_failed error=%r action='the locks and the membership end "
                "after their timeouts'",
                error,
            )
        self._thread.leave()
        # After the loop, whose responses are kept here, has ended.
        self.keeper.close()


async def _make_ranges(options: SourceOptions, query: str, keeper: Keeper) -> ShareRanges:
    """Create the member in its event loop and begin to join the group."""
    ranges = ShareRanges(
        config_from(ReadingConfig, options.client),
        group_id=options.group,
        topics=options.topics,
        member_id=query,
        on_records=keeper.keep,
        # The tasks fetch the records themselves; `keeper` has those of brokers that send them.
        without_records=True,
    )
    ranges.start()
    return ranges
