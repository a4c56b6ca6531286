"""The catalog's topics in the form that core's decisions about groups take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.core.groups.share.share_group import TopicMetadata
from sharegroup.ids import TopicName


class CatalogTopics(Mapping[TopicName, TopicMetadata]):
    """A view of all topics by name; nothing is copied."""

    __slots__ = ("_catalog",)

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getitem__(self, name: TopicName) -> TopicMetadata:
        topic = self._catalog.find(name)
        if topic is None:
            raise KeyError(name)
        return TopicMetadata(topic.name, topic.topic_id, topic.partition_count)

    def __iter__(self) -> Iterator[TopicName]:
        return iter(self._catalog.names)

    def __len__(self) -> int:
        return len(self._catalog.names)
