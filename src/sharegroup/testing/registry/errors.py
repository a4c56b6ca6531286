"""Errors of the schema registry, with the codes that Confluent's REST API documents."""

from __future__ import annotations

from typing import ClassVar


class RegistryError(Exception):
    """A request that the registry refuses; the response has its HTTP status and error code."""

    status: ClassVar[int] = 500
    code: ClassVar[int] = 50001


class ForeignRequest(RegistryError):
    """A web page may have sent the request: its Host or its Origin is not the registry's."""

    status = 403
    code = 40301


class PathNotFound(RegistryError):
    """The path is not one of the registry's."""

    status = 404
    code = 404


class MethodNotAllowed(RegistryError):
    """The path exists, but not with this method."""

    status = 405
    code = 405


class SubjectNotFound(RegistryError):
    """The subject has no versions."""

    status = 404
    code = 40401


class VersionNotFound(RegistryError):
    """The subject has no such version."""

    status = 404
    code = 40402


class SchemaNotFound(RegistryError):
    """No schema has this id, or the subject does not have this schema."""

    status = 404
    code = 40403


class SubjectSoftDeleted(RegistryError):
    """The subject was deleted before, and the request does not ask for a permanent deletion."""

    status = 404
    code = 40404


class SubjectNotSoftDeleted(RegistryError):
    """A subject must be deleted before it is deleted permanently."""

    status = 404
    code = 40405


class VersionSoftDeleted(RegistryError):
    """The version was deleted before, and the request does not ask for a permanent deletion."""

    status = 404
    code = 40406


class VersionNotSoftDeleted(RegistryError):
    """A version must be deleted before it is deleted permanently."""

    status = 404
    code = 40407


class SubjectConfigNotFound(RegistryError):
    """The subject has no compatibility level of its own."""

    status = 404
    code = 40408


class SubjectModeNotFound(RegistryError):
    """The subject has no mode of its own."""

    status = 404
    code = 40409


class IncompatibleSchema(RegistryError):
    """The schema is not compatible with earlier versions of the subject."""

    status = 409
    code = 409


class RequestTooLarge(RegistryError):
    """The body of the request exceeds the limit of the registry."""

    status = 413
    code = 413


class InvalidRequest(RegistryError):
    """The body of the request is not as the endpoint expects it."""

    status = 422
    code = 422


class InvalidSchema(RegistryError):
    """The schema cannot be parsed, or a reference of it cannot be resolved."""

    status = 422
    code = 42201


class InvalidVersion(RegistryError):
    """A version is neither a positive number nor "latest"."""

    status = 422
    code = 42202


class InvalidCompatibility(RegistryError):
    """The compatibility level does not exist."""

    status = 422
    code = 42203


class OperationNotPermitted(RegistryError):
    """The registry does not do this, or not beyond its limit."""

    status = 422
    code = 42205


class ReferenceExists(RegistryError):
    """The version is referenced by other schemas."""

    status = 422
    code = 42206


class InvalidSubject(RegistryError):
    """The name of the subject is not allowed."""

    status = 422
    code = 42208


class LibraryMissing(RegistryError):
    """A library for this type of schema is not installed."""

    status = 501
    code = 50101


def library_missing(schema_type: str, error: ImportError, *, package: str = "") -> LibraryMissing:
    """Return the error for a missing library, with the command that installs it."""
    wanted = package or "'sharegroup[registry]'"
    return LibraryMissing(
        f"{schema_type} schemas need a library that is not installed ({error}); "
        f"pip install {wanted}"
    )
