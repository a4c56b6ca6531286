"""What became of acknowledgements, told once: to the callback, by a commit, or in the log.

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


class Outcomes:
    """See the module's text."""

    __slots__ = ("_group_id", "_member_id", "_remembered", "_waiting", "callback")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.callback: AcknowledgementCallback | None = None
        self._group_id = group_id
        self._member_id = member_id
        self._waiting: list[AcknowledgementResult] = []
        self._remembered: dict[TopicPartition, KafkaError | None] = {}

    def add(self, results: Iterable[AcknowledgementResult]) -> None:
        """Results that nobody was told yet."""
        self._waiting += results

    def run_callback(self) -> None:
        """Tell the callback, on the application's own time; what it raises comes out here."""
        results, self._waiting = self._waiting, []
        for index, one in enumerate(results):
            if self.callback is not None:
                try:
                    self.callback(one)
                except BaseException:
                    self._waiting = results[index + 1 :] + self._waiting
                    raise
            else:
                where = one.topic_partition
                self._remembered[where] = self._remembered.get(where) or one.error

    def for_commit(
        self, fresh_results: Iterable[AcknowledgementResult]
    ) -> dict[TopicPartition, KafkaError | None]:
        """What a commit returns that sent these, with what is remembered of other partitions.

        A remembered failure of a partition that the commit sent something of would be taken for
        the commit's own; it is logged instead.
        """
        fresh: dict[TopicPartition, KafkaError | None] = {}
        for one in fresh_results:
            fresh[one.topic_partition] = fresh.get(one.topic_partition) or one.error
        older, self._remembered = self._remembered, {}
        both = fresh.keys() & older.keys()
        self._log({where: older[where] for where in both if older[where] is not fresh[where]})
        return older | fresh

    def close(self) -> None:
        """There is no next commit that could tell what is remembered: log it."""
        self._log(self._remembered)
        self._remembered = {}

    def _log(self, failures: Mapping[TopicPartition, KafkaError | None]) -> None:
        for (topic, partition), error in failures.items():
            if error is not None:
                log.warning(
                    "acknowledgement.failed group=%s member=%s topic=%s partition=%s error=%r "
                    "(set a callback to hear of each, with its offsets)",
                    self._group_id,
                    self._member_id,
                    topic,
                    partition,
                    error,
                )
