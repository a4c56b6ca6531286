"""Errors of the schema registry, with the codes that Confluent's REST API documents."""

from __future__ import annotations

from typing import ClassVar

from sharegroup.installation import pip_install


class RegistryError(Exception):
    """A request that the registry refuses; the response has its HTTP status and error code."""

    status: ClassVar[int] = 500
    code: ClassVar[int] = 50001

    def __init_subclass__(cls, *, status: int, code: int) -> None:
        cls.status, cls.code = status, code


class ForeignRequest(RegistryError, status=403, code=40301):
    """A web page may have sent the request: its Host or its Origin is not the registry's."""


class PathNotFound(RegistryError, status=404, code=404):
    """The path is not one of the registry's."""


class MethodNotAllowed(RegistryError, status=405, code=405):
    """The path exists, but not with this method."""


class SubjectNotFound(RegistryError, status=404, code=40401):
    """The subject has no versions."""


class VersionNotFound(RegistryError, status=404, code=40402):
    """The subject has no such version."""


class SchemaNotFound(RegistryError, status=404, code=40403):
    """No schema has this id, or the subject does not have this schema."""


class SubjectSoftDeleted(RegistryError, status=404, code=40404):
    """The subject was deleted before, and the request does not ask for a permanent deletion."""


class SubjectNotSoftDeleted(RegistryError, status=404, code=40405):
    """A subject must be deleted before it is deleted permanently."""


class VersionSoftDeleted(RegistryError, status=404, code=40406):
    """The version was deleted before, and the request does not ask for a permanent deletion."""


class VersionNotSoftDeleted(RegistryError, status=404, code=40407):
    """A version must be deleted before it is deleted permanently."""


class SubjectConfigNotFound(RegistryError, status=404, code=40408):
    """The subject has no compatibility level of its own."""


class SubjectModeNotFound(RegistryError, status=404, code=40409):
    """The subject has no mode of its own."""


class IncompatibleSchema(RegistryError, status=409, code=409):
    """The schema is not compatible with earlier versions of the subject."""


class RequestTooLarge(RegistryError, status=413, code=413):
    """The body of the request exceeds the limit of the registry."""


class InvalidRequest(RegistryError, status=422, code=422):
    """The body of the request is not as the endpoint expects it."""


class InvalidSchema(RegistryError, status=422, code=42201):
    """The schema cannot be parsed, or a reference of it cannot be resolved."""


class InvalidVersion(RegistryError, status=422, code=42202):
    """A version is neither a positive number nor "latest"."""


class InvalidCompatibility(RegistryError, status=422, code=42203):
    """The compatibility level does not exist."""


class OperationNotPermitted(RegistryError, status=422, code=42205):
    """The registry does not do this, or not beyond its limit."""


class ReferenceExists(RegistryError, status=422, code=42206):
    """The version is referenced by other schemas."""


class InvalidSubject(RegistryError, status=422, code=42208):
    """The name of the subject is not allowed."""


class LibraryMissing(RegistryError, status=501, code=50101):
    """A library for this type of schema is not installed."""


def library_missing(schema_type: str, error: ImportError, *, package: str = "") -> LibraryMissing:
    """Return the error for a missing library, with the command that installs it."""
    wanted = f"pip install {package}" if package else pip_install("registry")
    return LibraryMissing(
        f"{schema_type} schemas need a library that is not installed ({error}); {wanted}"
    )
