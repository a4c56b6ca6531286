"""Writes the documents that are made from the code: `python -m tests.docs.write_docs`.

`tests/docs/test_docs.py` fails while a document is not what this would write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from sharegroup.broker.access.checks import Check
from sharegroup.broker.configuration.config import (
    Config,
    ConsumerGroupConfig,
    CoordinatorConfig,
    GroupConfig,
    LogConfig,
    ModernGroupConfig,
    SaslConfig,
    ServerConfig,
    ShareGroupConfig,
    TlsConfig,
    TopicConfig,
)
from sharegroup.broker.configuration.config_values import entries, kind_of, value_text
from sharegroup.broker.configuration.kafka_keys import kafka_keys
from sharegroup.broker.configuration.quota_config import QuotaConfig
from sharegroup.broker.configuration.transaction_config import TransactionConfig
from sharegroup.broker.handlers.share.described_runs import RUNS_MAX as DESCRIBED_RUNS_MAX
from sharegroup.broker.metrics.client_values import ACCESS, LOGINS, QUOTAS, TRANSACTIONS
from sharegroup.broker.metrics.families import (
    CLIENTS,
    COORDINATORS,
    EACH_SHARE_PARTITION,
    NOT_HERE,
    PROCESS,
    REQUESTS,
    SESSIONS,
    SHARE_GROUPS,
    TOPICS,
)
from sharegroup.broker.metrics.share_partition_page import PARTITIONS_MAX, RUNS_MAX
from sharegroup.broker.metrics.values import GROUPS_MAX, SHARE_PARTITIONS_MAX, TOPICS_MAX
from sharegroup.broker.server.handler_table import HANDLERS, handler_of
from sharegroup.cli.main import VERBS, cli
from sharegroup.client.settings.kafka_properties import NAMES
from sharegroup.protocol_enums import (
    BATCHES_TAG,
    DELAY_FEATURE,
    DELAY_TAG,
    GROUPS_DELAY,
    RUNS_TAG,
    BatchFlag,
)
from sharegroup.wire.codec.apis import APIS
from sharegroup.worker.declarations.foreign_options import ELSEWHERE, OF_AN_APP
from sharegroup.worker.telemetry.prometheus import FAMILIES as WORKER, SUPERVISOR_FAMILIES
from tests.bench.document import replace_part
from tests.docs.limits.limit import Limit
from tests.docs.limits.table import LIMITS, MEMORY_BYTES_MAX, SUBJECTS
from tests.docs.write_comparison import comparison
from tests.docs.write_options import client_options_page, spark_options_page
from tests.docs.write_reference import reference

DOCS = Path(__file__).resolve().parents[2] / "docs"
STATE_APIS = "sharegroup.share.state.apis.enable"
MADE = "<!-- Made by `python -m tests.docs.write_docs` from the code; do not edit. -->"

COMMON = """\
Verbs come first, options have the names of Kafka's tools. Where a verb takes a name, `describe
billing` and `describe --group billing` are the same. Who has Kafka's tools in their fingers may say
the verb as an option, too:

| Kafka's tool, say | here |
|---|---|
| `kafka-share-groups.sh --describe --group g` | `sharegroup groups --describe --group g` |
| `kafka-consumer-groups.sh --describe --group g` | `sharegroup groups --describe --group g` |
| `kafka-consumer-groups.sh --reset-offsets ...` | `sharegroup groups --reset-offsets ...` |
| `kafka-groups.sh --list` | `sharegroup groups --list` |
| `kafka-topics.sh --create --topic t` | `sharegroup topics --create --topic t` |
| `kafka-delete-records.sh ...` | `sharegroup topics --delete-records ...` |
| `kafka-configs.sh --alter --entity-type groups ...` | `sharegroup configs --alter ...` |
| `kafka-console-producer.sh ...` | `sharegroup produce ...` |
| `kafka-console-share-consumer.sh ...` | `sharegroup consume ...` |
| `kafka-console-consumer.sh --topic t`, to look at a topic | `sharegroup tail t` |
| `kafka-console-consumer.sh --group g ...` | `sharegroup consume --group-type consumer ...` |
| `kafka-share-consumer-perf-test.sh ...` | `sharegroup perf consume ...` |
| `kafka-producer-perf-test.sh ...` | `sharegroup perf produce ...` |
| `kafka-features.sh describe` | `sharegroup cluster features` |
| `kafka-broker-api-versions.sh` | `sharegroup cluster versions` |
| `kafka-metadata-quorum.sh describe --status` | `sharegroup cluster controller` |
| `kafka-dump-log.sh ...` | `sharegroup logs ...` |

Not as in Kafka's tools: a failure ends with exit code 1, also when only one of several groups or
topics failed; `reset-offsets` looks at all partitions before it changes one; `groups list` shows
groups of every type, the other verbs of `groups` take share groups and consumer groups, and
`--all-groups` means the share groups unless `--type` says another type; `topics list` leaves out
internal topics; lists are tables with headings. In tables a character that could end a
line or command a terminal is escaped.

## Which cluster

The address of the cluster is that of the first of these that has one:

1. `--bootstrap-server` (or `--bootstrap`)
2. `bootstrap.servers` in the file of `--command-config`
3. the profile of `--profile`
4. the variable `SHAREGROUP_BOOTSTRAP`
5. for `sharegroup worker`: the application's own, `App(..., bootstrap_servers=...)`
6. the profile of the variable `SHAREGROUP_PROFILE`
7. the default profile
8. `127.0.0.1:9092`

The worker and the senders of an application use the same order, from 4 on:
[Workers](worker.md#which-cluster).

Profiles are in `~/.config/sharegroup/config.toml` (`$XDG_CONFIG_HOME/sharegroup/config.toml`), or
in the file of the variable `SHAREGROUP_CONFIG`. A profile has Kafka's client properties, as the
file of `--command-config`. The file may contain passwords, so other users should not be able to
read it.

```toml
default = "local"

