"""Options mean what they mean to Spark's Kafka source; one that means nothing is named."""

from __future__ import annotations

import pickle

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.internal_topics.coordinator_json import INTERNAL_TOPICS as DECODED
from sharegroup.spark.options import (
    EARLIEST,
    INTERNAL_TOPICS,
    LATEST,
    BatchOptions,
    SinkOptions,
    SourceOptions,
    Times,
    batch_options,
    read_options,
    sink_options,
    state_options,
    stream_options,
)

BROKER = {"kafka.bootstrap.servers": "a:1,b:2"}
STREAM = {**BROKER, "subscribe": "orders", "share.group": "billing"}


def test_streaming_read_has_defaults_for_all_but_three():
    assert stream_options(STREAM) == SourceOptions(
        topics=("orders",),
        group="billing",
        client={"bootstrap_servers": "a:1,b:2"},
        include_headers=False,
        include_delivery_count=False,
        fail_on_data_loss=True,
        fail_on_unreadable=True,
        partitions_min=None,
        records_per_partition_max=None,
        records_per_trigger_max=None,
        outcomes_location=None,
    )


def test_every_option_of_a_streaming_read_is_taken_in_any_case():
    found = stream_options(
        {
            "KAFKA.BOOTSTRAP.SERVERS": "a:1",
            "Subscribe": " orders , returns,orders",
            "kafka.share.group.id": "billing",
            "INCLUDEHEADERS": "TRUE",
            "includedeliverycount": "true",
            "failOnDataLoss": "false",
            "failOnUnreadable": "false",
            "minpartitions": "8",
            "maxRecordsPerPartition": "1000",
            "maxOffsetsPerTrigger": "5000",
            "outcomesLocation": "/x",
        }
    )
    assert found == SourceOptions(
        topics=("orders", "returns"),
        group="billing",
        client={"bootstrap_servers": "a:1"},
        include_headers=True,
        include_delivery_count=True,
        fail_on_data_loss=False,
        fail_on_unreadable=False,
        partitions_min=8,
        records_per_partition_max=1000,
        records_per_trigger_max=5000,
        outcomes_location="/x",
    )


@pytest.mark.parametrize("name", ["share.group", "kafka.group.id", "kafka.share.group.id"])
def test_group_option_may_have_kafkas_name(name):
    assert stream_options({**BROKER, "subscribe": "t", name: "g"}).group == "g"


def test_relative_location_of_outcomes_is_below_the_directory_where_the_query_is_planned(
    tmp_path, monkeypatch
):
    """`foreachBatch` and executors run in other directories."""
    monkeypatch.chdir(tmp_path)
    options = stream_options({**STREAM, "outcomesLocation": " decisions "})
    assert options.outcomes_location == str(tmp_path / "decisions")


@pytest.mark.parametrize("uri", ["hdfs://name/decisions", "file:///decisions", "dbfs:/decisions"])
def test_location_of_outcomes_is_no_uri(uri):
    with pytest.raises(InvalidConfig, match=r"expected a directory .* found a URI"):
        stream_options({**STREAM, "outcomesLocation": uri})


def test_group_option_may_be_set_twice_with_one_value():
    assert stream_options({**STREAM, "kafka.share.group.id": "billing"}).group == "billing"


def test_batch_read_takes_offsets_as_words_or_json():
    batch = {**BROKER, "subscribe": "orders"}
    assert batch_options(batch).starting == EARLIEST
    assert batch_options(batch).ending == LATEST
    found = batch_options(
        {**batch, "startingOffsets": '{"orders": {"0": 23, "1": -2}}', "endingOffsets": "LATEST"}
    )
    assert found.starting == {"orders": {0: 23, 1: -2}}


def test_internal_topics_are_those_that_can_be_decoded():
    assert set(INTERNAL_TOPICS) == DECODED.keys()
    found = state_options(BROKER)
    assert (found.topics, found.view) == (("__share_group_state",), "records")


def test_runs_of_a_group_are_of_all_its_topics_or_of_some():
    runs = {**BROKER, "view": "grouprunS", "share.group": "billing"}
    found = state_options(runs)
    assert (found.view, found.group, found.topics) == ("groupRuns", "billing", ())
    assert state_options({**runs, "subscribe": "orders"}).topics == ("orders",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "groupRuns"}, "expected view=groupRuns with the option share.group"),
        ({"share.group": "billing"}, "share.group, and no other view with it"),
        (
            {"view": "groupRuns", "share.group": "g", "assign": '{"t": [0]}'},
            "view=groupRuns needs all records",
        ),
    ],
)
def test_group_is_for_the_view_of_its_runs(options, message):
    with pytest.raises(InvalidConfig, match=message):
        state_options({**BROKER, **options})


