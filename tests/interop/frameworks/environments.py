"""The frameworks that are tried on our broker, by the environments that they are installed in.

Their requirements contradict each other: kombu requires one release of confluent-kafka, Quix
Streams an older one, our own tests a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]


@dataclass(frozen=True)
class Environment:
    """A virtual environment and the tests that run in it."""

    name: str
    versions: dict[str, str]
    """The release that was tried, by the name of the package."""
    extras: dict[str, str]
    """The extras of packages that need one for Kafka."""
    tests: tuple[str, ...]
    """Tests in this folder."""
    examples: tuple[str, ...] = ()
    """Examples for users in examples/testing."""

    def requirements(self, *, latest: bool) -> list[str]:
        """The packages to install, pinned or in their latest release."""
        return [
            name + self.extras.get(name, "") + ("" if latest else f"=={version}")
            for name, version in self.versions.items()
        ]


ENVIRONMENTS = (
    Environment(
        name="main",
        versions={
            "faststream": "0.7.8",
            "celery": "5.7.0",
            "kombu": "5.7.0",
            "faust-streaming": "0.15.3",
            "python-schema-registry-client": "2.6.1",
        },
        extras={"faststream": "[kafka,confluent]", "kombu": "[confluentkafka]"},
        tests=("test_faststream.py", "test_celery.py", "test_faust.py", "test_registry_client.py"),
        examples=("test_faststream_app.py", "test_celery_app.py"),
    ),
    Environment(
        name="quix",
        versions={"quixstreams": "3.28.1"},
        extras={},
        tests=("test_quix.py",),
    ),
)
