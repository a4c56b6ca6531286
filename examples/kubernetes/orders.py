"""The application of the manifests in this folder; environment variables configure the cluster.

KAFKA_BOOTSTRAP=127.0.0.1:9092 sharegroup worker examples.kubernetes.orders:app
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from sharegroup.worker import App, DeadLetter, Reject, Retry


def login() -> dict[str, Any]:
    """Returns the security options; without a password the client does not authenticate."""
    if "KAFKA_PASSWORD" not in os.environ:
        return {}
    return {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": os.environ["KAFKA_CA"],
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": os.environ["KAFKA_USER"],
        "sasl_plain_password": os.environ["KAFKA_PASSWORD"],
    }


log = logging.getLogger(__name__)
app = App("orders-service", bootstrap_servers=os.environ["KAFKA_BOOTSTRAP"], client=login())


@dataclass
class Order:
    """The value of a record in the topic ``orders``."""

    id: int
    total: int


@app.share_group(
    "billing",
    topics="orders",
    retry=Retry(
        max_attempts=8,
        initial_delay="1s",
        multiplier=3,
        max_delay="1h",
        retry_on=(ConnectionError,),
    ),
    dead_letter=DeadLetter("orders.dead"),
)
async def bill(order: Order) -> None:
    """Bills one order."""
    if order.total < 0:
        raise Reject("negative total")
    log.info("billed %s", order)
