"""Documents agree with the code: generated ones are current, links lead somewhere."""

from __future__ import annotations

import inspect
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

import sharegroup.worker
from sharegroup.broker.server.handler_table import HANDLERS
from sharegroup.wire.codec.apis import APIS
from tests.docs.snippets.page_blocks import blocks
from tests.docs.write_comparison import RESULTS, SUBJECTS
from tests.docs.write_docs import DOCS, documents
from tests.docs.write_reference import SECTIONS

ROOT = DOCS.parent
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "tests" / "README.md"])
PUBLIC = ("client", "client.sync", "spark", "testing", "worker", "worker.testing")
"""The packages of `sharegroup` whose names applications import."""
KAFKAS = "named and defined by Kafka's admin API or producer"
RESET = "a target of a reset of offsets, as in Kafka's tools, or a part of its plan"
ERROR = "an error; its name says what is wrong"
PLAIN = {
    "ConsumerHealth": "health, of a consumer",
    **dict.fromkeys(
        (
            *("AlterConfig", "ClusterDescription", "CommittedOffset", "ConfigEntry"),
            *("ConfigOperation", "ConfigResource", "ConfigSource", "ConsumerGroupDescription"),
            *("ConsumerMemberDescription", "FeatureRange", "FeatureUpdate", "Features"),
            *("GroupListing", "ListedOffset", "NewTopic", "NodeDescription", "OffsetSpec"),
            *("PartitionDescription", "RecordMetadata", "ResourceType", "ShareGroupDescription"),
            *("ShareMemberDescription", "SharePartitionOffset", "TopicDescription"),
            "UpgradeType",
            *("ScramCredentialInfo", "ScramMechanism"),
            *("UserScramCredentialDeletion", "UserScramCredentialUpsertion"),
            *("AclBinding", "AclBindingFilter", "AclPatternType", "AclPermission"),
            "AclResourceType",
            *("AclOperation", "LogDirDescription", "MetadataQuorum", "OpenTransaction"),
            *("ProducerIdentity", "ProducerState", "QuorumReplica", "ReplicaLog"),
            *("TransactionDescription", "TransactionListing", "TransactionState"),
        ),
        KAFKAS,
    ),
    **dict.fromkeys(
        (
            *("ByDuration", "FromPlan", "OffsetChange", "ShiftBy", "ToCurrent", "ToDatetime"),
            *("ToEarliest", "ToLatest", "ToOffset"),
        ),
        RESET,
    ),
    **dict.fromkeys(
        (
            *("DeserializationError", "HandlerCrashed", "HandlingTimeout", "IllegalStateError"),
            *("NeverAtRest", "NotConnected", "SomeFailed", "WakeupError", "WorkerFailed"),
        ),
        ERROR,
    ),
    "AcknowledgementResult": "the outcome of an acknowledgement",
    "AppTest": "the test of an App",
    "CloseReport": "what close returns",
    "Compression": "the names of codecs",
    "DnsLookup": "the names of ways to look up names",
    "MetadataRecovery": "the names of two strategies",
    "Context": "another name of Record",
    "FaultyFiles": "the files of a broker, with faults",
    "HandlerRun": "one attempt, as a test sees it",
    "SaslMechanism": "the names of SASL's mechanisms",
    "SchemaFormat": "the names of formats: Avro and JSON",
    "SecurityProtocol": "the names of Kafka's security protocols",
    "PowerLossDisk": "a disk that loses power",
    "StoredRecord": "a record that a test reads back",
    "SentRecord": "a record that a test sent",
}
"""Public classes that need no entry in docs/glossary.md, and why."""
GONE = {"0024-light-imports.md": {"wire/light_imports.py"}}
"""Files that a decision says are gone."""
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("name", list(documents()))
def test_generated_document_is_current(name: str) -> None:
    assert (DOCS / name).read_text() == documents()[name](), "run: python -m tests.docs.write_docs"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_lists_read_alike_in_the_repository_and_on_the_site(page: Path) -> None:
    """The site's Markdown needs four spaces below an item, and an empty line before a list."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^ {1,3}(?:[-*]|\d+\.) .*", text, re.MULTILINE) == []
    before = re.findall(r"^(?![-*\d ]|$)(.+)\n(?:[-*]|\d+\.) .*", text, re.MULTILINE)
    assert [line for line in before if not line.startswith("#")] == []


def test_every_workload_of_the_benchmark_is_in_the_comparison() -> None:
    shown = sorted(name for names in SUBJECTS.values() for name in names)
    assert shown == sorted(json.loads(RESULTS.read_text()))


def test_every_name_of_the_worker_is_in_its_reference() -> None:
    assert {name for names in SECTIONS.values() for name in names if "." not in name} == set(
        sharegroup.worker.__all__
    )


def glossary_classes() -> set[str]:
    """The classes that the third column of docs/glossary.md names."""
    rows = [line.split("|") for line in (DOCS / "glossary.md").read_text().splitlines()]
    columns = [row[3] for row in rows if len(row) == 5]
    return {name for column in columns for name in re.findall(r"`([A-Z][a-z]\w*)`", column)}


def public_classes() -> set[str]:
    modules = [import_module(f"sharegroup.{name}") for name in PUBLIC]
    return {
        name
        for module in modules
        for name in module.__all__
        if inspect.isclass(getattr(module, name))
    }


def test_every_public_class_is_in_the_glossary_or_a_plain_word() -> None:
    known, public = glossary_classes(), public_classes()
    assert public - known - PLAIN.keys() == set(), "add a row to docs/glossary.md, or a reason here"
    assert PLAIN.keys() - public == set(), "these are no public classes any more"
    assert PLAIN.keys() & known == set(), "these are in the glossary: they need no reason"


def test_every_class_in_the_glossary_exists() -> None:
    sources = (ROOT / "src" / "sharegroup").rglob("*.py")
    defined = {
        name
        for path in sources
        for name in re.findall(
            r"^(?:class )?([A-Z][a-z]\w*)(?=[(:]| =)", path.read_text(), re.MULTILINE
        )
    }
    assert glossary_classes() - defined == set()


def test_every_api_has_a_handler_and_the_other_way_round() -> None:
    assert set(HANDLERS) == set(APIS)
    handlers = ROOT / "src" / "sharegroup" / "broker" / "handlers"
    modules = {
        f"{path.parent.name}.{path.stem}" for path in handlers.glob("*/*.py") if path.stem[0] != "_"
    }
    assert modules >= set(HANDLERS.values())


def test_readme_is_short_enough_to_be_read() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= 150


def test_contributing_names_every_package() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    source = ROOT / "src" / "sharegroup"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    named = set(re.findall(r"`([a-z_]+)[/`]", page))
    assert packages - named == set()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A page may leave out the first folders of a path: `delivery.py`, `core/share_state`."""
    folders = ("src", "tests", "examples", ".ci")
    paths = [f"/{path.relative_to(ROOT)}" for name in folders for path in (ROOT / name).rglob("*")]
    named = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)`", page.read_text()))
    named -= {block.options.get("file") for block in blocks(page)}  # A reader makes these.
    gone = {name for name in named if not any(path.endswith(f"/{name}") for path in paths)}
    assert gone - GONE.get(page.name, set()) == set()
