"""Subjects, versions and schema ids of a registry, in memory.

A version is *live*, *soft-deleted* (found on request only, its number is not used again), or gone
after a permanent deletion.  A schema has one id in all subjects, and the ids count from 1.

The methods are not thread-safe: `routes` calls them one at a time.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, replace

from sharegroup.testing.registry.errors import (
    IncompatibleSchema,
    InvalidSchema,
    OperationNotPermitted,
    ReferenceExists,
    SchemaNotFound,
    SubjectConfigNotFound,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from sharegroup.testing.registry.schema_texts import ParsedSchema, Reference, Resolved, SchemaText
from sharegroup.testing.registry.schema_types import Compatibility, incompatibilities, parse

LATEST = -1
"""Stands for the latest live version of a subject."""


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """Limits of a registry; a request beyond one is refused."""

    versions_max: int = 10_000
    """Maximum number of versions of all subjects together, soft-deleted ones included."""
    references_max: int = 100
    """Maximum number of references of one schema."""
    request_bytes_max: int = 1024 * 1024
    """Maximum size of a request's body, and so of a schema."""
    connections_max: int = 64
    """Maximum number of open connections; further ones are closed at once."""
    idle_seconds_max: float = 60.0
    """Maximum time for which a connection waits for a request, or for a part of it."""


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema with its id."""

    schema_id: int
    source: SchemaText
    """Its text in the form in which the registry returns it."""
    parsed: ParsedSchema

    @property
    def guid(self) -> str:
        """An id that depends on the schema alone, the same in every registry of this kind."""
        digest = hashlib.sha256(repr(_key(self.source, self.parsed)).encode()).digest()
        return str(uuid.UUID(bytes=digest[:16], version=5))


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject."""

    subject: str
    version: int
    schema: StoredSchema
    is_deleted: bool = False


SchemaKey = tuple[str, str, tuple[Reference, ...], str]
"""What makes schemas the same: type, identity, references and metadata."""


def _key(source: SchemaText, parsed: ParsedSchema) -> SchemaKey:
    return source.schema_type, parsed.identity, source.references, source.metadata


