"""Tables that sort, filter and page on the server."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from sharegroup.console.pages.tables import ROWS_PER_PAGE, Column, TableView, table
from sharegroup.console.parameters import BadQuery

COLUMNS = (
    Column("name", "Name", "id"),
    Column("rack", "Rack", "text"),
    Column("lag", "Waiting", "number"),
    Column("topics", "Topics", "list"),
)
ROWS = [
    {"name": "billing", "rack": None, "lag": 5, "topics": ["orders"]},
    {"name": "Audit", "rack": "b", "lag": None, "topics": ["orders", "refunds"]},
    {"name": "mail", "rack": "a", "lag": 40, "topics": []},
]


def shown(rows: object = ROWS, *, sort: str = "name", **query: str) -> TableView:
    named = {key.replace("_", "-"): value for key, value in query.items()}
    return table("t", COLUMNS, rows, named, sort=sort, empty="none")  # type: ignore[arg-type]


def names(view: TableView) -> list[str]:
    return [row["name"] for row in view.rows]


def parameters(address: str | None) -> dict[str, str]:
    assert address is not None
    return dict(parse_qsl(address.removeprefix("?")))


def test_default_order_is_that_of_the_page() -> None:
    assert names(shown(sort="-lag")) == ["mail", "billing", "Audit"]


def test_unknown_numbers_are_below_all_others() -> None:
    assert names(shown(t_sort="lag")) == ["Audit", "billing", "mail"]


def test_lists_sort_by_their_length() -> None:
    assert names(shown(t_sort="-topics")) == ["Audit", "billing", "mail"]


def test_heading_sorts_numbers_down_first_and_turns_its_own_order() -> None:
    view = shown(t_sort="-lag", other="kept")
    addresses = {heading.column.key: parameters(heading.address) for heading in view.headings}
    assert addresses["lag"] == {"t-sort": "lag", "other": "kept"}
    assert addresses["name"] == {"t-sort": "name", "other": "kept"}
    assert parameters(shown().headings[2].address) == {"t-sort": "-lag"}
    assert [heading.order for heading in view.headings] == ["none", "none", "descending", "none"]


def test_find_looks_at_texts_and_lists_whatever_their_case() -> None:
    assert names(shown(t_find="AUD")) == ["Audit"]
    assert names(shown(t_find="orders")) == ["Audit", "billing"]
    assert names(shown(t_find="40")) == []


def test_find_does_not_match_what_is_unknown() -> None:
    assert names(shown(t_find="none")) == []


def test_column_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadQuery, match="t-sort: there is no column 'secret'"):
        shown(t_sort="secret")


@pytest.mark.parametrize(
    ("asked", "page"),
    [("1", 1), ("3", 3), ("9", 3), ("0", 1), ("-1", 1), ("x", 1), ("٣", 1), ("9" * 5000, 1)],
)
def test_page_is_one_that_exists(asked: str, page: int) -> None:
    many = [{"name": f"{number:03}"} for number in range(2 * ROWS_PER_PAGE + 1)]
    view = shown(many, t_page=asked)
    assert (view.page, view.page_count) == (page, 3)


def test_pages_lead_to_each_other_and_keep_order_and_filter() -> None:
    many = [{"name": f"{number:03}"} for number in range(2 * ROWS_PER_PAGE)]
    first = shown(many, t_sort="-name", t_find="0")
    assert parameters(shown(many, t_page="2", id="g").previous) == {"t-page": "1", "id": "g"}
    assert shown(many, t_page="2").next is None
    assert first.previous is None
    assert parameters(shown(many, t_sort="-name").next) == {"t-sort": "-name", "t-page": "2"}


def test_form_keeps_the_other_parameters_and_starts_at_the_first_page() -> None:
    view = shown(t_find="a", t_page="2", id="billing")
    assert view.kept == (("id", "billing"),)
    assert (view.find_name, view.find) == ("t-find", "a")
