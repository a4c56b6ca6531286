"""A topic on a broker that runs as a process, as the protocol's tests name it."""

from __future__ import annotations

from uuid import UUID

from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.metadata.v13 import request as metadata

from tests.spec.connection import Connection
from tests.spec.messages import Topic, milliseconds
from tests.support.processes import ServeProcess


def make_topic(broker: ServeProcess, name: str, partitions: int) -> Topic:
    """Created, and asked for its id."""
    new = create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    create = create_topics.CreateTopicsRequest(topics=(new,), timeout=milliseconds(10_000))
    wanted = metadata.MetadataRequestTopic(topic_id=None, name=name)
    request = metadata.MetadataRequest(
        topics=(wanted,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    with Connection(broker.port) as connection:
        assert connection.ask(create).topics[0].error_code == 0
        found: UUID = connection.ask(request).topics[0].topic_id
    return Topic(name, found, partitions)