class Store:
    """The content of one registry."""

    __slots__ = ("_by_id", "_by_key", "_level", "_levels", "_limits", "_next_id", "_subjects")

    def __init__(self, level: Compatibility, limits: RegistryLimits) -> None:
        self._limits = limits
        self._level = level
        self._levels: dict[str, Compatibility] = {}
        self._subjects: dict[str, dict[int, Version]] = {}
        self._by_id: dict[int, StoredSchema] = {}
        self._by_key: dict[SchemaKey, StoredSchema] = {}
        self._next_id = 1

    def subjects(self, *, with_deleted: bool = False) -> list[str]:
        """Return the names of subjects with a live version, or with any."""
        return sorted(
            subject
            for subject, versions in self._subjects.items()
            if with_deleted or any(not version.is_deleted for version in versions.values())
        )

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[Version]:
        """Return the versions of a subject, the oldest first; raises SubjectNotFound."""
        found = [
            version
            for version in self._subjects.get(subject, {}).values()
            if with_deleted or not version.is_deleted
        ]
        if not found:
            raise SubjectNotFound(f"Subject '{subject}' not found.")
        return sorted(found, key=lambda version: version.version)

    def version(self, subject: str, number: int, *, with_deleted: bool = False) -> Version:
        """Return one version of a subject; the number may be `LATEST`."""
        found = self.versions(subject, with_deleted=with_deleted)
        if number == LATEST:
            return found[-1]
        for version in found:
            if version.version == number:
                return version
        raise VersionNotFound(
            f"Version {number} of the subject '{subject}' not found; it has "
            f"{', '.join(str(version.version) for version in found)}."
        )

    def schema(self, schema_id: int) -> StoredSchema:
        """Return the schema with an id; raises SchemaNotFound."""
        found = self._by_id.get(schema_id)
        if found is None:
            raise SchemaNotFound(f"Schema {schema_id} not found")
        return found

    def schema_of_guid(self, guid: str) -> StoredSchema:
        """Return the schema with a global id; raises SchemaNotFound."""
        for schema in self._by_id.values():
            if schema.guid == guid:
                return schema
        raise SchemaNotFound(f"Schema with the guid {guid!r} not found")

    def versions_of(self, schema_id: int, *, with_deleted: bool = False) -> list[Version]:
        """Return the versions that have this schema, by subject."""
        schema = self.schema(schema_id)
        return [
            version
            for subject in sorted(self._subjects)
            for version in self._subjects[subject].values()
            if version.schema is schema and (with_deleted or not version.is_deleted)
        ]

    def register(self, subject: str, source: SchemaText, *, normalize: bool) -> Version:
        """Return the version of a subject with this schema, a new one if there was none."""
        source, parsed = self._parse(source, normalize=normalize)
        # First, so registering a schema again succeeds whatever the compatibility level is now.
        known = self._find(subject, source, parsed, with_deleted=False)
        if known is not None:
            return known
        reasons = self._reasons(subject, parsed)
        if reasons:
            raise IncompatibleSchema(
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}" (compatibility {self.level_of(subject)}): {"; ".join(reasons)}'
            )
        count = sum(len(versions) for versions in self._subjects.values())
        if count >= self._limits.versions_max:
            raise OperationNotPermitted(
                f"the registry holds {count} versions, its limit versions_max; "
                "delete some permanently"
            )
        stored = self._stored(source, parsed)
        versions = self._subjects.setdefault(subject, {})
        # Soft-deleted versions count: their numbers are not used again.
        added = Version(subject, max(versions, default=0) + 1, stored)
        versions[added.version] = added
        return added

    def lookup(
        self, subject: str, source: SchemaText, *, normalize: bool, with_deleted: bool
    ) -> Version:
        """Return the version of a subject with this schema; raises SchemaNotFound."""
        self.versions(subject, with_deleted=with_deleted)
        source, parsed = self._parse(source, normalize=normalize)
        known = self._find(subject, source, parsed, with_deleted=with_deleted)
        if known is None:
            raise SchemaNotFound(f"the subject '{subject}' has no version with this schema")
        return known

    def incompatibilities(
        self, subject: str, source: SchemaText, number: int | None, *, normalize: bool
    ) -> list[str]:
        """Return why a schema is incompatible with a version, or with all that its level names."""
        _, parsed = self._parse(source, normalize=normalize)
        if number is None:
            return self._reasons(subject, parsed)
        version = self.version(subject, number)
        pair = [(version.version, version.schema.parsed)]
        return incompatibilities(self.level_of(subject), parsed, pair)

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete the versions of a subject; returns their numbers."""
        versions = self.versions(subject, with_deleted=True)
        live = [version for version in versions if not version.is_deleted]
        if permanent and live:
            raise SubjectNotSoftDeleted(
                f"Subject '{subject}' was not deleted first before being permanently deleted"
            )
        if not permanent and not live:
            raise SubjectSoftDeleted(
                f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
            )
        deleted = versions if permanent else live
        # All checks come before the first deletion, so a refused request changes nothing.
        for version in deleted:
            self._refuse_if_referenced(version)
        for version in deleted:
            self._delete(version, permanent=permanent)
        self._levels.pop(subject, None)
        return [version.version for version in deleted]

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> int:
        """Delete one version of a subject; returns its number."""
        is_latest = number == LATEST
        version = self.version(subject, number, with_deleted=permanent or not is_latest)
        name = f"Subject '{subject}' Version {version.version}"
        if permanent and not version.is_deleted:
            raise VersionNotSoftDeleted(
                f"{name} was not deleted first before being permanently deleted"
            )
        if not permanent and version.is_deleted:
            raise VersionSoftDeleted(
                f"{name} was soft deleted. Set permanent=true to delete permanently"
            )
        self._refuse_if_referenced(version)
        self._delete(version, permanent=permanent)
        return version.version

    def referenced_by(self, version: Version) -> list[int]:
        """Return the ids of schemas with live versions that reference a version."""
        wanted = (version.subject, version.version)
        return sorted(
            {
                user.schema.schema_id
                for versions in self._subjects.values()
                for user in versions.values()
                if not user.is_deleted
                and any((r.subject, r.version) == wanted for r in user.schema.source.references)
            }
        )

    def level(self) -> Compatibility:
        """Return the compatibility level of subjects without one of their own."""
        return self._level

    def set_level(self, level: Compatibility) -> None:
        """Set the compatibility level of subjects without one of their own."""
        self._level = level

    def level_of(self, subject: str) -> Compatibility:
        """Return the compatibility level that applies to a subject."""
        return self._levels.get(subject, self._level)

    def own_level_of(self, subject: str) -> Compatibility:
        """Return the compatibility level of a subject; raises SubjectConfigNotFound."""
        if subject not in self._levels:
            raise SubjectConfigNotFound(
                f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        return self._levels[subject]

    def set_level_of(self, subject: str, level: Compatibility) -> None:
        """Set the compatibility level of a subject, which may have no versions yet."""
        if subject not in self._levels and len(self._levels) >= self._limits.versions_max:
            raise OperationNotPermitted(
                f"{len(self._levels)} subjects have a compatibility level, the limit versions_max"
            )
        self._levels[subject] = level

    def delete_level_of(self, subject: str) -> Compatibility:
        """Remove the compatibility level of a subject; returns it."""
        level = self.own_level_of(subject)
        del self._levels[subject]
        return level

    def _reasons(self, subject: str, parsed: ParsedSchema) -> list[str]:
        if subject not in self.subjects():
            return []
        earlier = [(version.version, version.schema.parsed) for version in self.versions(subject)]
        return incompatibilities(self.level_of(subject), parsed, earlier)

    def _parse(self, source: SchemaText, *, normalize: bool) -> tuple[SchemaText, ParsedSchema]:
        """Parse a schema; returns it with the text and the references that are stored."""
        if len(source.references) > self._limits.references_max:
            raise InvalidSchema(
                f"{len(source.references)} references; expected at most references_max="
                f"{self._limits.references_max}"
            )
        resolved: list[Resolved] = []
        references: list[Reference] = []
        for reference in source.references:
            version = self._referenced(reference, source.schema_type)
            resolved.append(Resolved(reference.name, version.schema.parsed))
            references.append(replace(reference, version=version.version))
        parsed = parse(source.schema_type, source.text, resolved)
        if normalize:
            parsed = parsed.normalized()
            references.sort(key=lambda reference: (reference.name, reference.subject))
        stored = replace(source, text=parsed.text, references=tuple(references))
        return stored, parsed

    def _referenced(self, reference: Reference, schema_type: str) -> Version:
        try:
            version = self.version(reference.subject, reference.version)
        except (SubjectNotFound, VersionNotFound) as error:
            raise InvalidSchema(
                f"the reference {reference.name!r} to version {reference.version} of the subject "
                f"{reference.subject!r} cannot be resolved: {error}"
            ) from error
        if version.schema.source.schema_type != schema_type:
            raise InvalidSchema(
                f"the reference {reference.name!r} is a schema of the type "
                f"{version.schema.source.schema_type}; expected {schema_type}"
            )
        return version

    def _find(
        self, subject: str, source: SchemaText, parsed: ParsedSchema, *, with_deleted: bool
    ) -> Version | None:
        """Return the latest version of a subject with this schema; None if there is none."""
        stored = self._by_key.get(_key(source, parsed))
        found = [
            version
            for version in self._subjects.get(subject, {}).values()
            if version.schema is stored and (with_deleted or not version.is_deleted)
        ]
        return max(found, key=lambda version: version.version, default=None)

    def _stored(self, source: SchemaText, parsed: ParsedSchema) -> StoredSchema:
        key = _key(source, parsed)
        if key not in self._by_key:
            self._by_key[key] = StoredSchema(self._next_id, source, parsed)
            self._by_id[self._next_id] = self._by_key[key]
            self._next_id += 1
        return self._by_key[key]

    def _refuse_if_referenced(self, version: Version) -> None:
        users = self.referenced_by(version)
        if users:
            raise ReferenceExists(
                f"One or more references exist to the schema of the subject '{version.subject}', "
                f"version {version.version}: the schemas with the ids {users}"
            )

    def _delete(self, version: Version, *, permanent: bool) -> None:
        versions = self._subjects[version.subject]
        if not permanent:
            versions[version.version] = replace(version, is_deleted=True)
            return
        del versions[version.version]
        if not versions:
            del self._subjects[version.subject]
        stored = version.schema
        # Other subjects may have the same schema, with the same id.
        if not self.versions_of(stored.schema_id, with_deleted=True):
            del self._by_id[stored.schema_id]
            del self._by_key[_key(stored.source, stored.parsed)]