[profiles.local]
bootstrap.servers = "127.0.0.1:9092"

[profiles.production]
bootstrap.servers = "kafka-1:9093,kafka-2:9093"
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "alice"
sasl.password = "secret"
ssl.ca.location = "/etc/kafka/ca.pem"
```

The properties of `--profile` always apply, also with another address; `--command-config` overrides
them. A profile of 6 or 7 applies as a whole or not at all, so its password is never sent to an
address that was given for another cluster.

If no broker answers within a second, a terminal shows `waiting for HOST:PORT`; the command keeps
trying until `--timeout`. Ctrl-C ends it within a second: records that are not finished by then are
counted on standard error, and go back to their group.

A terminal shows the progress of long commands on standard error; pipes and files get none.

## Exit codes

0 done, 1 failed, 2 misused. Of what failed, one line on standard error says why and what to do
next. A command that a signal ends before it is done: 128 plus the number of the signal, so 130 by
Ctrl-C, 143 by SIGTERM, 129 by SIGHUP. Commands that run until they are stopped (`serve`, `worker`,
`consume`, `tail --follow`) end with 0 by Ctrl-C and SIGTERM; but `consume` and `tail --follow` end
like other commands if they cannot finish within a second, or get a second signal.
`sharegroup worker check` is for scripts: 0 the same, 2 something differs, 1 anything else, misuse
too.

## JSON

`--json` prints a listing as an array with an object for each row, and what was done as an object.
Every key below is always there, with or without `--verbose`; `null` is what the broker does not
know. Keys may be added, and none is renamed or taken away.
"""

STEERED_KEYS = (
    "job (its id; null for ids and with --dry-run) outcomes (an object: outcome and member by id, "
    "or counts by outcome) records dry_run"
)
JOB_KEYS = (
    "id kind topic state filter options counted done remaining started_by started updated "
    "ended runner error resumes result"
)
JSON_KEYS = {
    "groups list": "group type protocol state",
    "groups describe": "group topic partition leader_epoch start_offset lag",
    "groups describe --members": (
        "group consumer_id host client_id rack partitions member_epoch subscribed_topics "
        "assignment (an object: partitions by topic)"
    ),
    "groups describe --state": (
        "group coordinator coordinator_id state group_epoch assignment_epoch members"
    ),
    "groups inspect": (
        "group topic partition start_offset end_offset high_watermark run_count "
        "runs (objects: first_offset last_offset state delivery_count member_id lock_ms_left)"
    ),
    "tail --group": (
        "topic partition offset timestamp key value headers state delivery_count member_id "
        "lock_ms_left"
    ),
    "groups delete": "deleted failed (an object: reasons by group)",
    "groups pause": "paused failed (an object: reasons by group)",
    "groups resume": "resumed failed (an object: reasons by group)",
    "groups delete-offsets": "group topic partition (null for a share group) status",
    "groups reset-offsets": "group topic partition old_offset new_offset",
    "cluster brokers": "id host port rack state controller",
    "cluster controller": "cluster_id controller epoch voters brokers",
    "cluster features": "feature level oldest newest",
    "cluster versions": "request oldest newest",
    "ping": "cluster_id brokers elapsed_ms",
    "topics list": "topic partitions topic_id internal",
    "topics describe": "topic partition leader replicas isr start_offset end_offset",
    "topics create": "topic created",
    "topics alter": "topic partitions",
    "topics delete": "deleted failed (an object: reasons by topic)",
    "topics delete-records": "topic partition low_watermark",
    "configs describe": "name value source read_only sensitive",
    "configs alter": "set (an object: values by name) deleted",
    "configs describe --user": "user client_id ip key value",
    "configs alter --user": "set (an object: numbers by key) deleted",
    "users list": "user mechanism iterations",
    "users add": "user mechanisms",
    "users remove": "user mechanisms",
    "acls list": "resource name pattern principal host operation permission",
    "acls add": "added (an array with the keys of acls list)",
    "acls remove": "removed (an array with the keys of acls list)",
    "quotas list": "user client_id ip key value",
    "quotas set": "set (an object: numbers by key)",
    "quotas remove": "removed",
    "dlq list": (
        "group handler reason error_class letters claimed redriven first_seen last_seen "
        "last_message"
    ),
    "dlq show": (
        "topic partition offset timestamp key value headers reason error_class error_message group "
        "handler member delivery_count failures attempts redrives redriven redrive_id origin "
        "by_broker claimed record_missing traceback"
    ),
    "dlq redrive": (
        "job (its id; null with --dry-run and --no-job) sent (an object: records by topic) "
        "left (an object: letters by why) refused "
        "(an array of target reason letters at at_complete) without_headers dry_run interrupted"
    ),
    "dlq purge": "topic partition deleted before_offset behind",
    "jobs list": JOB_KEYS,
    "jobs show": JOB_KEYS,
    "jobs abort": "id state",
    "jobs resume": JOB_KEYS,
    "schedules list": "name when next last_run runs paused_by missed topic revision",
    "schedules pause": "schedule command done",
    "schedules resume": "schedule command done",
    "schedules run": "schedule command done",
    "retries list": (
        "id origin_topic failures error_class error_message due topic partition offset"
    ),
    "retries run": STEERED_KEYS,
    "retries cancel": STEERED_KEYS,
    "perf produce": (
        "records bytes elapsed_ms records_per_second mib_per_second latency_ms (an object: average "
        "p50 p95 p99 p99.9 max) failed (with --warmup-records also steady, the same of the records "
        "after those)"
    ),
    "perf consume": (
        "redelivered records bytes elapsed_ms records_per_second mib_per_second latency_ms "
        "consumers (an array with the same keys and client_id)"
    ),
    "logs": (
        "topic partition segment bytes batches records codec first_offset end_offset "
        "first_timestamp last_timestamp state"
    ),
    "logs --batches": (
        "topic partition segment position bytes base_offset last_offset records codec timestamp "
        "timestamp_type leader_epoch producer_id producer_epoch base_sequence transactional "
        "control crc"
    ),
    "data backup": "backup files bytes paused_ms",
    "data check": "file problem at_start repair",
    "data repair": "file change done",
    "worker plan": "kind resource name setting now wanted why",
    "worker plan --acls": "operation resource name pattern why",
    "worker check": "kind resource name setting now wanted why",
    "worker apply": "kind resource name setting now wanted why status",
    "worker quiet": "app pid phase",
    "worker resume": "app pid phase",
    "worker stop": "app pid phase",
    "top": (
        "at brokers letters_of_the_last_hour attention (an array of severity subject problem "
        "action metric) rows (an array of group state members lag oldest_age_ms rate topics error)"
    ),
    "worker quiet --bootstrap-server": "app worker host pid phase outcome",
    "worker resume --bootstrap-server": "app worker host pid phase outcome",
    "worker stop --bootstrap-server": "app worker host pid phase outcome",
    "worker status --bootstrap-server": "app worker host pid phase since heard groups running "
    "waiting held version python",
    "worker status": "app pid phase since groups running waiting held health metrics",
}
"""What a program may rely on; a test holds the verbs to it."""

AFTER_JSON = """\
For consumer groups, `groups describe` has the keys group topic partition leader_epoch
current_offset log_end_offset lag consumer_id host client_id. Without a name, `configs describe` has
the key entity before the others. Without a topic, `dlq list` has the
keys topic partitions letters last_letter groups.

## Tables on a terminal

A table that is wider than the terminal gets shorter headings (`START` for `START-OFFSET`), short
ids and times (`12s ago`), then fewer columns: `--help` of a verb names those in their order. Texts
are broken between words. The last resort is two dots in the middle of long names. A line below the
table says what is missing; pipes, files and `--json` always get everything.

## Watching

`--watch SECONDS` asks again and again. On a terminal the newest answer stands in place of the one
before, cut to the height of the window, and its first line says if no broker answers. Anywhere
else, and with `--json`, each answer is one line of JSON: `{"at": "<UTC>", "rows": [...]}`, or
`{"at": ..., "error": "..."}` while there is none, so that a file or a pipe keeps the history. The
first answer must come; Ctrl-C ends it.

## Connecting

[Which cluster](#which-cluster) says where the address comes from. `--command-config FILE` takes
the properties files of Kafka's tools:

```properties
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" password="...";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
```

A name is that of a client option with dots for underscores, or one of these:
"""

AFTER_NAMES = """
Stores must be PEM; Java's own formats are refused with how to convert them. For `OAUTHBEARER`,
`sasl.oauthbearer.token.endpoint.url` is `file:///path` of a file with the token, which is read
anew for each login. What protects a connection and means nothing here is refused; any other
property that is not used is named on standard error.

