"""The REST API of the registry: answers, error codes and limits, by plain HTTP and a client."""

from __future__ import annotations

import doctest
import http.client
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sharegroup.testing import SchemaRegistry, run_schema_registry
from sharegroup.testing.registry import server
from sharegroup.testing.registry.errors import (
    IncompatibleSchema,
    InvalidCompatibility,
    LibraryMissing,
)
from sharegroup.testing.registry.store import RegistryLimits
from tests.integration.testing.registry_clients import (
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from tests.support.limits import HANGING_SECONDS

ROOT = Path(__file__).resolve().parents[3]
TEXT = '{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}'
SPACED = '{"name": "A", "type": "record", "fields": [{"type": {"type": "int"}, "name": "x"}]}'
WIDER = (
    '{"type":"record","name":"A","fields":[{"name":"x","type":"int"},'
    '{"name":"y","type":"int","default":0}]}'
)
NARROWER = (
    '{"type":"record","name":"A","fields":[{"name":"x","type":"int"},{"name":"z","type":"int"}]}'
)


class Http:
    """Plain requests on one connection."""

    def __init__(self, url: str) -> None:
        self.connection = http.client.HTTPConnection(
            str(urlsplit(url).netloc), timeout=HANGING_SECONDS
        )

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, path, encoded if body is not None else None)
        response = self.connection.getresponse()
        text = response.read()
        assert response.getheader("Content-Type") == "application/vnd.schemaregistry.v1+json"
        return response.status, json.loads(text)

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, int]:
        status, answer = self.ask(method, path, body)
        assert isinstance(answer, dict), answer
        assert answer["message"]
        return status, answer["error_code"]

    def register(self, subject: str, text: str, **others: Any) -> int:
        status, answer = self.ask("POST", f"/subjects/{subject}/versions", schema(text, **others))
        assert status == 200, answer
        return int(answer["id"])


def schema(text: str, **others: Any) -> dict[str, Any]:
    return {"schema": text, **others}


@pytest.fixture
def http_client(sharegroup_schema_registry: SchemaRegistry) -> Iterator[Http]:
    client = Http(sharegroup_schema_registry.url)
    yield client
    client.connection.close()


def test_same_schema_has_the_same_id_in_all_subjects(http_client: Http) -> None:
    assert http_client.register("a", TEXT) == 1
    assert http_client.register("a", WIDER) == 2
    assert http_client.register("b", SPACED) == 1
    assert http_client.register("a", TEXT) == 1
    assert http_client.ask("GET", "/subjects") == (200, ["a", "b"])
    assert http_client.ask("GET", "/subjects?subjectPrefix=b") == (200, ["b"])
    assert http_client.ask("GET", "/subjects/a/versions") == (200, [1, 2])
    assert http_client.ask("GET", "/subjects/a/versions?offset=1&limit=5") == (200, [2])
    assert http_client.ask("GET", "/schemas/ids/1/subjects") == (200, ["a", "b"])
    assert http_client.ask("GET", "/schemas/ids/1/versions") == (
        200,
        [{"subject": "a", "version": 1}, {"subject": "b", "version": 1}],
    )


def test_schema_is_found_by_id_version_guid_and_text(http_client: Http) -> None:
    http_client.register("a", SPACED)
    expected = '{"name":"A","type":"record","fields":[{"type":"int","name":"x"}]}'
    status, by_id = http_client.ask("GET", "/schemas/ids/1")
    assert (status, by_id["schema"]) == (200, expected)
    assert "schemaType" not in by_id, "AVRO is not named, for clients that know no other type"
    status, version = http_client.ask("GET", "/subjects/a/versions/latest")
    assert status == 200
    assert (version["subject"], version["version"], version["id"]) == ("a", 1, 1)
    assert http_client.ask("GET", f"/schemas/guids/{version['guid']}")[1]["id"] == 1
    assert http_client.ask("POST", "/subjects/a", schema(TEXT))[1]["version"] == 1
    assert http_client.ask("GET", "/subjects/a/versions/1/schema") == (200, json.loads(TEXT))
    assert http_client.ask("GET", "/schemas/ids/1/schema") == (200, json.loads(TEXT))


