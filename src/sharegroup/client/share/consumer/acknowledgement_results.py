"""The results of acknowledgements, each reported once: to the callback, by a commit, or in the log.

a node hands in results ---> waiting ---> callback, if there is one
                                    '---> remembered by partition ---> the next commit
                                                                 '---> log, if none has room
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.errors import KafkaError

log = logging.getLogger(__name__)

AcknowledgementCallback = Callable[[AcknowledgementResult], None]


class AcknowledgementResults:
    """Collects the results of acknowledgements, and reports each of them once."""

    __slots__ = ("_group_id", "_member_id", "_remembered", "_waiting", "callback")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.callback: AcknowledgementCallback | None = None
        self._group_id = group_id
        self._member_id = member_id
        self._waiting: list[AcknowledgementResult] = []
        self._remembered: dict[TopicPartition, KafkaError | None] = {}

    def add(self, results: Iterable[AcknowledgementResult]) -> None:
        """Add results that were not reported yet."""
        self._waiting += results

    def run_callback(self) -> None:
        """Pass waiting results to the callback, or remember them for the next commit.

        An exception of the callback is raised here; later results stay waiting.
        """
        results, self._waiting = self._waiting, []
        for index, result in enumerate(results):
            if self.callback is not None:
                try:
                    self.callback(result)
                except BaseException:
                    self._waiting = results[index + 1 :] + self._waiting
                    raise
            else:
                topic_partition = result.topic_partition
                self._remembered[topic_partition] = (
                    self._remembered.get(topic_partition) or result.error
                )

    def for_commit(
        self, fresh_results: Iterable[AcknowledgementResult]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Return the outcomes by partition for a commit that sent ``fresh_results``.

        Partitions without a fresh result get the remembered outcome.  A remembered failure of a
        partition with a fresh result is logged, because it would look like the commit's own.
        """
        fresh: dict[TopicPartition, KafkaError | None] = {}
        for result in fresh_results:
            fresh[result.topic_partition] = fresh.get(result.topic_partition) or result.error
        older, self._remembered = self._remembered, {}
        in_both = fresh.keys() & older.keys()
        self._log({where: older[where] for where in in_both if older[where] is not fresh[where]})
        return older | fresh

    def close(self) -> None:
        """Log the remembered failures, because no further commit will return them."""
        self._log(self._remembered)
        self._remembered = {}

    def _log(self, failures: Mapping[TopicPartition, KafkaError | None]) -> None:
        for (topic, partition), error in failures.items():
            if error is not None:
                log.warning(
                    "event=acknowledgement.failed group=%s member=%s topic=%s partition=%s "
                    "error=%r action='set an acknowledgement callback to receive each failure "
                    "with its offsets'",
                    self._group_id,
                    self._member_id,
                    topic,
                    partition,
                    error,
                )
