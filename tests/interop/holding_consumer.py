"""A confluent share consumer that takes records, says so and holds them until it is killed.

Run as ``python -m tests.interop.holding_consumer BOOTSTRAP GROUP TOPIC``; prints one line with
the offsets that it holds.
"""

from __future__ import annotations

import signal
import sys

from tests.support.confluent_calls import share_consumer, take_shared


def main(bootstrap: str, group: str, topic: str) -> None:
    consumer = share_consumer(bootstrap, group, topic, explicit=True)
    held = take_shared(consumer, 1)
    print(*(message.offset() for message in held), flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
