"""Kafka's configuration keys that have no effect on this broker, and those that it refuses.

Each text is a reason, followed by its keys as Apache Kafka 4.4 declares them, one in a line:

    name type default range when [internal]

A default of ``-`` stands for none, ``""`` for an empty text, and ``$`` in it for Kafka's package.
A range is ``low..high``, or the allowed values, or ``-``.  ``when`` says how Kafka lets a value
change: ``fixed`` while the broker runs, for all brokers (``cluster``), or only for a single one
(``broker``).  DescribeConfigs does not list ``internal`` keys.  `kafka_keys` reads these tables, and
a test compares them with Kafka.
"""

NO_EFFECT = {
    "One event loop serves all requests and runs all background work; there are no pools of "
    "threads.": """
    background.threads INT 10 1.. cluster
    group.coordinator.background.threads INT 2 1.. fixed
    group.coordinator.threads INT 4 1.. fixed
    log.cleaner.threads INT 1 0.. cluster
    num.io.threads INT 8 1.. cluster
    num.network.threads INT 3 1.. cluster
    num.recovery.threads.per.data.dir INT 2 1.. cluster
    num.replica.alter.log.dirs.threads INT - - fixed
    share.coordinator.threads INT 1 1.. fixed
    """,
    "There is one broker: no partition has followers, and no leader is elected.": """
    alter.log.dirs.replication.quota.window.num INT 11 1.. fixed
    alter.log.dirs.replication.quota.window.size.seconds INT 1 1.. fixed
    auto.leader.rebalance.enable BOOLEAN true - fixed
    follower.fetch.last.tiered.offset.enable BOOLEAN false - cluster
    leader.imbalance.check.interval.seconds LONG 300 1.. fixed
    num.replica.fetchers INT 1 1.. cluster
    offsets.topic.replication.factor SHORT 3 1.. fixed
    replica.fetch.backoff.ms INT 1000 0.. fixed
    replica.fetch.max.bytes INT 1048576 0.. fixed
    replica.fetch.min.bytes INT 1 - fixed
    replica.fetch.response.max.bytes INT 10485760 0.. fixed
    replica.fetch.wait.max.ms INT 500 - fixed
    replica.high.watermark.checkpoint.interval.ms LONG 5000 - fixed
    replica.lag.time.max.ms LONG 30000 - fixed
    replica.selector.class STRING - - fixed
    replica.socket.receive.buffer.bytes INT 65536 - fixed
    replica.socket.timeout.ms INT 30000 - fixed
    replication.quota.window.num INT 11 1.. fixed
    replication.quota.window.size.seconds INT 1 1.. fixed
    share.coordinator.state.topic.min.isr SHORT 2 1.. fixed
    share.coordinator.state.topic.replication.factor SHORT 3 1.. fixed
    transaction.state.log.min.isr INT 2 1.. fixed
    transaction.state.log.replication.factor SHORT 3 1.. fixed
    unclean.leader.election.interval.ms LONG 300000 1.. fixed internal
    """,
    "The broker is its own controller and alone in its cluster; its metadata is a journal in "
    "the data directory.": """
    broker.heartbeat.interval.ms INT 2000 - fixed
    broker.session.timeout.ms INT 9000 - fixed
    controlled.shutdown.enable BOOLEAN true - fixed
    controller.performance.always.log.threshold.ms LONG 2000 0.. fixed internal
    controller.performance.sample.period.ms LONG 60000 100.. fixed internal
    controller.quorum.append.linger.ms INT 25 0.. fixed
    controller.quorum.auto.join.enable BOOLEAN false - fixed
    controller.quorum.bootstrap.servers LIST "" - fixed
    controller.quorum.election.backoff.max.ms INT 1000 0.. fixed
    controller.quorum.election.timeout.ms INT 1000 0.. fixed
    controller.quorum.fetch.max.bytes INT 1048576 1.. fixed
    controller.quorum.fetch.snapshot.max.bytes INT 1048576 1.. fixed
    controller.quorum.fetch.timeout.ms INT 2000 0.. fixed
    controller.quorum.request.timeout.ms INT 2000 0.. fixed
    controller.quorum.retry.backoff.ms INT 20 0.. fixed
    controller.quorum.voters LIST "" - fixed
    controller.socket.timeout.ms INT 30000 - fixed
    early.start.listeners LIST - - fixed
    initial.broker.registration.timeout.ms INT 60000 - fixed
    inter.broker.listener.name STRING - - fixed
    internal.metadata.delete.delay.millis LONG 60000 - fixed internal
    internal.metadata.log.segment.bytes INT - - fixed internal
    internal.metadata.max.batch.size.in.bytes INT 8388608 - fixed internal
    metadata.log.dir STRING - - fixed
    metadata.log.max.record.bytes.between.snapshots LONG 20971520 1.. fixed
    metadata.log.max.snapshot.interval.ms LONG 3600000 0.. fixed
    metadata.log.segment.bytes INT 1073741824 8388608.. fixed
    metadata.log.segment.ms LONG 604800000 - fixed
    metadata.max.idle.interval.ms INT 500 0.. fixed
    metadata.max.retention.bytes LONG 104857600 - fixed
    metadata.max.retention.ms LONG 604800000 - fixed
    request.timeout.ms INT 30000 - fixed
    security.inter.broker.protocol STRING PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL fixed
    server.max.startup.time.ms LONG 9223372036854775807 0.. fixed internal
    socket.connection.setup.timeout.max.ms LONG 30000 - fixed
    socket.connection.setup.timeout.ms LONG 10000 - fixed
    """,
    "The operating system and the event loop choose the sizes of buffers of sockets.": """
    socket.listen.backlog.size INT 50 1.. fixed
    socket.receive.buffer.bytes INT 102400 - fixed
    socket.send.buffer.bytes INT 102400 - fixed
    """,
    "`sharegroup.connection.requests.max` and `queued.max.request.bytes` limit requests.": """
    queued.max.requests INT 500 1.. fixed
    """,
    "New connections are limited by `max.connections` and `max.connections.per.ip`, not by a "
    "rate.": """
    max.connection.creation.rate INT 2147483647 0.. cluster
    """,
    "A request that waits is removed as soon as it has ended.": """
    delete.records.purgatory.purge.interval.requests INT 1 - fixed
    fetch.purgatory.purge.interval.requests INT 1000 - fixed
    producer.purgatory.purge.interval.requests INT 1000 - fixed
    share.fetch.purgatory.purge.interval.requests INT 1000 - fixed
    """,
    "The cleaner chooses its buffers and works in slices between requests.": """
    log.cleaner.io.buffer.load.factor DOUBLE 0.9 - cluster
    log.cleaner.io.buffer.size INT 524288 0.. cluster
    log.cleaner.io.max.bytes.per.second DOUBLE 1.7976931348623157E308 - cluster
    """,
    "The broker decides when it syncs, and saves checkpoints when logs have changed.": """
    log.dir.failure.timeout.ms LONG 30000 1.. fixed
    log.flush.offset.checkpoint.interval.ms INT 60000 0.. fixed
    log.flush.start.offset.checkpoint.interval.ms INT 60000 0.. fixed
    log.initial.task.delay.ms LONG 30000 0.. fixed internal
    """,
    "Each log is completely on the local disk.": """
    remote.fetch.max.wait.ms INT 500 1.. cluster
    remote.list.offsets.request.timeout.ms LONG 30000 1.. cluster
    remote.log.index.file.cache.total.size.bytes LONG 1073741824 1.. cluster
    remote.log.index.file.cache.ttl.ms LONG 900000 -1.. fixed internal
    remote.log.manager.copier.thread.pool.size INT 10 1.. cluster
    remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 1.. cluster
    remote.log.manager.copy.quota.window.num INT 11 1.. fixed
    remote.log.manager.copy.quota.window.size.seconds INT 1 1.. fixed
    remote.log.manager.expiration.thread.pool.size INT 10 1.. cluster
    remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 1.. cluster
    remote.log.manager.fetch.quota.window.num INT 11 1.. fixed
    remote.log.manager.fetch.quota.window.size.seconds INT 1 1.. fixed
    remote.log.manager.follower.thread.pool.size INT 2 1.. cluster
    remote.log.manager.task.interval.ms LONG 30000 1.. fixed
    remote.log.manager.task.retry.backoff.max.ms LONG 30000 1.. fixed internal
    remote.log.manager.task.retry.backoff.ms LONG 500 1.. fixed internal
    remote.log.manager.task.retry.jitter DOUBLE 0.2 0..0.5 fixed internal
    remote.log.manager.thread.pool.size INT 2 1.. fixed
    remote.log.metadata.custom.metadata.max.bytes INT 128 0.. fixed
    remote.log.metadata.manager.class.name STRING $server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager - fixed
    remote.log.metadata.manager.class.path STRING - - fixed
    remote.log.metadata.manager.impl.prefix STRING rlmm.config. - fixed
    remote.log.metadata.manager.listener.name STRING - - fixed
    remote.log.reader.max.pending.tasks INT 100 1.. fixed
    remote.log.reader.threads INT 10 1.. cluster
    remote.log.storage.manager.class.name STRING - - fixed
    remote.log.storage.manager.class.path STRING - - fixed
    remote.log.storage.manager.impl.prefix STRING rsm.config. - fixed
    """,
    "There is one broker, so no quota limits replication.": """
    leader.replication.throttled.rate LONG 9223372036854775807 0.. cluster internal
    follower.replication.throttled.rate LONG 9223372036854775807 0.. cluster internal
    replica.alter.log.dirs.io.max.bytes.per.second LONG 9223372036854775807 0.. cluster internal
    """,
    "The broker is no client of other brokers, and has neither Kerberos nor delegation tokens.": """
    delegation.token.expiry.check.interval.ms LONG 3600000 1.. fixed
    delegation.token.expiry.time.ms LONG 86400000 1.. fixed
    delegation.token.max.lifetime.ms LONG 604800000 1.. fixed
    delegation.token.secret.key PASSWORD - - fixed
    sasl.client.callback.handler.class CLASS - - fixed
    sasl.kerberos.kinit.cmd STRING /usr/bin/kinit - broker
    sasl.kerberos.min.time.before.relogin LONG 60000 - broker
    sasl.kerberos.principal.to.local.rules LIST DEFAULT - broker
    sasl.kerberos.service.name STRING - - broker
    sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 - broker
    sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 - broker
    sasl.login.callback.handler.class CLASS - - fixed
    sasl.login.class CLASS - - fixed
    sasl.login.connect.timeout.ms INT - - fixed
    sasl.login.read.timeout.ms INT - - fixed
    sasl.login.refresh.buffer.seconds SHORT 300 - broker
    sasl.login.refresh.min.period.seconds SHORT 60 - broker
    sasl.login.refresh.window.factor DOUBLE 0.8 - broker
    sasl.login.refresh.window.jitter DOUBLE 0.05 - broker
    sasl.login.retry.backoff.max.ms LONG 10000 - fixed
    sasl.login.retry.backoff.ms LONG 100 - fixed
    sasl.mechanism.controller.protocol STRING GSSAPI - fixed
    sasl.mechanism.inter.broker.protocol STRING GSSAPI - broker
    sasl.oauthbearer.assertion.algorithm STRING RS256 - fixed
    sasl.oauthbearer.assertion.claim.aud STRING - - fixed
    sasl.oauthbearer.assertion.claim.exp.seconds INT 300 0..86400 fixed
    sasl.oauthbearer.assertion.claim.iss STRING - - fixed
    sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false - fixed
    sasl.oauthbearer.assertion.claim.nbf.seconds INT 60 0..3600 fixed
    sasl.oauthbearer.assertion.claim.sub STRING - - fixed
    sasl.oauthbearer.assertion.file STRING - - fixed
    sasl.oauthbearer.assertion.private.key.file STRING - - fixed
    sasl.oauthbearer.assertion.private.key.passphrase PASSWORD - - fixed
    sasl.oauthbearer.assertion.template.file STRING - - fixed
    sasl.oauthbearer.client.credentials.client.id STRING - - fixed
    sasl.oauthbearer.client.credentials.client.secret PASSWORD - - fixed
    sasl.oauthbearer.jwt.retriever.class CLASS $common.security.oauthbearer.DefaultJwtRetriever - fixed
    sasl.oauthbearer.scope STRING - - fixed
    sasl.oauthbearer.token.endpoint.url STRING - - fixed
    """,
    "TLS is that of OpenSSL, not of Java.": """
    security.providers STRING - - fixed
    ssl.endpoint.identification.algorithm STRING https - broker
    ssl.keymanager.algorithm STRING SunX509 - broker
    ssl.protocol STRING TLSv1.3 - broker
    ssl.provider STRING - - broker
    ssl.secure.random.implementation STRING - - broker
    ssl.trustmanager.algorithm STRING PKIX - broker
    """,
    "Metrics are served to Prometheus at `sharegroup.metrics.port`, not by Java classes.": """
    kafka.metrics.polling.interval.secs INT 10 1.. fixed
    kafka.metrics.reporters LIST "" - fixed
    metric.reporters LIST $common.metrics.JmxReporter - cluster
    metrics.num.samples INT 2 1.. fixed
    metrics.recording.level STRING INFO - fixed
    metrics.sample.window.ms LONG 30000 1.. fixed
    """,
    "The records of coordinators are written without compression, with the next sync, and loaded "
    "in chunks that the broker chooses.": """
    group.coordinator.append.linger.ms INT -1 -1.. fixed
    group.coordinator.cached.buffer.max.bytes INT 1048588 524288.. cluster
    offsets.commit.timeout.ms INT 5000 1.. fixed
    offsets.load.buffer.size INT 5242880 1.. fixed
    offsets.topic.compression.codec INT 0 - fixed
    share.coordinator.append.linger.ms INT -1 -1.. fixed
    share.coordinator.cached.buffer.max.bytes INT 1048588 524288.. fixed
    share.coordinator.load.buffer.size INT 5242880 1.. fixed
    share.coordinator.state.topic.compression.codec INT 0 0..4 fixed
    share.coordinator.write.timeout.ms INT 5000 1.. fixed
    transaction.state.log.load.buffer.size INT 5242880 1..2147483647 fixed
    """,
    "The streams protocol (KIP-1071) is not served; clients get an error.": """
    group.streams.acceptable.recovery.lag LONG 10000 0.. fixed internal
    group.streams.assignment.interval.ms INT 1000 0.. cluster
    group.streams.assignor.offload.enable BOOLEAN true - cluster internal
    group.streams.assignors LIST sticky - fixed
    group.streams.heartbeat.interval.ms INT 5000 1.. fixed
    group.streams.initial.rebalance.delay.ms INT 3000 0.. fixed
    group.streams.max.assignment.interval.ms INT 15000 0.. fixed
    group.streams.max.heartbeat.interval.ms INT 15000 1.. fixed
    group.streams.max.session.timeout.ms INT 60000 1.. fixed
    group.streams.max.size INT 2147483647 1.. fixed
    group.streams.max.standby.replicas INT 2 0.. fixed
    group.streams.max.warmup.replicas INT 20 0.. fixed internal
    group.streams.min.assignment.interval.ms INT 0 0.. fixed
    group.streams.min.heartbeat.interval.ms INT 5000 1.. fixed
    group.streams.min.session.timeout.ms INT 45000 1.. fixed
    group.streams.min.task.offset.interval.ms INT 15000 1.. fixed internal
    group.streams.num.standby.replicas INT 0 0.. fixed
    group.streams.num.warmup.replicas INT 2 0.. fixed internal
    group.streams.rack.aware.assignment.tags LIST "" - fixed
    group.streams.session.timeout.ms INT 45000 1.. fixed
    group.streams.task.offset.interval.ms INT 60000 1.. fixed internal
    """,
    "Share state is initialized in the same step in which a group subscribes.": """
    group.share.initialize.retry.interval.ms INT 30000 1.. fixed internal
    """,
    "A regular expression is matched again whenever topics are created or deleted.": """
    group.consumer.regex.refresh.interval.ms INT 600000 10000.. fixed internal
    """,
    "Transactions are aborted as soon as they time out.": """
    transaction.abort.timed.out.transaction.cleanup.interval.ms INT 10000 1..2147483647 fixed
    """,
    "Two-phase commit is not supported, as in Kafka 4.4 without unstable features.": """
    transaction.two.phase.commit.enable BOOLEAN false - fixed
    """,
    "A batch of a transaction is always checked against its transaction.": """
    transaction.partition.verification.enable BOOLEAN true - fixed
    """,
    "A partition is added to a transaction at once, so nothing is tried again.": """
    add.partitions.to.txn.retry.backoff.max.ms INT 100 0.. fixed
    add.partitions.to.txn.retry.backoff.ms INT 20 1.. fixed
    """,
    "The state of unused producers is checked every ten minutes.": """
    producer.id.expiration.check.interval.ms INT 600000 1.. fixed internal
    """,
    "Unstable versions of requests and features are not served.": """
    unstable.api.versions.enable BOOLEAN false - fixed internal
    unstable.feature.versions.enable BOOLEAN false - fixed internal
    """,
    "DescribeTopicPartitions limits its answers by itself.": """
    max.request.partition.size.limit INT 2000 1.. fixed
    """,
}
REMOVED = {
    "Kafka 4.0 removed this key.": """
    broker.id.generation.enable BOOLEAN true - fixed internal
    control.plane.listener.name STRING - - fixed internal
    delegation.token.master.key PASSWORD - - fixed internal
    inter.broker.protocol.version STRING - - fixed internal
    log.message.downconversion.enable BOOLEAN true - fixed internal
    log.message.format.version STRING - - fixed internal
    log.message.timestamp.difference.max.ms LONG - - fixed internal
    offsets.commit.required.acks SHORT -1 - fixed internal
    password.encoder.secret PASSWORD - - fixed internal
    reserved.broker.max.id INT 1000 - fixed internal
    zookeeper.connection.timeout.ms INT - - fixed internal
    zookeeper.max.in.flight.requests INT 10 - fixed internal
    zookeeper.session.timeout.ms INT 18000 - fixed internal
    zookeeper.set.acl BOOLEAN false - fixed internal
    zookeeper.clientCnxnSocket STRING - - fixed internal
    zookeeper.metadata.migration.enable STRING - - fixed internal
    zookeeper.metadata.migration.min.batch.size STRING - - fixed internal
    zookeeper.ssl.cipher.suites STRING - - fixed internal
    zookeeper.ssl.client.enable STRING - - fixed internal
    zookeeper.ssl.crl.enable STRING - - fixed internal
    zookeeper.ssl.enabled.protocols STRING - - fixed internal
    zookeeper.ssl.endpoint.identification.algorithm STRING - - fixed internal
    zookeeper.ssl.keystore.location STRING - - fixed internal
    zookeeper.ssl.keystore.type STRING - - fixed internal
    zookeeper.ssl.ocsp.enable STRING - - fixed internal
    zookeeper.ssl.protocol STRING - - fixed internal
    zookeeper.ssl.truststore.location STRING - - fixed internal
    zookeeper.ssl.truststore.type STRING - - fixed internal
    zookeeper.sync.time.ms STRING - - fixed internal
    zookeeper.ssl.keystore.password PASSWORD - - fixed internal
    zookeeper.ssl.truststore.password PASSWORD - - fixed internal
    controlled.shutdown.max.retries STRING - - fixed internal
    controlled.shutdown.retry.backoff.ms STRING - - fixed internal
    leader.imbalance.per.broker.percentage STRING - - fixed internal
    password.encoder.cipher.algorithm STRING - - fixed internal
    password.encoder.iterations STRING - - fixed internal
    password.encoder.key.length STRING - - fixed internal
    password.encoder.keyfactory.algorithm STRING - - fixed internal
    password.encoder.old.secret PASSWORD - - fixed internal
    alter.config.policy.kraft.compatibility.enable STRING - - fixed internal
    metadata.log.segment.min.bytes STRING - - fixed internal
    internal.metadata.max.fetch.size.in.bytes STRING - - fixed internal
    unstable.metadata.versions.enable STRING - - fixed internal
    """,
}
"""Keys that Kafka 4.4 does not declare, but that files made for it contain."""