def test_normalized_schema_is_stored_in_alphabetical_order(http_client: Http) -> None:
    path = "/subjects/a/versions?normalize=true"
    assert http_client.ask("POST", path, schema(SPACED))[1]["id"] == 1
    assert http_client.ask("GET", "/schemas/ids/1")[1]["schema"] == (
        '{"fields":[{"name":"x","type":"int"}],"name":"A","type":"record"}'
    )


def test_type_references_and_metadata_are_returned(http_client: Http) -> None:
    http_client.register("part", '{"type":"integer"}', schemaType="JSON")
    reference = {"name": "part.json", "subject": "part", "version": 1}
    metadata = {"properties": {"owner": "Ada"}}
    text = '{"items":{"$ref":"part.json"}}'
    others: dict[str, Any] = {"references": [reference], "metadata": metadata}
    assert http_client.register("whole", text, schemaType="JSON", **others) == 2
    _, found = http_client.ask("GET", "/schemas/ids/2")
    assert (found["schemaType"], found["references"]) == ("JSON", [reference])
    assert found["metadata"] == metadata
    assert http_client.ask("GET", "/subjects/part/versions/1/referencedby") == (200, [2])
    assert http_client.register("whole", text, schemaType="JSON", references=[reference]) == 3


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/subjects/none/versions", None, (404, 40401)),
        ("DELETE", "/subjects/none", None, (404, 40401)),
        ("POST", "/subjects/none", schema(TEXT), (404, 40401)),
        ("GET", "/subjects/a/versions/7", None, (404, 40402)),
        ("GET", "/schemas/ids/7", None, (404, 40403)),
        ("GET", "/schemas/guids/7", None, (404, 40403)),
        ("POST", "/subjects/a", schema(WIDER), (404, 40403)),
        ("GET", "/config/a", None, (404, 40408)),
        ("DELETE", "/config/a", None, (404, 40408)),
        ("GET", "/mode/a", None, (404, 40409)),
        ("POST", "/subjects/a/versions", schema(NARROWER), (409, 409)),
        ("POST", "/subjects/a/versions", schema('{"type":"nothing"}'), (422, 42201)),
        ("POST", "/subjects/a/versions", schema("{"), (422, 42201)),
        ("POST", "/subjects/a/versions", schema("[" * 100_000), (422, 42201)),
        ("POST", "/subjects/j/versions", schema('{"type":5}', schemaType="JSON"), (422, 42201)),
        ("POST", "/subjects/j/versions", schema("7", schemaType="JSON"), (422, 42201)),
        ("POST", "/subjects/p/versions", schema("what", schemaType="PROTOBUF"), (422, 42201)),
        ("POST", "/subjects/p/versions", schema("what is", schemaType="PROTOBUF"), (422, 42201)),
        ("POST", "/subjects/x/versions", schema("x", schemaType="XML"), (422, 42201)),
        ("POST", "/subjects/a/versions", schema(TEXT, references=[7]), (422, 422)),
        ("POST", "/subjects/a/versions", schema(""), (422, 422)),
        ("POST", "/subjects/a/versions", [], (422, 422)),
        ("POST", "/subjects/a/versions", b"{", (422, 422)),
        ("GET", "/subjects/a/versions/0", None, (422, 42202)),
        ("GET", "/subjects/a/versions/first", None, (422, 42202)),
        ("GET", "/subjects/a/versions/9999999999", None, (422, 42202)),
        ("PUT", "/config", {"compatibility": "SOME"}, (422, 42203)),
        ("PUT", "/config/a", {"compatibility": "FULL", "alias": "b"}, (422, 42205)),
        ("PUT", "/mode", {"mode": "IMPORT"}, (422, 42205)),
        ("POST", "/subjects/:.team:a/versions", schema(TEXT), (422, 42208)),
        ("GET", "/nothing/here", None, (404, 404)),
        ("GET", "/schemas/ids/one", None, (404, 404)),
        ("PUT", "/subjects/a", None, (405, 405)),
    ],
)
def test_wrong_request_is_refused_with_its_code(
    http_client: Http, method: str, path: str, body: Any, expected: tuple[int, int]
) -> None:
    http_client.register("a", TEXT)
    assert http_client.refused(method, path, body) == expected


