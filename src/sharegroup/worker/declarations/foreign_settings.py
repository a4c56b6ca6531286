"""Settings of other frameworks' applications, with what replaces them: Celery's and FastStream's.

Each row has a replacement, and the names it is for.  A test compares the names with the lists of
the frameworks (`tests/unit/worker/declarations/foreign_names.json`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_RESULTS = "result_for='1h' of each handler, and App(store=...): docs/worker-results.md"
_STORE = "App(store=...): SqliteStore, PostgresStore or RedisStore, with its address"
PAYLOAD = "the annotation of the handler's first parameter, or payload=..."
DELAY = "the sender's delay: handler.send(..., delay='10m')"
_SETTLED = "nothing: a record is always settled after its handler"
_LOST = "nothing: the record of a lost worker is delivered again"
_CLIENT = "client={...}: options of the Kafka clients (docs/client-options.md)"
_TOPIC = "app.topic(name, partitions=..., configs={...})"
_EVENTS = "app.on('record.started', ...): events need no queue, and metrics no setting"
_COMMANDS = "announce=True: commands reach workers through a topic (docs/fleet.md)"
_SCHEDULES = "nothing: schedules are kept in a compacted topic (docs/schedules.md)"
_LOGS = "Python's logging, or `sharegroup worker --log-format`"
PROCESSES = "processes=... of a handler, or `sharegroup worker -n`"
_ONE_LOOP = "nothing: handlers run on one event loop, in threads, or with processes=..."
_AHEAD = "nothing: the speed of handlers decides how much is fetched"
_FRAMES = "nothing: `sharegroup worker` says what it declares; there is no specification of it"
_EAGER = "async with app.test() as t"

ROWS: tuple[tuple[str, str], ...] = (
    # Celery: brokers and results.
    (
        "bootstrap_servers='host:port'",
        "broker_read_url broker_write_url broker_transport broker_host broker_port broker_vhost",
    ),
    (
        _CLIENT,
        (
            "broker_user broker_password broker_login_method broker_connection_timeout "
            "broker_connection_retry broker_connection_max_retries broker_channel_error_retry "
            "broker_failover_strategy broker_heartbeat_checkrate broker_pool_acquire_timeout "
            "broker_transport_options broker_connection_retry_on_startup broker_pool_limit "
            "broker_heartbeat broker_use_ssl task_compression task_publish_retry "
            "task_publish_retry_policy security_key security_key_password security_certificate "
            "security_cert_store security_digest"
        ),
    ),
    (
        DELAY,
        "broker_native_delayed_delivery_queue_type",
    ),
    (
        _RESULTS,
        (
            "backend result_backend result_cache_max result_compression result_exchange "
            "result_exchange_type result_expires result_chord_expires result_failure_expires "
            "result_persistent result_extended result_backend_transport_options "
            "result_chord_retry_interval result_chord_join_timeout "
            "result_backend_max_sleep_between_retries_ms result_backend_max_retries "
            "result_backend_base_sleep_between_retries_ms result_backend_always_retry "
            "task_ignore_result task_store_errors_even_if_ignored task_remote_tracebacks"
        ),
    ),
    (
        _STORE,
        (
            "cache_backend cache_backend_options redis_backend_use_ssl redis_db redis_host "
            "redis_max_connections redis_username redis_password redis_port redis_socket_timeout "
            "redis_socket_connect_timeout redis_retry_on_timeout redis_socket_keepalive "
            "database_url database_engine_options database_engine_callback "
            "database_short_lived_sessions database_table_schemas database_table_names "
            "database_create_tables_at_setup"
        ),
    ),
    (
        "App(store=...): SQLite, PostgreSQL or Redis, or a class of yours",
        (
            "cassandra_entry_ttl cassandra_keyspace cassandra_port cassandra_read_consistency "
            "cassandra_servers cassandra_bundle_path cassandra_table cassandra_write_consistency "
            "cassandra_auth_provider cassandra_auth_kwargs cassandra_options s3_access_key_id "
            "s3_secret_access_key s3_bucket s3_base_path s3_endpoint_url s3_region "
            "azureblockblob_container_name azureblockblob_retry_initial_backoff_sec "
            "azureblockblob_retry_increment_base azureblockblob_retry_max_attempts "
            "azureblockblob_base_path azureblockblob_connection_timeout "
            "azureblockblob_read_timeout gcs_bucket gcs_project gcs_base_path gcs_ttl "
            "couchbase_backend_settings arangodb_backend_settings "
            "mongodb_backend_settings cosmosdbsql_database_name "
            "cosmosdbsql_collection_name cosmosdbsql_consistency_level "
            "cosmosdbsql_max_retry_attempts cosmosdbsql_max_retry_wait_time "
            "elasticsearch_retry_on_timeout elasticsearch_max_retries elasticsearch_timeout "
            "elasticsearch_save_meta_as_text"
        ),
    ),
    # Celery: tasks and queues.
    (PAYLOAD, "task_serializer result_serializer accept_content result_accept_content"),
    (
        _SETTLED,
        "task_acks_late task_acks_on_failure_or_timeout task_acks_on_failure task_acks_on_timeout",
    ),
    (_LOST, "task_reject_on_worker_lost task_retry_on_worker_lost"),
    (
        _TOPIC,
        (
            "task_queues task_create_missing_queues task_create_missing_queue_type "
            "task_create_missing_queue_exchange_type task_default_queue_type "
            "task_default_delivery_mode"
        ),
    ),
    ("topics=..., of each handler", "task_default_exchange task_default_exchange_type"),
    ("the sender's key: handler.send(..., key=...)", "task_default_routing_key"),
    (
        "a topic for each priority, and priorities={'urgent': 10} in the handler's options",
        "task_default_priority task_queue_max_priority task_inherit_parent_priority",
    ),
    (_EAGER, "task_eager_propagates task_store_eager_result"),
    ("nothing: a record is the payload, with headers (docs/spec.md)", "task_protocol"),
    (
        "await other.send(...) in the handler: there is no canvas",
        "task_allow_error_cb_on_chord_header",
    ),
    # Celery: events, commands and schedules.
    (
        _EVENTS,
        (
            "event_queue_expires event_queue_ttl event_queue_prefix event_queue_exclusive "
            "event_queue_durable event_serializer event_exchange task_send_sent_event"
        ),
    ),
    (
        _COMMANDS,
        (
            "control_queue_ttl control_queue_expires control_queue_exclusive control_queue_durable "
            "control_exchange worker_enable_remote_control beat_enable_remote_control "
            "beat_remote_control_max_tick_age"
        ),
    ),
    (
        _SCHEDULES,
        "beat_max_loop_interval beat_scheduler beat_schedule_filename beat_sync_every",
    ),
    ("missed='skip', 'last' or 'all', of each schedule", "beat_cron_starting_deadline"),
    # Celery: workers.
    (PROCESSES, "worker_autoscaler worker_pool worker_pool_start_method"),
    (
        _ONE_LOOP,
        (
            "worker_agent worker_consumer worker_pool_putlocks worker_pool_restarts "
            "worker_proc_alive_timeout worker_lost_wait worker_timer worker_timer_precision"
        ),
    ),
    (
        _AHEAD,
        (
            "worker_prefetch_multiplier worker_eta_task_limit worker_disable_prefetch "
            "worker_enable_prefetch_count_reduction worker_detect_quorum_queues"
        ),
    ),
    (
        "grace='30s': the time that handlers get to finish when the worker stops",
        "worker_soft_shutdown_timeout worker_enable_soft_shutdown_on_idle",
    ),
    (
        "nothing: a handler whose lock is lost is cancelled",
        "worker_cancel_long_running_tasks_on_connection_loss",
    ),
    ("a key and order_by='key': there is no queue of one worker", "worker_direct"),
    ("defaults={'rate_limit': None}", "worker_disable_rate_limits"),
    ("once_by=..., once_for=... of a handler", "worker_deduplicate_successful_tasks"),
    (
        "`sharegroup worker -n 1 --max-memory 1GiB`, which replaces a process that has more",
        "worker_max_memory_per_child worker_max_tasks_per_child",
    ),
    (
        _LOGS,
        (
            "worker_log_color worker_log_datefmt worker_log_format worker_task_log_datefmt "
            "worker_task_log_format worker_redirect_stdouts worker_redirect_stdouts_level "
            "task_repr_maxlevels log_level"
        ),
    ),
    ("`sharegroup retries cancel`, which is kept in a topic", "worker_state_db"),
    # FastStream: options of its brokers.
    (
        _CLIENT,
        (
            "acks allow_auto_create_topics compression_type connections_max_idle_ms "
            "enable_idempotence linger_ms max_batch_size max_request_size metadata_max_age_ms "
            "partitioner protocol_version request_timeout_ms retry_backoff_ms "
            "sasl_kerberos_domain_name sasl_kerberos_service_name sasl_oauth_token_provider "
            "security underlying_driver_annotations"
        ),
    ),
    ("defaults={'kafka': {'client.rack': ...}}", "client_rack"),
    (_SETTLED, "ack_policy"),
    (PAYLOAD, "codec decoder parser serializer key_serializer value_serializer apply_types"),
    (
        "startup hooks, app.state and @app.middleware",
        "context dependencies provider id_generator",
    ),
    ("app.routes(module)", "routers"),
    ("grace='30s'", "graceful_timeout"),
    ("async with app.client(), which only sends", "consumer_only"),
    ("exactly_once=True of a consumer group's handler", "transactional_id transaction_timeout_ms"),
    ("nothing: the worker runs on the loop in which it is started", "loop"),
    (_FRAMES, "description protocol specification_url tags"),
)

OF_SETTINGS: Mapping[str, str] = MappingProxyType(
    {name: instead for instead, names in ROWS for name in names.split()}
)
"""Name of a setting elsewhere: what to use instead."""