REPLACED = {
    "The feature level `share.version` replaced this key; share groups are enabled, and Kafka's "
    "`kafka-features.sh` disables them.": """
    group.share.enable STRING - - fixed internal
    """,
    "`sharegroup.share.groups.bytes.max` limits all share groups together, not their number.": """
    group.share.max.groups STRING - - fixed internal
    """,
    "The client's `max.poll.records` and `share.acquire.mode` replaced this key.": """
    share.fetch.max.fetch.records STRING - - fixed internal
    """,
    "`group.coordinator.rebalance.protocols` replaced this key.": """
    group.coordinator.new.enable STRING - - fixed internal
    """,
    "The feature level `eligible.leader.replicas.version` replaced this key.": """
    eligible.leader.replicas.enable STRING - - fixed internal
    """,
}
"""Keys of Kafka 3.x and 4.x that something else replaced; the broker says so when they are given."""

REFUSED = {
    "There is one broker, so a partition has one replica.": """
    default.replication.factor INT 1 - fixed
    """,
    "Remote storage is not served.": """
    remote.log.storage.system.enable BOOLEAN false - fixed
    """,
    "A Java class cannot run in this broker.": """
    alter.config.policy.class.name CLASS - - fixed
    create.topic.policy.class.name CLASS - - fixed
    client.quota.callback.class CLASS - - fixed
    ssl.engine.factory.class CLASS - - broker
    sasl.server.callback.handler.class CLASS - - fixed
    sasl.oauthbearer.jwt.validator.class CLASS $common.security.oauthbearer.DefaultJwtValidator - fixed
    principal.builder.class CLASS $common.security.authenticator.DefaultKafkaPrincipalBuilder - broker
    """,
    "References to other files and to secrets are not resolved in values.": """
    config.providers LIST "" - cluster
    """,
    "There is one data directory, and new partitions need it.": """
    cordoned.log.dirs LIST "" - broker
    """,
    "The broker is its own controller and has both roles.": """
    process.roles LIST - broker|controller fixed
    """,
    "The streams protocol (KIP-1071) is not served.": """
    group.streams.topology.description.plugin.class CLASS - - fixed
    """,
    "Kafka 3.0 replaced this key with `listeners` and `advertised.listeners`.": """
    advertised.host.name STRING - - fixed internal
    advertised.port STRING - - fixed internal
    host.name STRING - - fixed internal
    port STRING - - fixed internal
    """,
    "There is no ZooKeeper: this broker is its own controller, as Kafka is since 4.0.": """
    zookeeper.connect STRING "" - fixed internal
    """,
}
"""Keys whose values would promise what this broker cannot do; the default is accepted."""

ACCEPTED = {
    "process.roles": ("broker,controller", "controller,broker"),
    "sasl.server.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
    ),
}
"""Values of refused keys that are accepted beside the default."""