## Completion and colour

`sharegroup completion bash` (or `zsh`, `fish`) prints what makes the shell complete verbs,
options, and the names of groups and topics, which come from the cluster if it answers within a
second. Colour is for a terminal only; `NO_COLOR=1` does without.
"""

ALERTS = """\
| when | means |
|---|---|
| `sharegroup_share_partition_lag` grows | more comes in than the group settles |
| `sharegroup_share_partition_full == 1` | no new records until some of what is held settles |
| `sharegroup_dead_letter_share_partitions{state="stalled"} > 0` | the log says what is wrong |
| `rate(sharegroup_acquisition_lock_timeouts_total[5m]) > 0` | members die, or are too slow |
| `kafka_share_coordinator_partitions{state="failed"} > 0` | the disk takes no delivery state |
| `sharegroup_loop_lag_seconds` beyond 0.1 | one core is not enough, or the disk is slow |"""

METRICS = f"""\
    sharegroup serve --metrics-port 9464
    curl http://127.0.0.1:9464/metrics

The text format of Prometheus; nothing has to be installed for it. The port has neither TLS nor a
password, so it is open to this machine alone unless `sharegroup.metrics.host` names another address
or the broker runs with `--insecure`. Names that begin with `kafka_` are metrics of Apache Kafka
(last column: their MBean attributes), those with `sharegroup_` are ours. What Kafka counts as a
rate is a counter here (`rate(...[1m])` is its rate), times are seconds and percentages are ratios.
Counters begin anew when the broker starts, those of a share partition also when it leaves memory,
because nobody of its group is connected.

