"""The fixture of the schema registry for pytest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sharegroup.testing.registry.server import SchemaRegistry


@pytest.fixture
def sharegroup_schema_registry() -> Iterator[SchemaRegistry]:
    """Run an empty schema registry for one test."""
    # Imported here because pytest loads this module for tests that use no registry, too.
    from sharegroup.testing.registry.server import run_schema_registry

    with run_schema_registry() as registry:
        yield registry
