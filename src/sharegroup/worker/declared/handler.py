"""What a handler is: found out once, from its signature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class HandlerKind(Enum):
    """How it is called."""

    COROUTINE = auto()
    FUNCTION = auto()


@dataclass(frozen=True, slots=True)
class HandlerShape:
    """See the module's text."""

    name: str
    call: Callable[..., Any]
    kind: HandlerKind
    payload_type: Any
    """The annotation of its first parameter; of a batch handler that of the list's elements."""
    takes_record: bool
    """Whether it has a second parameter, which gets the `Record`, or a list of them."""
    is_batch: bool