def test_reference_that_does_not_exist_is_refused(http_client: Http) -> None:
    http_client.register("json", '{"type":"string"}', schemaType="JSON")
    for subject, version, reason in (
        ("none", 1, "cannot be resolved: Subject 'none' not found"),
        ("json", 3, "cannot be resolved: Version 3"),
        ("json", 1, "is a schema of the type JSON; expected AVRO"),
    ):
        reference = {"name": "B", "subject": subject, "version": version}
        body = schema(TEXT, references=[reference])
        status, answer = http_client.ask("POST", "/subjects/a/versions", body)
        assert (status, answer["error_code"]) == (422, 42201)
        assert reason in answer["message"]


def test_type_that_two_references_use_is_defined_once(http_client: Http) -> None:
    """Two types refer to a third, and a schema to both."""

    def reference(name: str) -> dict[str, Any]:
        return {"name": name, "subject": name, "version": 1}

    http_client.register("P", '{"type":"enum","name":"P","symbols":["a"]}')
    for name in ("L", "R"):
        fields = '[{"name":"p","type":"P"}]'
        text = f'{{"type":"record","name":"{name}","fields":{fields}}}'
        http_client.register(name, text, references=[reference("P")])
    references = [reference("L"), reference("R")]
    assert http_client.register("whole", '["L","R","P"]', references=references) == 4


def test_unknown_logical_type_is_kept(sharegroup_schema_registry: SchemaRegistry) -> None:
    text = '{"type":"int","logicalType":"price"}'
    sharegroup_schema_registry.register("a", text)
    assert sharegroup_schema_registry.schemas("a") == [text]
    sharegroup_schema_registry.register("a", '{"type":"int","logicalType":"decimal"}')


def test_deleted_version_is_shown_on_request_and_can_be_removed(http_client: Http) -> None:
    """A soft deletion, what it hides, and the permanent one, with the codes for a wrong order."""
    http_client.register("a", TEXT)
    http_client.register("a", WIDER)
    assert http_client.refused("DELETE", "/subjects/a/versions/2?permanent=true") == (404, 40407)
    assert http_client.ask("DELETE", "/subjects/a/versions/2") == (200, 2)
    assert http_client.refused("DELETE", "/subjects/a/versions/2") == (404, 40406)
    assert http_client.ask("GET", "/subjects/a/versions") == (200, [1])
    assert http_client.ask("GET", "/subjects/a/versions?deleted=true") == (200, [1, 2])
    assert http_client.ask("GET", "/subjects/a/versions?deletedOnly=true") == (200, [2])
    assert http_client.refused("GET", "/subjects/a/versions/2") == (404, 40402)
    assert http_client.ask("GET", "/subjects/a/versions/2?deleted=true")[0] == 200
    assert http_client.ask("GET", "/schemas/ids/2")[0] == 200, "records may still have this id"
    assert http_client.register("a", WIDER) == 2
    assert http_client.ask("GET", "/subjects/a/versions") == (200, [1, 3])
    assert http_client.ask("DELETE", "/subjects/a/versions/2?permanent=true") == (200, 2)
    assert http_client.ask("GET", "/subjects/a/versions?deleted=true") == (200, [1, 3])
    assert http_client.ask("GET", "/schemas/ids/2")[0] == 200, "version 3 has this schema"
    http_client.register("a", WIDER.replace('"y"', '"w"'))
    assert http_client.ask("GET", "/subjects/a/versions") == (200, [1, 3, 4])


def test_deleted_subject_comes_back_with_a_new_version(http_client: Http) -> None:
    http_client.register("a", TEXT)
    http_client.ask("PUT", "/config/a", {"compatibility": "NONE"})
    assert http_client.refused("DELETE", "/subjects/a?permanent=true") == (404, 40405)
    assert http_client.ask("DELETE", "/subjects/a") == (200, [1])
    assert http_client.refused("DELETE", "/subjects/a") == (404, 40404)
    assert http_client.refused("GET", "/config/a") == (404, 40408)
    assert http_client.ask("GET", "/subjects") == (200, [])
    assert http_client.ask("GET", "/subjects?deleted=true") == (200, ["a"])
    assert http_client.ask("GET", "/subjects?deletedOnly=true") == (200, ["a"])
    assert http_client.register("a", TEXT) == 1
    assert http_client.ask("GET", "/subjects/a/versions") == (200, [2])
    assert http_client.ask("DELETE", "/subjects/a") == (200, [2])
    assert http_client.ask("DELETE", "/subjects/a?permanent=true") == (200, [1, 2])
    assert http_client.refused("GET", "/schemas/ids/1") == (404, 40403)
    assert http_client.register("a", TEXT) == 2, "an id is not used for two schemas"


