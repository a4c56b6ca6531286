"""The types of functions that decode and encode payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Decode = Callable[[bytes], Any]
"""Decodes the value of a record."""

Encode = Callable[[Any, str], bytes]
"""Encodes a payload; the second argument is the topic that the record is for."""
