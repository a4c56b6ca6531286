"""Client telemetry at the wire: resources, subscriptions, pushes, and the page for Prometheus."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.describe_configs.v4 import request as describe
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.incremental_alter_configs.v1 import request as alter
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest

from sharegroup.broker.app import _connection_closed
from sharegroup.broker.metrics.values import LoopLag, Metrics
from sharegroup.ids import uuid_text
from sharegroup.wire.batches.compression import compress
from sharegroup.wire.codec.apis import response_class, response_header_version
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode_request
from sharegroup.wire.codec.headers import decode_response_header
from tests.faults.in_process import Broker
from tests.support.otlp import attribute, gauge, metrics_of, point, sum_of

CLIENT_METRICS = 16
INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION = 40, 42, 44
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, THROTTLED = 76, 87, 89
UNKNOWN_SUBSCRIPTION_ID, TELEMETRY_TOO_LARGE = 117, 118
SOURCE_CLIENT_METRICS, SOURCE_DEFAULT = 7, 5
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LAG = "org.apache.kafka.consumer.records.lag"
SENT = "org.apache.kafka.producer.record.send.total"

Scenario = Callable[[Broker], Awaitable[None]]


def run(scenario: Scenario, path: Path, **settings: str) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path / "data"), **settings)
        await scenario(broker)
        await broker.stop()

    asyncio.run(main())


async def set_resource(broker: Broker, name: str, **values: str | None) -> tuple[int, str | None]:
    """Error code and text; None deletes a value, and ``_`` stands for a dot."""
    configs = tuple(
        alter.AlterableConfig(
            name=key.replace("_", "."), config_operation=int(value is None), value=value
        )
        for key, value in values.items()
    )
    resource = alter.AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configs=configs
    )
    request = alter.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = (await broker.ask(request)).responses[0]
    return int(answer.error_code), answer.error_message


async def subscribe(broker: Broker, instance: UUID | None = None, connection: int = 1) -> Any:
    return await broker.ask(
        GetTelemetrySubscriptionsRequest(client_instance_id=instance), connection
    )


async def subscribe_over(reader: StreamReader, writer: StreamWriter) -> tuple[str, ...]:
    """The requested metrics of a client behind a socket of its own."""
    request = GetTelemetrySubscriptionsRequest(client_instance_id=None)
    writer.write(b"".join(encode_request(1, "socket", request)))
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    key, version = request.__api_key__, request.__version__
    _, position = decode_response_header(frame, response_header_version(key, version))
    answer, _ = decode(response_class(key, version), frame, position)
    return tuple(answer.requested_metrics)


async def push(
    broker: Broker,
    subscribed: Any,
    payload: bytes,
    *,
    codec: int = NONE,
    subscription_id: int | None = None,
    terminating: bool = False,
    connection: int = 1,
) -> int:
    """The error code."""
    answer = await broker.ask(
        PushTelemetryRequest(
            client_instance_id=subscribed.client_instance_id,
            subscription_id=(
                subscribed.subscription_id if subscription_id is None else subscription_id
            ),
            terminating=terminating,
            compression_type=codec,
            metrics=compress(codec, payload) if codec else payload,
        ),
        connection,
    )
    return int(answer.error_code)


async def page(broker: Broker) -> list[str]:
    running = broker.running
    metrics = Metrics(running.parts, running.server, running.directory, LoopLag())
    return "".join([text async for text in metrics.text()]).splitlines()


async def described(broker: Broker, name: str) -> tuple[int, dict[str, tuple[str | None, int]]]:
    """Error code, and value and source of each setting."""
    resource = describe.DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None
    )
    result = (await broker.ask(describe.DescribeConfigsRequest(resources=(resource,)))).results[0]
    settings = {
        setting.name: (setting.value, int(setting.config_source)) for setting in result.configs
    }
    return int(result.error_code), settings


def test_resources_are_set_described_listed_and_survive_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path / "data"))
        assert await set_resource(broker, "lag", metrics=LAG, interval_ms="1000") == (0, None)
        assert await set_resource(broker, "all", metrics="*", match="client_id=a.*") == (0, None)
        assert await set_resource(broker, "all", metrics=None, match=None) == (0, None)
        await broker.stop()
        broker = await Broker.start(None, str(tmp_path / "data"))
        listed = await broker.ask(ListConfigResourcesRequest(resource_types=(CLIENT_METRICS,)))
        names = [resource.resource_name for resource in listed.config_resources]
        assert names == ["lag"]
        assert await described(broker, "lag") == (
            0,
            {
                "metrics": (LAG, SOURCE_CLIENT_METRICS),
                "interval.ms": ("1000", SOURCE_CLIENT_METRICS),
                "match": ("", SOURCE_DEFAULT),
            },
        )
        assert (await described(broker, "all"))[1]["interval.ms"] == ("300000", SOURCE_DEFAULT)
        assert await described(broker, "") == (INVALID_REQUEST, {})
        assert (await subscribe(broker)).requested_metrics == (LAG,)
        await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"interval_ms": "99"}, INVALID_REQUEST),
        ({"interval_ms": "3600001"}, INVALID_REQUEST),
        ({"interval_ms": "soon"}, INVALID_CONFIG),
        ({"match": "client_id"}, INVALID_CONFIG),
        ({"match": "client_id=(a"}, INVALID_CONFIG),
        ({"color": "red"}, INVALID_REQUEST),
        ({"metrics": "m" * 4_097}, INVALID_CONFIG),
    ],
)
def test_invalid_resources_are_refused(tmp_path: Path, values: dict[str, str], code: int) -> None:
    async def scenario(broker: Broker) -> None:
        error, text = await set_resource(broker, "lag", **values)
        assert (error, bool(text)) == (code, True)
        assert (await set_resource(broker, "", metrics="*"))[0] == INVALID_REQUEST

    run(scenario, tmp_path)


def test_number_of_resources_is_limited(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        for number in range(100):
            assert (await set_resource(broker, str(number), metrics="*"))[0] == 0
        assert (await set_resource(broker, "more", metrics="*"))[0] == POLICY_VIOLATION
        assert (await set_resource(broker, "7", metrics="a."))[0] == 0
        assert (await set_resource(broker, "8", metrics=None))[0] == 0
        assert (await set_resource(broker, "more", metrics="*"))[0] == 0

    run(scenario, tmp_path)


def test_client_without_a_subscription_pushes_nothing(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        answer = await subscribe(broker)
        assert (answer.error_code, answer.requested_metrics) == (0, ())
        assert answer.client_instance_id is not None
        assert answer.push_interval.total_seconds() == 300
        assert answer.telemetry_max_bytes == 1_048_576
        assert answer.accepted_compression_types == (ZSTD, LZ4, GZIP, SNAPPY)
        again = await subscribe(broker, answer.client_instance_id)
        assert again.error_code == THROTTLED
        other = await subscribe(broker, connection=2)
        assert other.client_instance_id != answer.client_instance_id

    run(scenario, tmp_path)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_pushed_values_are_on_the_page(tmp_path: Path, codec: int) -> None:
    async def scenario(broker: Broker) -> None:
        hello = ApiVersionsRequest(client_software_name="test", client_software_version="1.2")
        await broker.ask(hello, 1)
        await set_resource(broker, "all", metrics="*", interval_ms="1000")
        subscribed = await subscribe(broker)
        payload = metrics_of(
            gauge(LAG, point(2.5, topic='or"ders', partition=0), point(4, topic="b")),
            sum_of(SENT, point(9), is_monotonic=True),
            gauge("app's own-name", point(1, **{"client_id": "forged", "9-x": "y"})),
            resource=attribute("group_id", "billing") + attribute("color", "red"),
        )
        assert await push(broker, subscribed, payload, codec=codec) == 0
        lines = await page(broker)
        client = uuid_text(subscribed.client_instance_id)
        labels = f'client_instance_id="{client}",client_id="in-process"'
        lag = "kafka_client_consumer_records_lag"
        first, second = (line for line in lines if line.startswith(lag))
        assert first == f'{lag}{{{labels},partition="0",topic="or\\"ders"}} 2.5'
        assert second == f'{lag}{{{labels},topic="b"}} 4'
        assert f"kafka_client_producer_record_send_total{{{labels}}} 9" in lines
        assert "# TYPE kafka_client_producer_record_send_total counter" in lines
        assert f'kafka_client_app_s_own_name{{{labels},label_9_x="y"}} 1' in lines
        (info,) = (line for line in lines if line.startswith("sharegroup_client_info{"))
        assert f'{labels},client_software_name="test",client_software_version="1.2"' in info
        assert 'client_address="127.0.0.1"' in info
        assert 'group_id="billing"' in info
        assert "red" not in info
        assert "sharegroup_client_metrics_values_total 4" in lines

    run(scenario, tmp_path)


def test_values_stay_when_the_connection_closes_until_they_are_old(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await set_resource(broker, "all", metrics="*", interval_ms="1000")
        subscribed = await subscribe(broker)
        assert await push(broker, subscribed, metrics_of(gauge("a", point(1)))) == 0
        assert await push(broker, subscribed, b"", terminating=True) == 0
        _connection_closed(broker.running.parts, 1)
        assert len(broker.running.parts.client_telemetry.instances) == 0
        assert any(line.startswith("kafka_client_a{") for line in await page(broker))
        broker.clock.advance(60_000)
        assert not any(line.startswith("kafka_client_a{") for line in await page(broker))

    run(scenario, tmp_path)


def test_series_that_become_equal_are_shown_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await set_resource(broker, "all", metrics="*", interval_ms="1000")
        subscribed = await subscribe(broker)
        payload = metrics_of(gauge("a.b", point(1)), gauge("a-b", point(2)))
        assert await push(broker, subscribed, payload) == 0
        shown = [line for line in await page(broker) if line.startswith("kafka_client_a_b")]
        assert len(shown) == 1

    run(scenario, tmp_path)


def test_changed_subscription_makes_clients_ask_again(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await set_resource(broker, "all", metrics="*", interval_ms="1000")
        before = await subscribe(broker)
        await set_resource(broker, "all", metrics="a.", interval_ms="1000")
        assert await push(broker, before, b"") == UNKNOWN_SUBSCRIPTION_ID
        after = await subscribe(broker, before.client_instance_id)
        assert (after.error_code, after.requested_metrics) == (0, ("a.",))
        assert await push(broker, after, b"") == 0

    run(scenario, tmp_path)


def test_selected_clients_alone_push(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        hello = ApiVersionsRequest(client_software_name="java", client_software_version="4.4.0")
        await broker.ask(hello, 1)
        match = r"client_software_name=java,client_software_version=4\..*,client_id=in-.*"
        await set_resource(broker, "java", metrics="*", match=match)
        assert (await subscribe(broker, connection=1)).requested_metrics == ("*",)
        assert (await subscribe(broker, connection=2)).requested_metrics == ()

    run(scenario, tmp_path)


def test_client_is_selected_by_address_and_port(tmp_path: Path) -> None:
    """Of two connections over a socket from one address, that of the port alone pushes."""

    async def scenario(broker: Broker) -> None:
        port = broker.running.parts.node.port
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        own_port = connections[0][1].get_extra_info("sockname")[1]
        match = f"client_source_address=127.0.0.1,client_source_port={own_port}"
        assert await set_resource(broker, "port", metrics="*", match=match) == (0, None)
        found = [await subscribe_over(*connection) for connection in connections]
        assert found == [("*",), ()]
        for _, writer in connections:
            writer.close()

    run(scenario, tmp_path)


def test_refused_pushes(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await set_resource(broker, "all", metrics="*", interval_ms="1000")
        subscribed = await subscribe(broker)
        assert await push(broker, subscribed, b"\x0a\x05ab") == INVALID_RECORD
        assert await push(broker, subscribed, b"") == THROTTLED
        broker.clock.advance(1_000)
        request = PushTelemetryRequest(
            client_instance_id=subscribed.client_instance_id,
            subscription_id=subscribed.subscription_id,
            terminating=False,
            compression_type=ZSTD,
            metrics=b"no zstd",
        )
        assert (await broker.ask(request)).error_code == INVALID_RECORD
        broker.clock.advance(1_000)
        assert await push(broker, subscribed, bytes(2_001)) == TELEMETRY_TOO_LARGE
        broker.clock.advance(1_000)
        bomb = metrics_of(gauge("a", *[point(1)] * 2_000))
        assert len(compress(GZIP, bomb)) < 2_000
        assert await push(broker, subscribed, bomb, codec=GZIP) == INVALID_RECORD
        broker.clock.advance(1_000)
        answer = await broker.ask(
            PushTelemetryRequest(
                client_instance_id=subscribed.client_instance_id,
                subscription_id=subscribed.subscription_id,
                terminating=False,
                compression_type=9,
                metrics=b"",
            )
        )
        assert answer.error_code == UNSUPPORTED_COMPRESSION_TYPE
        nobody = await broker.ask(
            PushTelemetryRequest(
                client_instance_id=None,
                subscription_id=0,
                terminating=False,
                compression_type=0,
                metrics=b"",
            )
        )
        assert nobody.error_code == INVALID_REQUEST

    run(scenario, tmp_path, telemetry_max_bytes="2000")


@pytest.mark.parametrize(
    ("metrics_port", "resource", "expected"),
    [("-1", False, False), ("0", False, True), ("-1", True, True)],
)
def test_telemetry_is_advertised_if_somebody_can_see_it(
    tmp_path: Path, metrics_port: str, resource: bool, expected: bool
) -> None:
    async def scenario(broker: Broker) -> None:
        if resource:
            await set_resource(broker, "all", metrics="*")
        hello = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await broker.ask(hello)
        advertised = {int(api.api_key) for api in answer.api_keys} & {71, 72}
        assert advertised == ({71, 72} if expected else set())

    run(scenario, tmp_path, sharegroup_metrics_port=metrics_port)