def test_referenced_version_is_not_deleted(http_client: Http) -> None:
    http_client.register("part", '{"type":"enum","name":"P","symbols":["a"]}')
    reference = {"name": "P", "subject": "part", "version": 1}
    http_client.register("whole", '{"type":"array","items":"P"}', references=[reference])
    assert http_client.refused("DELETE", "/subjects/part") == (422, 42206)
    assert http_client.refused("DELETE", "/subjects/part/versions/1") == (422, 42206)
    assert http_client.ask("DELETE", "/subjects/whole") == (200, [1])
    assert http_client.ask("DELETE", "/subjects/part") == (200, [1])


def test_level_of_a_subject_comes_before_the_global_one(http_client: Http) -> None:
    ask = http_client.ask
    assert ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert ask("PUT", "/config", {"compatibility": "NONE"}) == (200, {"compatibility": "NONE"})
    assert ask("PUT", "/config/a", {"compatibility": "full"}) == (200, {"compatibility": "FULL"})
    assert ask("GET", "/config/a") == (200, {"compatibilityLevel": "FULL"})
    assert ask("GET", "/config/b?defaultToGlobal=true") == (200, {"compatibilityLevel": "NONE"})
    for subject in ("a", "b"):
        http_client.register(subject, TEXT)
    assert http_client.refused("POST", "/subjects/a/versions", schema(NARROWER)) == (409, 409)
    assert http_client.register("b", NARROWER) == 2
    assert ask("DELETE", "/config/a") == (200, {"compatibilityLevel": "FULL"})
    assert http_client.register("a", NARROWER) == 2
    assert ask("DELETE", "/config") == (200, {"compatibilityLevel": "NONE"})
    assert ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})


def test_compatibility_is_tested_without_registering(http_client: Http) -> None:
    http_client.register("a", TEXT)
    path = "/compatibility/subjects/a/versions/latest"
    assert http_client.ask("POST", path, schema(WIDER)) == (200, {"is_compatible": True})
    status, answer = http_client.ask("POST", path + "?verbose=true", schema(NARROWER))
    assert (status, answer["is_compatible"]) == (200, False)
    assert answer["messages"] == [
        "cannot read version 1: READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1: z"
    ]
    everything = "/compatibility/subjects/a/versions"
    assert http_client.ask("POST", everything, schema(NARROWER))[1] == {"is_compatible": False}
    nothing = "/compatibility/subjects/new/versions"
    assert http_client.ask("POST", nothing, schema(NARROWER))[1] == {"is_compatible": True}
    assert http_client.ask("GET", "/subjects/a/versions") == (200, [1])


@pytest.mark.parametrize(
    ("level", "second", "third", "is_compatible"),
    [
        ("BACKWARD", '["null","int"]', '["null","string"]', False),
        ("BACKWARD", '"long"', '"double"', True),
        ("FORWARD", '"int"', '"long"', False),
        ("FORWARD", '"int"', '"int"', True),
        ("FULL", '"bytes"', '"string"', True),
        ("FULL", '"int"', '"long"', False),
        ("NONE", '"int"', '"string"', True),
    ],
)
def test_level_decides_who_has_to_read_whom(
    level: str, second: str, third: str, *, is_compatible: bool
) -> None:
    with run_schema_registry(compatibility=level) as registry:
        registry.register("a", second)
        if is_compatible:
            registry.register("a", third)
        else:
            with pytest.raises(IncompatibleSchema, match=f"compatibility {level}"):
                registry.register("a", third)


def test_transitive_level_compares_with_all_versions() -> None:
    """Each schema reads the one before, by a default; the last cannot read the first."""

    def record(*fields: str) -> str:
        return f'{{"type":"record","name":"A","fields":[{",".join(fields)}]}}'

    first = record('{"name":"x","type":"int"}')
    second = record('{"name":"x","type":"int"}', '{"name":"y","type":"int","default":1}')
    third = record('{"name":"x","type":"int"}', '{"name":"y","type":"int"}')
    with run_schema_registry() as registry:
        for text in (first, second, third):
            registry.register("plain", text)
        registry.set_compatibility("BACKWARD_TRANSITIVE", subject="strict")
        registry.register("strict", first)
        registry.register("strict", second)
        with pytest.raises(IncompatibleSchema, match="cannot read version 1"):
            registry.register("strict", third)