Series of their own have the first {SHARE_PARTITIONS_MAX:,} share partitions in memory, and
{GROUPS_MAX:,} groups and {TOPICS_MAX:,} topics; `sharegroup_metrics_left_out` says how many do not,
and what has no such label is summed over all. An answer is made in slices, so a broker with 10,000
share partitions serves others meanwhile; its numbers are not all of one moment.

`/share-partitions?group=ID` on the same port has the runs of a group's share partitions in memory,
as JSON: state, delivery count, member and remaining lock time of each. The parameters `topic`,
`partition` and `first_offset` restrict it. An answer has at most {RUNS_MAX:,} runs of
{PARTITIONS_MAX} share partitions; `next_offset` is where the other runs of a share partition begin,
and `left_out` is the number of share partitions without an entry. The command
`sharegroup groups inspect --metrics URL` draws them.

Clients push their own metrics, if a resource of type `client-metrics` asks for them (KIP-714):

    kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter \\
        --name all --metrics '*' --interval 10000

The last value of each follows the broker's own metrics: that of
`org.apache.kafka.producer.record.send.total` as `kafka_client_producer_record_send_total`, with the
labels `client_instance_id` and `client_id` and those of the metric. `sharegroup_client_info`
describes the client. Values of a client that has been silent for three intervals, and for at least
a minute, are removed.

To be told of, say, before anybody notices:

{ALERTS}
"""

LIMITS_TEXT = """\
Everything that a peer can make the broker keep has a limit. A name with dots is a setting of
[Configuration](config.md); `module:CONSTANT` is a constant of the code. "A peer gets" is the
protocol error of a request beyond the limit, or what the broker does instead of an error. The
metric is one of [Metrics](metrics.md).
"""

MEMORY_TEXT = """\
These limits are memory budgets of the whole broker. Resident memory stays below that of an idle
broker plus their sum and 100 MB.

Not in the sum, because they grow with what topics and groups hold and are bounded by number: the
delivery state of share partitions (`sharegroup.share.partitions.max`, and for each
`sharegroup.share.partition.runs.max`), and topics with their partitions
(`sharegroup.partitions.max`).

Also not in the sum: connections with TLS (`max.connections`), with 30 KB each, and up to 110 KB
after large messages in both directions.
"""

WORKER_METRICS = """\
## Workers

    sharegroup worker orders.app:app --metrics-port 9465
    curl http://127.0.0.1:9465/metrics

Metrics of one process of an application (extra `worker`), beside whatever the application itself
registers with prometheus-client. Counters begin anew when the process starts. `handler` is the
handler's name, `error` the class of an exception with its module. To be told of:

| when | means |
|---|---|
| `sharegroup_worker_lag` grows | more comes in than all processes handle |
| `sharegroup_worker_writes_blocked > 0` | a retry topic or the dead letters can't be written |
| `rate(sharegroup_worker_dead_lettered_total[5m]) > 0` | `sharegroup dlq list` says why |
| `rate(sharegroup_worker_timed_out_total[5m]) > 0` | handlers hang, or need more time |
| `rate(sharegroup_worker_locks_lost_total[5m]) > 0` | the loop is blocked, or the broker away |
| `sharegroup_worker_joined == 0` | the broker is away, or refuses this process |
| `sharegroup_worker_processes_replaced_total` grows | a supervisor's processes crash or hang |

With `sharegroup worker -n 4`, the page has the metrics of all processes, each with the label
`process`: the number of the process, from 1 to one more than there are processes. Its counters
begin anew when the process is replaced, so sum their rates, as always:
`sum without (process) (rate(sharegroup_worker_handled_total[5m]))`. What is the same in each
process, such as the lag, is `max without (process)`.

"""


def documents() -> dict[str, Callable[[], str]]:
    """Every document that is made from the code: its name, and what gives its text."""
    return {
        "config.md": lambda: "\n".join(config()) + "\n",
        "protocol.md": lambda: "\n".join(protocol()) + "\n",
        "cli.md": lambda: "\n".join(command_line()) + "\n",
        "metrics.md": lambda: "\n".join(metrics()) + "\n",
        "limits.md": lambda: "\n".join(limits()) + "\n",
        "worker-reference.md": lambda: "\n".join(worker_reference()) + "\n",
        "client-options.md": lambda: made("Options of the clients", client_options_page()),
        "worker-other-options.md": lambda: made("Options of other frameworks", other_options()),
        "spark-options.md": lambda: made("Options of Spark", spark_options_page()),
        "comparison.md": comparison_page,
        "security.md": security_page,
    }


def config() -> Iterator[str]:
    yield "# Configuration"
    yield f"\n{MADE}\n"
    yield "Names, defaults and ranges are Kafka's own; `sharegroup.` begins the names of ours."
    yield "Give them with `--set KEY=VALUE` or in a `server.properties`.\n"
    for title, part in (
        ("Broker: server", ServerConfig),
        ("Broker: logs", LogConfig),
        ("Broker: share groups", ShareGroupConfig),
        ("Broker: consumer groups", ConsumerGroupConfig),
        ("Broker: consumer groups of the consumer protocol", ModernGroupConfig),
        ("Broker: coordinators", CoordinatorConfig),
        ("Broker: transactions", TransactionConfig),
        ("Broker: TLS", TlsConfig),
        ("Broker: quotas", QuotaConfig),
        ("Broker: logins", SaslConfig),
        ("Topic", TopicConfig),
        ("Group", GroupConfig),
    ):
        yield f"## {title}\n"
        yield "| key | default | range | what |"
        yield "|---|---|---|---|"
        for entry in entries(part):
            fact = entry.metadata
            default = inherited(fact) if entry.default is None else shown(entry.default)
            text = fact["text"] if fact["effect"] else f"{fact['text']} (Accepted, no effect.)"
            yield f"| `{fact['name']}` | {default} | {range_of(fact)} | {text} |"
        yield ""
    yield "## All keys of Kafka's broker\n"
    yield from KAFKA_KEYS.splitlines()
    yield ""
    yield "| key of Apache Kafka 4.4 | type | default | fate here |"
    yield "|---|---|---|---|"
    yield from sorted(kafka_rows())


KAFKA_KEYS = """\
A `server.properties` that was made for Apache Kafka starts this broker (`sharegroup serve --config
server.properties`), and so do the variables of Kafka's container images (`--kafka-env`).

- *Served* keys have the effect that the tables above describe. The defaults of this table are
  ours; [differences from Kafka](differences.md) names the ones in which we differ.
- Keys with *no effect* are accepted, and their values are checked. The broker logs one warning
  (`event=settings_without_effect`) that lists those that were given, and a line for each key that
  something else replaced (`event=setting_replaced`).
- *Refused* keys would promise what this broker cannot do; only their default is accepted.
- A key that is not in the table is refused with the most similar known name. Exceptions:
  `listener.name.<listener>.<key>` counts as its key, and `confluent.*`, `rsm.config.*` and
  `rlmm.config.*` have no effect.