def test_runs_of_a_group_are_no_stream():
    runs = {**BROKER, "view": "groupRuns", "share.group": "billing"}
    with pytest.raises(InvalidConfig, match="view=groupRuns shows the state at one moment"):
        state_options(runs, is_stream=True)


def test_batch_read_takes_the_partitions_of_assign():
    found = batch_options({**BROKER, "assign": '{"orders": [2, 0, 2], "returns": [1]}'})
    assert found.topics == ("orders", "returns")
    assert found.assigned == {"orders": (0, 2), "returns": (1,)}


def test_batch_read_takes_times_for_all_partitions_or_for_each_one():
    batch = {**BROKER, "subscribe": "orders"}
    found = batch_options({**batch, "startingTimestamp": " 1000", "endingTimestamp": "2000"})
    assert (found.starting, found.ending) == (Times(1000), Times(2000))
    assert not found.late_start_is_latest
    found = batch_options(
        {
            **batch,
            "startingOffsetsByTimestamp": '{"orders": {"0": 1000, "1": 0}}',
            "startingOffsetsByTimestampStrategy": "Latest",
            "endingOffsetsByTimestamp": '{"orders": {"0": 1, "1": 2}}',
        }
    )
    assert found.starting == Times({"orders": {0: 1000, 1: 0}})
    assert found.ending == Times({"orders": {0: 1, 1: 2}})
    assert found.late_start_is_latest


def test_write_takes_producer_options():
    found = sink_options(
        {
            **BROKER,
            "topic": "orders",
            "kafka.acks": "1",
            "kafka.enable.idempotence": "false",
            "kafka.linger.ms": "20",
            "kafka.batch.size": "1000",
            "kafka.compression.type": "none",
            "checkpointlocation": "/somewhere",
        }
    )
    assert found == SinkOptions(
        topic="orders",
        client={
            "bootstrap_servers": "a:1,b:2",
            "acks": 1,
            "idempotent": False,
            "linger_ms": 20,
            "batch_bytes": 1000,
            "compression": None,
        },
    )


def test_security_is_passed_on_and_not_shown():
    found = stream_options(
        {
            **STREAM,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
            'required username="alice" password="top \\"secret\\"";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/ca.pem",
        }
    )
    assert found.client == {
        "bootstrap_servers": "a:1,b:2",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": 'top "secret"',
        "ssl_cafile": "/ca.pem",
    }
    assert "secret" not in repr(found)


def test_options_travel_to_executors():
    token = "file:///run/token"
    found = stream_options(
        {
            **STREAM,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": token,
        }
    )
    assert pickle.loads(pickle.dumps(found)) == found


def test_kind_of_a_read_shows_by_its_group():
    assert isinstance(read_options(STREAM), SourceOptions)
    assert isinstance(read_options({**BROKER, "subscribe": "t"}), BatchOptions)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"subscribe": " , "}, "option subscribe=' , ': expected topic names with commas"),
        ({"includeHeaders": "yes"}, "option includeheaders='yes': expected true or false"),
        ({"minPartitions": "0"}, "option minpartitions='0': expected a whole number of 1 or more"),
        ({"maxOffsetPerTrigger": "1"}, "unknown option maxoffsetpertrigger; did you mean maxOff"),
        ({"bootstrap.servers": "a:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"kafka.request.timeout": "1"}, "did you mean kafka.request.timeout.ms?"),
        ({"kafka.request.timeout.ms": "1s"}, "kafka.request.timeout.ms=1s: expected a whole num"),
        ({"kafka.bootstrap.servers": "a"}, "bootstrap server 'a': expected host:port"),
        (
            {"kafka.share.group.id": "other"},
            "option kafka.share.group.id='other' sets the same value as share.group='billing'; exp",
        ),
        (
            {"startingOffsets": "earliest"},
            "startingoffsets is not supported here: a share group ke",
        ),
        ({"startingTimestamp": "1"}, "startingtimestamp is not supported here: a share group ke"),
        ({"endingOffsetsByTimestamp": "{}"}, "a streaming read has no end; use spark.read"),
        ({"subscribePattern": "a.*"}, "subscribepattern is not supported here: share groups subsc"),
        (
            {"assign": "{}"},
            "assign is not supported here: share groups subscribe to topics by name",
        ),
        ({"groupIdPrefix": "x"}, "groupidprefix is not supported here: the group's name is share."),
        ({"kafka.auto.offset.reset": "latest"}, "the group config share.auto.offset.reset says"),
        ({"kafka.enable.auto.commit": "true"}, "records are accepted when their batch is commit"),
        ({"path": "x"}, "load and save take no path"),
        ({"kafka.ssl.truststore.location": "/x.jks"}, "is a Java key store; export it as PEM"),
    ],
)
def test_wrong_option_of_a_stream_is_named(wrong, message):
    with pytest.raises(InvalidConfig) as caught:
        stream_options({**STREAM, **wrong})
    assert message in str(caught.value)