def test_other_endpoints_answer(http_client: Http) -> None:
    assert http_client.ask("GET", "/") == (200, {})
    assert http_client.ask("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    assert http_client.ask("GET", "/mode") == (200, {"mode": "READWRITE"})
    assert http_client.ask("GET", "/mode/a?defaultToGlobal=true") == (200, {"mode": "READWRITE"})
    assert http_client.ask("GET", "/contexts") == (200, ["."])


def test_name_of_a_subject_may_have_any_character(
    sharegroup_schema_registry: SchemaRegistry,
) -> None:
    name = "a/b c?d%2Fe-ü"
    with SchemaRegistryClient({"url": sharegroup_schema_registry.url}) as client:
        client.register_schema(name, Schema(TEXT, "AVRO"))
        assert client.get_subjects() == [name]
        assert client.get_latest_version(name).version == 1


def test_error_of_the_registry_reaches_the_client(
    sharegroup_schema_registry: SchemaRegistry,
) -> None:
    sharegroup_schema_registry.register("a", TEXT)
    with (
        SchemaRegistryClient({"url": sharegroup_schema_registry.url}) as client,
        pytest.raises(SchemaRegistryError) as refused,
    ):
        client.register_schema("a", Schema(NARROWER, "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)


def test_registry_beyond_a_limit_refuses_and_goes_on() -> None:
    limits = RegistryLimits(versions_max=1, references_max=1, request_bytes_max=500)
    with run_schema_registry(limits=limits) as registry:
        client = Http(registry.url)
        client.register("a", TEXT)
        assert client.refused("POST", "/subjects/b/versions", schema('"int"')) == (422, 42205)
        references = [{"name": "A", "subject": "a", "version": 1}] * 2
        body = schema('"int"', references=references)
        assert client.refused("POST", "/subjects/b/versions", body) == (422, 42201)
        large = schema(json.dumps("x" * 500))
        assert client.refused("POST", "/subjects/b/versions", large) == (413, 413)
        client.connection.close()
        assert client.ask("GET", "/subjects") == (200, ["a"])
        client.connection.close()


def test_connection_beyond_the_limit_is_closed_at_once() -> None:
    with run_schema_registry(limits=RegistryLimits(connections_max=1)) as registry:
        first, second = Http(registry.url), Http(registry.url)
        assert first.ask("GET", "/subjects") == (200, [])
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            second.ask("GET", "/subjects")
        assert first.ask("GET", "/subjects") == (200, [])
        first.connection.close()
        second.connection.close()


def test_silent_connection_is_closed_and_does_not_hold_the_end_up() -> None:
    """One client says nothing until the limit; another does so while the registry ends."""
    with run_schema_registry(limits=RegistryLimits(idle_seconds_max=0.1)) as registry:
        address = (str(urlsplit(registry.url).hostname), int(urlsplit(registry.url).port or 0))
        with socket.create_connection(address, timeout=HANGING_SECONDS) as silent:
            assert silent.recv(1) == b""
    with run_schema_registry() as registry:
        address = (str(urlsplit(registry.url).hostname), int(urlsplit(registry.url).port or 0))
        lasting = socket.create_connection(address, timeout=HANGING_SECONDS)
        lasting.sendall(b"POST /subjects/a HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")
    with lasting:
        try:
            rest = lasting.recv(100)
        except ConnectionResetError:
            rest = b""
        assert b" 200 " not in rest
    assert not [t for t in threading.enumerate() if t.name == "sharegroup-registry"]


def test_body_without_a_length_is_refused(sharegroup_schema_registry: SchemaRegistry) -> None:
    url = urlsplit(sharegroup_schema_registry.url)
    with socket.create_connection(
        (str(url.hostname), int(url.port or 0)), timeout=HANGING_SECONDS
    ) as peer:
        peer.sendall(b"POST /subjects/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert b" 422 " in peer.recv(100)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"Host": "evil.example"}, 403),
        ("GET", {"Host": "evil.example"}, 403),
        ("POST", {"Origin": "https://evil.example"}, 403),
        ("DELETE", {"Origin": "null"}, 403),
        ("PUT", {"Content-Length": "9" * 5_000}, 422),
        ("PUT", {"Content-Length": "\u00b2"}, 422),
    ],
)
def test_requests_that_a_web_page_or_a_smuggler_sends_are_refused(
    http_client: Http, method: str, headers: dict[str, str], status: int
) -> None:
    connection = http_client.connection
    path = "/config" if method == "PUT" else "/subjects/s/versions"
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in encoded.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == status, response.read()


@pytest.mark.parametrize("schema_type", ["AVRO", "JSON", "PROTOBUF"])
def test_text_that_is_no_unicode_is_refused(http_client: Http, schema_type: str) -> None:
    body = b'{"schemaType": "%s", "schema": "\\ud800"}' % schema_type.encode()
    assert http_client.refused("POST", "/subjects/a/versions", body) == (422, 422)


@pytest.mark.parametrize("target", ["http://[", "http://[::1/subjects", "http://[::g]/subjects"])
def test_target_that_is_no_url_is_refused(
    sharegroup_schema_registry: SchemaRegistry, target: str
) -> None:
    url = urlsplit(sharegroup_schema_registry.url)
    with socket.create_connection(
        (str(url.hostname), int(url.port or 0)), timeout=HANGING_SECONDS
    ) as peer:
        peer.sendall(f"GET {target} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
        head, _, body = peer.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    assert "is not a URL" in json.loads(body)["message"]


@pytest.mark.parametrize(
    "definition", [{"$ref": "#/x", "x": 5}, {"$schema": 5}, {"enum": {}}, {"properties": []}]
)
def test_json_schema_with_a_value_of_another_type_is_refused_as_invalid(
    http_client: Http, definition: dict[str, Any]
) -> None:
    body = schema(json.dumps(definition), schemaType="JSON")
    for _ in range(2):  # The second one would be compared with the first.
        assert http_client.refused("POST", "/subjects/a/versions", body) == (422, 42201)


def test_two_lengths_of_a_body_are_refused(http_client: Http) -> None:
    connection = http_client.connection
    connection.putrequest("PUT", "/config")
    for length in ("2", "40"):
        connection.putheader("Content-Length", length)
    connection.endheaders(b"{}")
    assert connection.getresponse().status == 422


def test_port_in_use_is_named() -> None:
    with run_schema_registry() as registry:
        port = int(urlsplit(registry.url).port or 0)
        with (
            pytest.raises(OSError, match=f"can't listen on 127.0.0.1:{port}"),
            run_schema_registry(port=port),
        ):
            pass


def test_unknown_level_is_refused_at_the_start() -> None:
    with (
        pytest.raises(InvalidCompatibility, match="'SOME': expected one of NONE, BACKWARD"),
        run_schema_registry(compatibility="SOME"),
    ):
        pass


def test_requests_of_many_threads_give_each_schema_one_id(
    sharegroup_schema_registry: SchemaRegistry,
) -> None:
    found: list[int] = []

    def register(subject: str) -> None:
        client = Http(sharegroup_schema_registry.url)
        found.extend(client.register(f"{subject}-{n}", f'{{"type":"fixed","name":"F","size":{n}}}')
                     for n in range(1, 11))  # fmt: skip
        client.connection.close()

    threads = [threading.Thread(target=register, args=(f"s{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGING_SECONDS)
    assert len(found) == 80
    assert sorted(set(found)) == list(range(1, 11))


@pytest.mark.parametrize(
    ("library", "schema_type", "text", "command"),
    [
        ("avro", "AVRO", '"int"', r"pip install '\.\[registry\]'"),
        ("jsonschema", "JSON", "{}", r"pip install '\.\[registry\]'"),
        ("google.protobuf", "PROTOBUF", "message M {}", r"pip install '\.\[registry\]'"),
        ("grpc_tools", "PROTOBUF", "message M {}", "pip install grpcio-tools"),
    ],
)
def test_missing_library_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, library: str, schema_type: str, text: str, command: str
) -> None:
    with run_schema_registry() as registry:
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(
            LibraryMissing, match=f"need a library that is not installed.*{command}"
        ):
            registry.register("a", text, schema_type=schema_type)


def test_examples_of_the_documentation_run() -> None:
    page = (ROOT / "docs" / "testing-schema-registry.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "testing-schema-registry.md", "exec"), {})
    failed, tried = doctest.testmod(server)
    assert (failed, tried > 0) == (0, True)