Listeners: all names in `listeners` but those of controllers are opened, each with the protocol that
`listener.security.protocol.map` gives it. A PLAINTEXT listener on every address needs `--insecure`,
unless the address that it advertises is loopback, as in Kafka's own file; then it accepts
connections from this machine only, and a warning says so."""


def kafka_rows() -> Iterator[str]:
    """A row for every key of Kafka's broker: those of our classes and all others."""
    served: set[str] = set()
    for part in Config().parts:
        for entry in entries(part):
            name, fact = entry.metadata["name"], entry.metadata
            served.add(name)
            if not name.startswith("sharegroup."):
                fate = "served" if fact["effect"] else f"no effect: {fact['text']}"
                yield kafka_row(entry, fate)
    for name, found in kafka_keys().items():
        if name not in served:
            fate = "refused" if found.is_refused else "no effect"
            yield kafka_row(found.entry, f"{fate}: {found.reason}")


def kafka_row(entry: Field[Any], fate: str) -> str:
    default = "none" if entry.default is None else shown(entry.default)
    return f"| `{entry.metadata['name']}` | {kind_of(entry).name} | {default} | {fate} |"


def inherited(fact: Mapping[str, Any]) -> str:
    """What holds while nobody sets the key."""
    if not fact["synonym"] and not fact["fallbacks"]:
        return "none"
    other = fact["synonym"] or fact["fallbacks"][0][0]
    return f"as `{other}`"


def shown(value: object) -> str:
    text = value_text(value)
    return f"`{text}`" if text else "empty"


def range_of(fact: Mapping[str, Any]) -> str:
    if fact["choices"]:
        return ", ".join(f"`{choice}`" for choice in fact["choices"] if choice)
    low, high = fact["low"], fact["high"]
    if low is None and high is None:
        return ""
    return f"{'' if low is None else low}…{'' if high is None else high}"


PROTOCOL_TAGS = f"""
## Tagged fields of our own

Messages have additions to Kafka's schemas, which brokers and clients that do not know them skip.
Fields of ours have tags from 10000 on; Kafka numbers its own from 0 on.

ShareFetch version 2 can acquire without records
([ADR 0059](adr/0059-acquisition-without-records.md)). Only the Spark source asks for it.

- The request has tag {BATCHES_TAG}, a boolean. With true the response lists the
  batches of acquired records instead of sending them. MaxBytes limits their size in the log; a
  client quota counts only what is sent.
- Each partition of such a response has tag {BATCHES_TAG}, an array of the batches that `Records`
  would hold. `Records` is then empty, not null. A partition without the tag has its records.

A batch has `FirstOffset` (int64), `EndOffset` (int64, the offset after the last), `Size` (int32,
bytes in the log), `Flags` (int8) and no tagged fields. Flag {BatchFlag.CONTROL:d} is a control
batch, {BatchFlag.ABORTED:d} one of an aborted transaction, in a group that reads committed
records.

DescribeShareGroupOffsets version 1 can list the runs of share partitions: offsets with one state
and one delivery count ([Browse a group](beyond-kip-932.md#browse-a-group)). It needs the rights
that it needs without them: DESCRIBE on the group and on the topic.

- The request has tag {RUNS_TAG}, an int32: the maximum number of runs in the response. The broker
  returns {DESCRIBED_RUNS_MAX:,} at most. Each topic has tag {RUNS_TAG}, an array of int64: the
  first offset of the runs of each of its `Partitions`, in their order; 0 for those without one.
- Each partition of such a response has tag {RUNS_TAG}, a struct: `EndOffset` (int64, the first
  offset that was never delivered; -1: the group has no offset yet), `HighWatermark` (int64),
  `RunCount` (int32, all runs of the share partition), `NextOffset` (int64, the first offset of
  the next run, for another request; -1: there is none) and the array `Runs`. Those of one
  partition are of one moment. A partition without the tag is of a broker that does not list runs.

A run has `FirstOffset` and `LastOffset` (int64), `State` (int8: 0 available, 1 acquired, 2
acknowledged, 3 archiving, 4 archived, 5 delayed), `DeliveryCount` (int16), `MemberId` (a nullable
string) and `LockMsLeft` (int64); member and lock are null and -1 unless the state is acquired.
Tagged fields may follow, and must be skipped.

An acknowledgement batch of ShareFetch version 2 and ShareAcknowledge version 2 has tag {DELAY_TAG},
the delay in ms (int32, up to 24 hours) after which the records that it releases are delivered again
([ADR 0061](adr/0061-redelivery-with-a-delay.md)); the default,
{GROUPS_DELAY}, is that of the group.
A broker that reads it names the supported feature `{DELAY_FEATURE}` in ApiVersions.

A state batch in the records of `__share_group_state` has tag 10000, the time (int64, ms since 1970)
before which AVAILABLE records are not delivered again, and tag 10001, why ARCHIVING records failed
(int8: 1 rejected, 2 exhausted, 3 unreadable). Each is left out where it is 0."""


