"""Compares JSON Schemas: is every document of the old schema valid for the new one?

`narrowed` answers with the places where the new schema is narrower.  In general the question has no
practical answer, so this is a comparison of keywords:

- A keyword that only the old schema has makes the new schema wider.
- Limits, types, enumerations, required names, properties, items and combinations are compared.
  Whether a property that one schema does not name is allowed depends on that schema's
  ``additionalProperties`` and ``patternProperties``.
- A new required property with a default is compatible, as for Confluent's registry, although
  validators do not fill in defaults.
- A keyword whose value has another type than it needs does not count.  The registry refuses such a
  schema, unless its draft does not have the keyword; then validators ignore it, too.
- Any other keyword must be the same in both schemas; otherwise the answer names it.

So the answer "compatible" is right but for three simplifications: defaults, ``oneOf`` (compared
like ``anyOf``), and patterns that overlap.  "Incompatible" may be too strict.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sharegroup.testing.registry.json_keywords import (
    ANNOTATIONS,
    COUNTS,
    LOWER_LIMITS,
    SOUND,
    TOGETHER,
    TYPE_OF_KEYWORD,
    TYPES,
    UPPER_LIMITS,
    is_schema,
)

COMPARISONS_MAX = 20_000
"""Maximum number of pairs of schemas that one comparison looks at, with those of its trials."""

OLD_DRAFTS = ("draft-03", "draft-04", "draft-05", "draft-06", "draft-07")
"""In these, keywords beside ``$ref`` are ignored."""

_INDEX = re.compile("[0-9]{1,9}")
"""An index of a JSON pointer; Python refuses to convert thousands of digits."""

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Documents:
    """A schema and the other documents that it refers to, by the names it uses for them."""

    root: Any
    others: Mapping[str, Any] = field(default_factory=dict)

    def target(self, reference: str) -> Any:
        """Return what a reference points to; None if it is not known."""
        name, _, pointer = reference.partition("#")
        found = self.others.get(name) if name else self.root
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and _INDEX.fullmatch(key) and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict):
                found = found.get(key)
            else:
                return None
        return found

    def targets(self) -> dict[str, Any]:
        """Return what the references in the root point to, as far as that is known."""
        found: dict[str, Any] = {}
        to_search = [self.root]
        while to_search:
            value = to_search.pop()
            if isinstance(value, list):
                to_search += value
            elif isinstance(value, dict):
                to_search += value.values()
                reference = value.get("$ref")
                if isinstance(reference, str):
                    found[f"$ref {reference}"] = self.target(reference)
        return {reference: target for reference, target in found.items() if target is not None}


def qualified(document: Any, name: str) -> Any:
    """Return a document whose references within itself have the document's name."""
    if isinstance(document, list):
        return [qualified(item, name) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        key: name + value
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else qualified(value, name)
        for key, value in document.items()
    }


class _TooComplicated(Exception):
    """The comparison would look at too many pairs of schemas."""


class _UnknownPattern(Exception):
    """A regular expression of JavaScript that Python does not have."""


def narrowed(old: Documents, new: Documents) -> list[str]:
    """Return the places where the new schema refuses documents that the old one allows."""
    comparison = _JsonComparison(_References(old), _References(new))
    try:
        return list(dict.fromkeys(comparison.compare(old.root, new.root, "#")))
    except (_TooComplicated, RecursionError):
        return [f"the schemas are too complicated to compare: over {COMPARISONS_MAX} pairs"]
    except _UnknownPattern as error:
        return [str(error)]


