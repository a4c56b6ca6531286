"""What happened to records and sessions since the broker started: plain numbers, for metrics.

Only what cannot be seen in a `picture`, which says how things stand and not how they came so.
A share partition's own count lies with it (`LiveSharePartition.timed_out_count`), and goes when
it leaves memory; a counter that begins anew is nothing unusual to whoever scrapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sharegroup.core.delivery import Ack, AckBatch


class ShareCounters:
    """See the module's text."""

    __slots__ = ("acknowledged", "sessions_lost")

    def __init__(self) -> None:
        self.acknowledged: dict[int, int] = dict.fromkeys(Ack, 0)
        """Offsets by acknowledgement type, once that is durable; gaps and repetitions too."""
        self.sessions_lost = 0
        """Sessions that ended because their connection did."""

    def count(self, acks: Iterable[AckBatch]) -> None:
        """These acknowledgements are durable; costs what their types cost, not their offsets."""
        acknowledged = self.acknowledged
        for first, end, types in acks:
            alike = types.count(types[0])
            if alike == len(types):
                acknowledged[types[0]] += end - first
            else:
                for ack_type, number in Counter(types).items():
                    acknowledged[ack_type] += number