def protocol() -> Iterator[str]:
    yield "# Protocol"
    yield f"\n{MADE}\n"
    yield "The requests that are served. What is not here is not advertised."
    yield f"Those marked with * only with an authorizer or with `{STATE_APIS}`"
    yield "([ADR 0010](adr/0010-state-apis.md)).\n"
    yield "| key | request | versions | handler |"
    yield "|---|---|---|---|"
    for api in APIS.values():
        module = HANDLERS[api.key]
        path = module.replace(".", "/")
        handler = f"[{module}](../src/sharegroup/broker/handlers/{path}.py)"
        mark = " *" if api.between_brokers else ""
        yield f"| {api.key} | {api.name}{mark} | {api.oldest} to {api.newest} | {handler} |"
    yield PROTOCOL_TAGS


def metrics() -> Iterator[str]:
    yield "# Metrics"
    yield f"\n{MADE}\n"
    yield METRICS
    for title, families in (
        ("Requests", REQUESTS),
        ("Topics", TOPICS),
        ("Share groups", SHARE_GROUPS),
        ("Each share partition", EACH_SHARE_PARTITION),
        ("Share sessions and waiting", SESSIONS),
        ("Coordinators", COORDINATORS),
        ("Transactions", TRANSACTIONS),
        ("Logins", LOGINS),
        ("The process", PROCESS),
        ("Clients", CLIENTS),
        ("Access control", ACCESS),
        ("Client quotas", QUOTAS),
    ):
        yield f"## {title}\n"
        yield "| metric | kind | unit | labels | what | Kafka's |"
        yield "|---|---|---|---|---|---|"
        for family in families:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            kafkas = ", ".join(f"`{name}`" for name in family.kafkas)
            cells = (f"`{family.name}`", family.kind, family.unit, labels, family.text, kafkas)
            yield f"| {' | '.join(cells)} |"
        yield ""
    yield WORKER_METRICS
    yield "| metric | kind | unit | labels | what |"
    yield "|---|---|---|---|---|"
    for ours in (*WORKER, *SUPERVISOR_FAMILIES):
        labels = ", ".join(f"`{label}`" for label in ours.labels)
        yield f"| `{ours.name}` | {ours.kind} | {ours.unit} | {labels} | {ours.text} |"
    yield ""
    yield "## Of Kafka's, not here\n"
    yield "| Kafka's | why |"
    yield "|---|---|"
    for name, why in NOT_HERE.items():
        yield f"| `{name}` | {why} |"


def limits() -> Iterator[str]:
    yield "# Limits"
    yield f"\n{MADE}\n"
    yield LIMITS_TEXT
    for title, rows in SUBJECTS:
        yield f"## {title}\n"
        yield "| setting | default | unit | bounds | a peer gets | metric |"
        yield "|---|---|---|---|---|---|"
        for row in rows:
            metric = f"`{row.metric}`" if row.metric else ""
            yield (
                f"| `{row.setting}` | {limit_default(row):,} "
                f"| {row.unit} | {row.bounds} | {row.answer} | {metric} |"
            )
        yield ""
    yield "## Memory\n"
    yield MEMORY_TEXT
    yield "| setting | default | bytes each | MB |"
    yield "|---|---|---|---|"
    budgets = [row for row in LIMITS if row.memory_each]
    total = sum(limit_default(row) * row.memory_each for row in budgets)
    for row in budgets:
        size = limit_default(row) * row.memory_each / 1e6
        yield f"| `{row.setting}` | {limit_default(row):,} | {row.memory_each:,} | {size:.1f} |"
    yield f"| all, at most {MEMORY_BYTES_MAX / 1e6:.0f} | | | {total / 1e6:.1f} |"


def limit_default(limit: Limit) -> int:
    """The default of a limit: that of its configuration key, or the value of its constant."""
    module, _, constant = limit.setting.partition(":")
    if constant:
        value = getattr(import_module(f"sharegroup.{module}"), constant)
    else:
        parts = (
            ServerConfig,
            LogConfig,
            ModernGroupConfig,
            ShareGroupConfig,
            ConsumerGroupConfig,
            CoordinatorConfig,
            TransactionConfig,
            QuotaConfig,
            SaslConfig,
        )
        defaults = {
            entry.metadata["name"]: entry.default for part in parts for entry in entries(part)
        }
        value = defaults[limit.setting]
    assert isinstance(value, int | float), f"{limit.setting} is {value!r}, not a number"
    return int(value)


