"""Masked parts of records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sharegroup.console.access.masks import (
    DEPTH_MAX,
    DOCUMENT_BYTES_MAX,
    MASK,
    MASK_BYTES,
    NO_MASKS,
    BadPath,
    Mask,
    Masks,
    TopicMask,
    parsed_path,
)

ORDER = {
    "id": 7,
    "card": {"number": "4111", "name": "Ada"},
    "items": [{"iban": "DE1", "n": 1}, {"iban": "DE2", "n": 2}],
    "odd name": {"email": "a@b"},
}


def masked(document: Any, *paths: str) -> Any:
    return TopicMask(frozenset(map(parsed_path, paths))).document(document)


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("$.card.number", {"card": {"number": MASK, "name": "Ada"}}),
        ("$.card", {"card": MASK}),
        ("$['card']['number']", {"card": {"number": MASK, "name": "Ada"}}),
        ("$.items[*].iban", {"items": [{"iban": MASK, "n": 1}, {"iban": MASK, "n": 2}]}),
        ("$.items[1]", {"items": [{"iban": "DE1", "n": 1}, MASK]}),
        ("$..email", {"odd name": {"email": MASK}}),
        ('$["odd name"].*', {"odd name": {"email": MASK}}),
        ("$..n", {"items": [{"iban": "DE1", "n": MASK}, {"iban": "DE2", "n": MASK}]}),
        ("$.nothing.there", {}),
        ("$.id.more", {}),
    ],
)
def test_path_masks_what_it_names(path: str, changed: dict[str, Any]) -> None:
    assert masked(ORDER, path) == {**ORDER, **changed}


def test_several_paths_apply_at_once_and_the_document_stays() -> None:
    before = json.dumps(ORDER)
    assert masked(ORDER, "$.card", "$.card.number", "$..iban", "$.id") == {
        "id": MASK,
        "card": MASK,
        "items": [{"iban": MASK, "n": 1}, {"iban": MASK, "n": 2}],
        "odd name": {"email": "a@b"},
    }
    assert json.dumps(ORDER) == before
    assert masked(ORDER, "$") == MASK


@pytest.mark.parametrize(
    "content",
    [
        b"4111 1111",
        b'"4111"',
        b"4111",
        b"\xff\x00",
        b'{"card": ',
        b"[" * 100_000,
        b'{"n": ' + b"1" * 10_000 + b"}",
        b'{"x": "' + b"y" * DOCUMENT_BYTES_MAX + b'"}',
    ],
    ids=lambda content: content[:10].decode("latin1"),
)
def test_what_has_no_parts_is_masked_as_a_whole(content: bytes) -> None:
    """A text may be the number itself, and a document that cannot be read may have it anywhere."""
    assert TopicMask(frozenset({parsed_path("$.card")})).value(content) == MASK_BYTES


def test_what_is_too_deep_is_masked() -> None:
    document: Any = {"card": 1}
    for _ in range(DEPTH_MAX + 5):
        document = {"deep": document}
    text = json.dumps(masked(document, "$..card"))
    assert "card" not in text
    assert text.count("deep") == DEPTH_MAX + 1


def test_values_keep_what_is_not_masked() -> None:
    mask = TopicMask(frozenset({parsed_path("$.card")}))
    assert mask.value('{"card": 1, "näme": "ö"}'.encode()) == (
        '{"card": "•••", "näme": "ö"}'.encode()
    )
    assert mask.value(b'{"x": "\\ud800"}') == b'{"x": "\\ud800"}'
    assert mask.value(None) is None
    assert mask.value(b"") == b""
    assert mask.key(b"k") == b"k"


def test_headers_and_keys() -> None:
    masks = Masks((Mask(topics=("pay*",), headers=("authorization", "x-*"), keys=True),))
    mask = masks.of("payments")
    headers = [("Authorization", b"secret"), ("X-Token", b"t"), ("kind", b"k"), ("x-null", None)]
    assert mask.shown_headers(headers) == [
        ("Authorization", MASK_BYTES), ("X-Token", MASK_BYTES), ("kind", b"k"), ("x-null", None),
    ]  # fmt: skip
    assert mask.key(b"k") == MASK_BYTES
    assert mask.key(None) is None
    assert mask.value(b"text") == b"text"


def test_masks_of_all_topics_of_a_record_apply() -> None:
    masks = Masks(
        (
            Mask(topics=("payments",), values=(parsed_path("$.card"),)),
            Mask(topics=("*-dlq",), headers=("trace",)),
        )
    )
    both = masks.of("shop-dlq", "payments")
    assert both.paths == {parsed_path("$.card")}
    assert both.headers == ("trace",)
    assert masks.of("orders") == TopicMask()
    assert NO_MASKS.of("orders") == TopicMask()


@pytest.mark.parametrize(
    "path", ["", "card", "$card", "$.", "$.a..", "$[", "$[x]", "$['a", "$.a[-1]", "$." + "a" * 600]
)
def test_wrong_path_is_refused(path: str) -> None:
    with pytest.raises(BadPath):
        parsed_path(path)