class _References:
    """Resolves ``$ref`` within the documents of one schema."""

    __slots__ = ("_documents", "_ignores_siblings")

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        root = documents.root if isinstance(documents.root, dict) else {}
        draft = str(root.get("$schema", "draft-07"))
        self._ignores_siblings = any(name in draft for name in OLD_DRAFTS)

    def plain(self, schema: Any) -> dict[str, Any] | None:
        """Return a schema as keywords without ``$ref`` and annotations; None for ``false``."""
        if isinstance(schema, bool):
            return {} if schema else None
        keywords = dict(schema)
        for _ in range(100):  # Chains of references; a longer one is taken for a circle.
            target = keywords.pop("$ref", None)
            if target is None:
                break
            found = self._documents.target(target) if isinstance(target, str) else None
            if not is_schema(found):
                keywords["$ref"] = target  # Compared as a text.
                break
            siblings = {} if self._ignores_siblings else keywords
            if isinstance(found, bool):
                if not found:
                    return None
                found = {}
            # In `allOf`, because since draft 2019-09 both the target and its siblings apply.
            keywords = dict(found)
            if siblings:
                all_of = found.get("allOf")
                keywords["allOf"] = [*(all_of if isinstance(all_of, list) else ()), siblings]
        return {
            key: value
            for key, value in keywords.items()
            if key not in ANNOTATIONS and (key not in SOUND or SOUND[key](value))
        }