def command_line() -> Iterator[str]:
    yield "# Command line"
    yield f"\n{MADE}\n"
    yield COMMON
    yield "| verb | keys |"
    yield "|---|---|"
    for verb, keys in JSON_KEYS.items():
        yield f"| `{verb}` | {keys} |"
    yield f"\n{AFTER_JSON}"
    yield ", ".join(f"`{kafkas}` ({ours})" for kafkas, ours in sorted(NAMES.items())) + "."
    yield AFTER_NAMES
    yield from page(cli, "sharegroup")
    context = click.Context(cli, info_name="sharegroup")
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        yield from page(command, f"sharegroup {verb}")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from page(inner, f"sharegroup {verb} {name}")


def worker_reference() -> Iterator[str]:
    yield "# Workers: reference"
    yield f"\n{MADE}\n<!-- not run here: signatures, which are no programs -->\n"
    yield from reference()


def other_options() -> Iterator[str]:
    """What replaces the options of other frameworks; names with one replacement share a row."""
    yield (
        "Some options of other consumers and frameworks (Karafka, Celery, Dramatiq, FastStream, "
        "Kafka's consumers) have another name in\n[workers](worker.md), or make no sense on a "
        "share group. The worker refuses them, and the error says what to use instead. "
        "[Migrating](migrating.md)\nexplains how a whole program moves. Handlers of consumer "
        "groups have some replacements of their own, which their errors name."
    )
    for section, table in (("a handler", ELSEWHERE), ("an App", OF_AN_APP)):
        names: dict[str, list[str]] = {}
        for name, instead in table.items():
            names.setdefault(instead, []).append(f"`{name}`")
        yield f"\n## Options of {section}\n\n| options | instead |\n|---|---|"
        yield from (f"| {', '.join(those)} | {instead} |" for instead, those in names.items())


def made(title: str, lines: Iterator[str]) -> str:
    """A page that is wholly generated."""
    return "\n".join([f"# {title}", f"\n{MADE}\n", *lines]) + "\n"


def comparison_page() -> str:
    """The page with its generated part written anew; the rest of it is written by hand."""
    return replace_part((DOCS / "comparison.md").read_text(), "lines", "\n".join(comparison()))


def security_page() -> str:
    """The page with its generated table written anew; the rest of it is written by hand."""
    text = (DOCS / "security.md").read_text()
    return replace_part(text, "requirements", "\n".join(requirements()))


REQUIREMENT_NOTES = {
    "Metadata": "CREATE for a topic that the request creates: on the cluster or the topic; "
    "DESCRIBE on CLUSTER for the authorized operations on it",
    "Fetch": "CLUSTER_ACTION instead of READ for a request with the id of a replica",
    "Produce": "WRITE on TRANSACTIONAL_ID for transactional batches",
    "FindCoordinator": "by the type of the key; CLUSTER_ACTION for share partitions",
    "ListGroups": "DESCRIBE on CLUSTER, or on each listed group",
    "CreateTopics": "CREATE on CLUSTER or the topic; DESCRIBE_CONFIGS to see its configuration",
    "DeleteTopics": "DELETE on CLUSTER or the topic; DESCRIBE to be told that it does not exist",
    "InitProducerId": "WRITE on TRANSACTIONAL_ID; without a transactional id IDEMPOTENT_WRITE, or "
    "WRITE on any topic",
    "OffsetForLeaderEpoch": "CLUSTER_ACTION, or DESCRIBE on each topic",
    "AddPartitionsToTxn": "CLUSTER_ACTION from version 4 on, WRITE before",
    "WriteTxnMarkers": "one of the two",
    "DescribeCluster": "only for the authorized operations on the cluster",
    "ConsumerGroupDescribe": "DESCRIBE on all topics of its members",
    "ShareGroupDescribe": "DESCRIBE on all topics of its members",
}
"""What operations and types alone do not say, by request."""


def requirements() -> Iterator[str]:
    """The table of what each request requires, from the gates and checks of the handlers."""
    yield "| request | as a whole | item by item | |"
    yield "|---|---|---|---|"
    for key, api in APIS.items():
        handler = handler_of(key)
        gates, checks = permissions(handler.gates), permissions(handler.checks)
        yield f"| {api.name} | {gates} | {checks} | {REQUIREMENT_NOTES.get(api.name, '')} |"


def permissions(checks: Sequence[Check]) -> str:
    return "<br>".join(f"{check.operation.name} on {check.resource_type.name}" for check in checks)


def page(command: click.Command, name: str) -> Iterator[str]:
    command._help_option = None  # click caches it at the first use, perhaps by a test.
    context = click.Context(
        command,
        info_name=name,
        terminal_width=96,
        max_content_width=96,
        help_option_names=cli.context_settings["help_option_names"],
    )
    yield f"## {name}\n"
    yield "```text"
    yield command.get_help(context)
    yield "```\n"


def main() -> None:
    for name, make in documents().items():
        (DOCS / name).write_text(make())
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