@pytest.mark.parametrize("missing", ["subscribe", "share.group", "kafka.bootstrap.servers"])
def test_missing_option_is_named(missing):
    given = {name: text for name, text in STREAM.items() if name != missing}
    with pytest.raises(InvalidConfig, match=f"option {missing} is missing"):
        stream_options(given)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"share.group": "g"}, "a batch read acquires nothing: use readStream with the trigger"),
        ({"startingOffsets": "latest"}, "expected earliest"),
        ({"endingOffsets": "earliest"}, "expected latest"),
        ({"assign": '{"orders": [0]}'}, "subscribe and assign are both set; expected one of them"),
        ({"assign": '{"orders": []}'}, 'expected partitions by topic, as {"orders": [0, 2]}'),
        ({"assign": '{"orders": [-1]}'}, "expected partitions by topic"),
        ({"assign": "orders"}, "expected partitions by topic"),
        ({"startingTimestamp": "2026-01-01"}, "expected milliseconds since 1970, as 17672256000"),
        ({"endingTimestamp": str(2**63)}, "up to 9223372036854775807; found 9223372036854775808"),
        ({"startingOffsetsByTimestamp": "1000"}, 'expected milliseconds since 1970 as {"orders"'),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "; found -1"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "expected error or latest"),
        (
            {"startingTimestamp": "1", "startingOffsets": "earliest"},
            "option startingoffsets='earliest' sets the same value as startingtimestamp='1'",
        ),
        ({"assign": '{"orders": "12"}'}, "expected partitions by topic"),
        ({"assign": '{"orders": [0.5]}'}, "expected partitions by topic"),
        ({"assign": '{"orders": [Infinity]}'}, "expected partitions by topic"),
        ({"assign": "[" * 100_000}, "expected partitions by topic"),
        ({"startingOffsets": '{"orders": {"0": 1e999}}'}, "expected earliest, latest or JSON"),
        ({"endingOffsets": '{"orders": {"0": 1.9}}'}, "expected earliest, latest or JSON"),
        ({"endingOffsets": '{"orders": {"0": true}}'}, "expected earliest, latest or JSON"),
        ({"startingOffsets": "[" * 100_000}, "expected earliest, latest or JSON"),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 1e999}}'}, "expected milliseconds since"),
        ({"startingOffsets": "[1]"}, 'expected earliest, latest or JSON like {"orders"'),
    ],
)
def test_wrong_option_of_a_batch_read_is_named(wrong, message):
    with pytest.raises(InvalidConfig) as caught:
        batch_options({**BROKER, "subscribe": "orders", **wrong})
    assert message in str(caught.value)


def test_options_of_a_program_may_be_numbers_as_in_pyspark():
    """`write_in_transaction` and `redrive` get them without Spark in between."""
    client = sink_options({**BROKER, "topic": "t", "kafka.linger.ms": 5}).client
    assert client == sink_options({**BROKER, "topic": "t", "kafka.linger.ms": "5"}).client
    client = sink_options({**BROKER, "topic": "t", "kafka.enable.idempotence": True}).client
    assert client["idempotent"] is True
    with pytest.raises(InvalidConfig, match="option topic: expected a text, found NoneType"):
        sink_options({**BROKER, "topic": None})


def test_option_in_two_cases_has_one_value():
    assert sink_options({**BROKER, "topic": "t", "Topic": "t"}).topic == "t"
    secrets = {"kafka.sasl.password": "one", "kafka.SASL.password": "two"}
    with pytest.raises(InvalidConfig, match=r"option kafka\.sasl\.password is set twice"):
        sink_options({**BROKER, "topic": "t", **secrets})


def test_option_of_a_read_is_refused_in_a_write():
    with pytest.raises(InvalidConfig, match="includeheaders is not supported here: this is an opt"):
        sink_options({**BROKER, "includeHeaders": "true"})
