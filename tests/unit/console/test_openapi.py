"""The description of the JSON API agrees with what the pages read from their addresses."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict

from sharegroup.console.pages import jobs, letters, records
from sharegroup.console.web.openapi import openapi
from sharegroup.console.web.routes import CHANGES, DOWNLOADS, ROUTES

DOCUMENT = openapi("/queue/api/v1", ROUTES, DOWNLOADS, CHANGES)
READS = re.compile(r"""visit\.(?:required\(|number\(|query\.get\()"(\w+)\"""")
TABLES = re.compile(r"""[ =]table\(\s*"(\w+)\"""")
GIVEN = {"topic", *letters.CONDITIONS, *jobs.FIELDS, *records.SEARCH}
"""Names that pages read by way of a constant."""


def described(path: str) -> dict[str, bool]:
    """The parameters of a page, and whether they are required."""
    parameters = DOCUMENT["paths"][path]["get"]["parameters"]
    return {parameter["name"]: parameter.get("required", False) for parameter in parameters}


def test_all_that_a_module_of_pages_reads_is_described() -> None:
    read, said = defaultdict(set), defaultdict(set)
    for route in ROUTES:
        module = inspect.getmodule(route.page)
        assert module is not None
        source = inspect.getsource(module)
        read[module.__name__] |= set(READS.findall(source))
        read[module.__name__] |= {f"{name}-sort" for name in TABLES.findall(source)}
        said[module.__name__] |= described(route.path).keys()
    for name, names in read.items():
        assert names - GIVEN - said[name] == set(), name
        assert {part for part in said[name] if part.endswith("-sort")} >= {
            part for part in names if part.endswith("-sort")
        }


def test_pages_are_described_with_their_parameters() -> None:
    assert described("/record") == {"topic": True, "partition": False, "offset": False}
    assert described("/topics") == {
        "topics-sort": False,
        "topics-find": False,
        "topics-page": False,
    }
    assert DOCUMENT["paths"]["/topic"]["get"]["summary"].startswith("Return one topic")


def test_files_are_described() -> None:
    assert described("/letters/export")["topic"]
    assert set(described("/records/export")) == {*records.SEARCH, "format"}
    answer = DOCUMENT["paths"]["/records/export"]["get"]["responses"]["200"]
    assert set(answer["content"]) == {"text/csv", "application/x-ndjson"}


def test_changes_need_a_token_and_name_their_fields() -> None:
    change = DOCUMENT["paths"]["/jobs/abort"]["post"]
    assert change["security"] == [{"token": []}]
    schema = change["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"] == {"id": {"type": "string"}}


def test_names_of_operations_are_unique() -> None:
    names = [
        operation["operationId"]
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
    ]
    assert len(names) == len(set(names)) == len((*ROUTES, *DOWNLOADS, *CHANGES))


def test_server_is_the_path_of_the_api() -> None:
    assert DOCUMENT["servers"] == [{"url": "/queue/api/v1"}]
