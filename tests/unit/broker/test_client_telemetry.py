"""What the broker keeps of clients that push metrics."""

from __future__ import annotations

from uuid import UUID

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.client_telemetry import TEXT_CHARACTERS_MAX, ClientTelemetry, Sender
from sharegroup.steps import run_to_end
from sharegroup.testing import ManualClock
from sharegroup.wire.otlp_metrics import OtlpValue, encode_metrics

UNCOMPRESSED = 0


def test_long_client_id_is_cut() -> None:
    telemetry = ClientTelemetry(ManualClock(), dict)
    sender = Sender(1, Peer("10.0.0.1"), "x" * 32_000)
    value = OtlpValue("producer.records", (), 1.0, is_counter=True, is_increment=False)
    pushed = encode_metrics([value], labels=(), started_ns=0, now_ns=1)
    storing = telemetry.store(
        sender, UUID(int=7), pushed, codec=UNCOMPRESSED, bytes_max=1_000, interval_ms=1_000
    )
    run_to_end(storing)
    [(client, _)] = telemetry.values.instances()
    assert client.client_id == "x" * TEXT_CHARACTERS_MAX
