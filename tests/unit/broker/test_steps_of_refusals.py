"""Answers to many entries that are refused pause as often as those to entries that are served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kio.schema.offset_fetch.v9.request import OffsetFetchRequest

from sharegroup.broker.access.group_descriptions import described_groups
from sharegroup.broker.access.rights import Rights
from sharegroup.broker.handlers.groups.offset_fetch import TopicOffsets, _topic
from sharegroup.steps import STEP_ELEMENTS

ENTRIES = 10 * STEP_ELEMENTS


class NoRights:
    pass