class _JsonComparison:
    """One comparison of two schemas: the pairs that it has seen end recursive schemas."""

    __slots__ = ("_count", "_new", "_old", "_seen")

    def __init__(
        self, old: _References, new: _References, count: Iterator[int] | None = None
    ) -> None:
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str]] = set()
        self._count = itertools.count() if count is None else count
        """Counts the pairs; trials share it, because each may need trials of its own."""

    def compare(self, old: Any, new: Any, place: str) -> Iterator[str]:
        """Yield the places where ``new`` is narrower than ``old``."""
        # As text, because schemas are dicts; a pair that is being compared counts, which ends
        # recursion.
        pair = (_text(old), _text(new))
        if pair in self._seen:
            return
        if next(self._count) >= COMPARISONS_MAX:
            raise _TooComplicated
        self._seen.add(pair)
        written, read = self._old.plain(old), self._new.plain(new)
        # Nothing was valid before, or all is now: no document is lost.
        if written is None or read == {}:
            return
        if read is None:
            yield f"{place}: nothing is valid any more"
            return
        for branch in _branches(written, self._old):
            yield from self._compare_branch(branch, read, place)
            for index, part in enumerate(read.get("allOf", ())):
                implied_by = [branch, *written.get("allOf", ())]
                yield from self._compare_all(implied_by, [part], f"{place}/allOf/{index}")

    def fits(self, old: Any, new: Any) -> bool:
        """Return whether ``new`` allows all that ``old`` allows, apart from the other pairs."""
        trial = _JsonComparison(self._old, self._new, self._count)
        # A copy: the pairs of a trial that fails must not count as compared.
        trial._seen = set(self._seen)
        is_wider = not any(True for _ in trial.compare(old, new, ""))
        if is_wider:
            self._seen |= trial._seen
        return is_wider

    def _compare_branch(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        types = _types(old)
        yield from _compare_types(types, new, place)
        if "enum" in new or "const" in new:
            yield from _compare_values(old, new, place)
        for keyword in new:
            applies_to = TYPE_OF_KEYWORD.get(keyword)
            if applies_to is not None and applies_to not in types:
                continue
            if keyword in UPPER_LIMITS or keyword in LOWER_LIMITS:
                yield from _compare_limit(keyword, old, new, place)
            elif keyword in SIMPLE:
                yield from SIMPLE[keyword](old, new, place)
            elif keyword in UNCOMPARED and new[keyword] != old.get(keyword):
                yield f"{place}: {keyword} is not the same; this registry does not compare it"
        if "object" in types:
            yield from self._compare_properties(old, new, place)
        if "array" in types:
            yield from self._compare_items(old, new, place)
        yield from self._compare_combinations(old, new, place)

    def _compare_properties(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        for name in sorted({*_mapping(old, "properties"), *_mapping(new, "properties")}):
            yield from self._compare_all(
                _of_property(old, name), _of_property(new, name), f"{place}/properties/{name}"
            )
        others = old.get("additionalProperties", True), new.get("additionalProperties", True)
        yield from self.compare(*others, f"{place}/additionalProperties")
        old_patterns = _mapping(old, "patternProperties")
        new_patterns = _mapping(new, "patternProperties")
        for pattern in sorted({*old_patterns, *new_patterns}):
            yield from self.compare(
                old_patterns.get(pattern, others[0]),
                new_patterns.get(pattern, others[1]),
                f"{place}/patternProperties/{pattern}",
            )

    def _compare_items(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        (old_first, old_rest), (new_first, new_rest) = _items(old), _items(new)
        for index in range(max(len(old_first), len(new_first))):
            written = old_first[index] if index < len(old_first) else old_rest
            read = new_first[index] if index < len(new_first) else new_rest
            yield from self.compare(written, read, f"{place}/items/{index}")
        yield from self.compare(old_rest, new_rest, f"{place}/items")

    def _compare_combinations(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        for keyword in ("anyOf", "oneOf"):
            choices = new.get(keyword)
            if choices is not None and not any(self.fits(old, choice) for choice in choices):
                yield f"{place}/{keyword}: no branch allows all that was allowed"

    def _compare_all(self, old: list[Any], new: list[Any], place: str) -> Iterator[str]:
        """Compare conjunctions: each schema of the new one has to be implied by an old one."""
        for part in new:
            # One that fits is enough: a document has to be valid for all of the old ones.
            if len(old) > 1 and any(self.fits(written, part) for written in old):
                continue
            yield from self.compare(old[0], part, place)


def _branches(schema: Schema, references: _References) -> list[Schema]:
    """Return schemas that together allow at least what this one allows, without combinations.

    A keyword that is on both sides of a combination is kept once, which makes the schema wider.
    """
    keywords = dict(schema)
    for part in keywords.pop("allOf", ()):
        plain = references.plain(part)
        if plain is None:
            return []
        keywords = _merged(keywords, plain)
    branches: list[Schema] = [keywords]
    for keyword in ("anyOf", "oneOf"):
        choices = keywords.get(keyword)
        if choices is None:
            continue
        plain_choices = [references.plain(choice) for choice in choices]
        branches = [
            _merged({key: value for key, value in branch.items() if key != keyword}, choice)
            for branch in branches
            for choice in plain_choices
            if choice is not None
        ]
        if len(branches) > COMPARISONS_MAX:
            raise _TooComplicated
    nested = [branch for branch in branches if "allOf" in branch]
    if not nested:
        return branches
    flat = [branch for branch in branches if "allOf" not in branch]
    return [*flat, *(inner for branch in nested for inner in _branches(branch, references))]


def _merged(schema: Schema, part: Schema) -> dict[str, Any]:
    """Return a schema that allows at least what both allow.

    Keywords whose meaning depends on each other are taken from one of the two.
    """
    taken = {name for group in TOGETHER for name in group if not group.isdisjoint(schema)}
    added = {key: value for key, value in part.items() if key not in taken and key not in schema}
    return {**added, **schema}


def _types(schema: Schema) -> frozenset[str]:
    """Return the types of documents that a schema allows; "number" stands for integers, too."""
    allowed = _declared_types(schema)
    values = _values(schema)
    if values is not None:
        allowed &= {_type_of(value) for value in values}
    return allowed


def _declared_types(schema: Schema) -> frozenset[str]:
    declared = schema.get("type")
    if declared is None:
        return TYPES
    names = [declared] if isinstance(declared, str) else declared
    return frozenset("number" if name == "integer" else name for name in names)


def _compare_types(types: frozenset[str], new: Schema, place: str) -> Iterator[str]:
    lost = types - _declared_types(new)
    if lost:
        yield f"{place}: the type {', '.join(sorted(lost))} is not allowed any more"


def _compare_integer(old: Schema, new: Schema, place: str) -> Iterator[str]:
    """Yield a problem if numbers with a fraction were allowed and only integers are now."""
    if _allows_fractions(old) and not _allows_fractions(new) and "number" in _declared_types(new):
        yield f"{place}: numbers with a fraction are not allowed any more"


def _allows_fractions(schema: Schema) -> bool:
    declared = schema.get("type")
    if declared is None:
        values = _values(schema)
        return values is None or any(isinstance(value, float) for value in values)
    return "number" in ([declared] if isinstance(declared, str) else declared)


def _values(schema: Schema) -> list[Any] | None:
    """Return the values of ``enum`` or ``const``; None if the schema has neither."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return list(values) if values is not None else None


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _compare_values(old: Schema, new: Schema, place: str) -> Iterator[str]:
    old_values, new_values = _values(old), _values(new)
    assert new_values is not None
    if old_values is None:
        yield f"{place}: only certain values are allowed now"
        return
    allowed = {_text(value) for value in new_values}
    lost = [_text(value) for value in old_values if _text(value) not in allowed]
    if lost:
        yield f"{place}: the value {', '.join(lost)} is not allowed any more"


def _compare_limit(keyword: str, old: Schema, new: Schema, place: str) -> Iterator[str]:
    was, now = old.get(keyword), new[keyword]
    if isinstance(now, bool) or isinstance(was, bool):  # Draft 4: a flag beside the limit.
        if now and not was:
            yield f"{place}: {keyword} is set now"
        return
    if now == 0 and keyword in COUNTS:
        return
    if was is None:
        yield f"{place}: {keyword} was added"
    elif now < was if keyword in UPPER_LIMITS else now > was:
        yield f"{place}: {keyword} changed from {was} to {now}"


def _compare_multiple(old: Schema, new: Schema, place: str) -> Iterator[str]:
    was, now = old.get("multipleOf"), new["multipleOf"]
    if was is None and now == 1 and not _allows_fractions(old):
        return
    # As decimal fractions: in binary ones 0.3 is no multiple of 0.1.
    if was is None or Fraction(str(was)) % Fraction(str(now)) != 0:
        yield f"{place}: multipleOf changed from {was} to {now}"


def _compare_pattern(old: Schema, new: Schema, place: str) -> Iterator[str]:
    if new["pattern"] != old.get("pattern"):
        yield f"{place}: the pattern {new['pattern']!r} was added or changed"


def _compare_unique(old: Schema, new: Schema, place: str) -> Iterator[str]:
    if new["uniqueItems"] and not old.get("uniqueItems"):
        yield f"{place}: items must be unique now"


def _compare_required(old: Schema, new: Schema, place: str) -> Iterator[str]:
    before = old.get("required", ())
    properties = _mapping(new, "properties")
    for name in new["required"]:
        schema = properties.get(name)
        has_default = isinstance(schema, dict) and "default" in schema
        if name not in before and not has_default:
            yield f"{place}: the property {name} is required now and has no default"


def _compare_dependencies(keyword: str) -> Callable[[Schema, Schema, str], Iterator[str]]:
    def compare(old: Schema, new: Schema, place: str) -> Iterator[str]:
        before, always = _mapping(old, keyword), set(old.get("required", ()))
        for name, needed in _mapping(new, keyword).items():
            was = before.get(name)
            if needed == was:
                continue
            names = set(was) if isinstance(was, list) else set()
            if not isinstance(needed, list) or not set(needed) <= names | always:
                yield f"{place}: {keyword} of the property {name} were added or changed"

    return compare


SIMPLE: dict[str, Callable[[Schema, Schema, str], Iterator[str]]] = {
    "dependencies": _compare_dependencies("dependencies"),
    "dependentRequired": _compare_dependencies("dependentRequired"),
    "multipleOf": _compare_multiple,
    "pattern": _compare_pattern,
    "required": _compare_required,
    "type": _compare_integer,
    "uniqueItems": _compare_unique,
}
"""Keywords that are compared without their subschemas."""
UNCOMPARED = frozenset(
    {
        "$dynamicRef", "$recursiveRef", "$ref", "contains", "dependentSchemas", "disallow", "else",
        "extends", "if", "maxContains", "minContains", "not", "propertyNames", "then",
        "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
"""Keywords that have to be the same in both schemas; unknown ones are annotations."""


def _of_property(schema: Schema, name: str) -> list[Any]:
    """Return the schemas that apply to a property."""
    properties = _mapping(schema, "properties")
    found = [properties[name]] if name in properties else []
    found += [
        part for pattern, part in _mapping(schema, "patternProperties").items()
        if _matches(pattern, name)
    ]  # fmt: skip
    return found or [schema.get("additionalProperties", True)]


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except (re.error, OverflowError) as error:  # The latter for a number of repetitions.
        raise _UnknownPattern(
            f"the pattern {pattern!r} cannot be compared by this registry: {error}"
        ) from error


def _items(schema: Schema) -> tuple[list[Any], Any]:
    """Return the schemas of the first items, and that of all others."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return list(schema.get("prefixItems", ())), items


def _mapping(schema: Schema, keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
