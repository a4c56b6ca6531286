"""The console in a real browser: live values, keyboard, phones, and without its script.

`make test` runs this where Playwright and a Chromium are installed; `make console-test` installs
Playwright, and axe-core with which it checks what a screen reader needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sharegroup.console.web.routes import ROUTES
from tests.support.browser import ALL, Watched
from tests.support.console_scene import Scene, wait_until_seen

QUERIES = {
    "/group": "?id=billing",
    "/topic": "?name=orders",
    "/reset": "?group=mailer",
    "/delete": "?group=mailer&what=group",
    "/letter": "?topic=dlq.orders&partition=0&offset=0",
    "/job": "?id=none",
    "/record": "?topic=orders&partition=0&offset=0",
    "/produce": "?topic=orders",
}
FAILURES = ("/group?id=none", "/topic", "/job?id=none", "/plan")
SCREENS = [
    *(route.path + QUERIES.get(route.path, "") for route in ROUTES),
    *("/group?id=warehouse", "/records?topic=orders", "/letters?topic=dlq.orders"),
    *("/group?id=none", "/topic"),
]
SOME = SCREENS if ALL else ["/", "/group?id=billing"]
"""Where a check takes long, `make test` does it on these; `make console-test` on all."""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SERIOUS = ("serious", "critical")


@pytest.fixture
def plain(chromium: Any) -> Iterator[Watched]:
    """A page in a browser without scripts."""
    with Watched(chromium, java_script_enabled=False) as page:
        yield page
    assert page.offences == []


def number_in(text: str) -> int:
    return int(text.replace(",", ""))


def waiting(page: Any) -> int:
    return number_in(page.locator("#live_figures dd").first.inner_text())


@pytest.mark.slow
@pytest.mark.parametrize("path", SCREENS)
def test_screen_has_a_heading_and_no_error(watched: Watched, scene: Scene, path: str) -> None:
    page = watched.open(scene.url + path)
    assert page.locator("h1").count() == 1
    if path in FAILURES:
        assert page.locator("[role=alert]").is_visible()
        watched.offences.clear()  # The status of the page itself.
    else:
        assert page.locator("[role=alert]").count() == 0


@pytest.mark.parametrize("path", SOME)
def test_phone_scrolls_sideways_only_inside_of_tables(
    chromium: Any, scene: Scene, path: str
) -> None:
    with Watched(chromium, **PHONE) as watched:
        page = watched.open(scene.url + path)
        for details in page.locator("details > summary").all():
            details.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", SOME)
def test_screen_reader_finds_no_serious_obstacle(
    chromium: Any, scene: Scene, axe: str, path: str, scheme: str
) -> None:
    with Watched(chromium, color_scheme=scheme) as watched:
        page = watched.open(scene.url + path)
        for details in page.locator("details > summary").all():
            details.click()
        page.evaluate(axe)
        found = page.evaluate("axe.run()")["violations"]
    assert [
        (problem["id"], [node["html"][:200] for node in problem["nodes"][:3]])
        for problem in found
        if problem["impact"] in SERIOUS
    ] == []


def test_values_come_alive(watched: Watched, scene: Scene) -> None:
    page = watched.open(scene.url)
    page.wait_for_selector(".is-live")
    before = waiting(page)
    scene.produce("emails", 10)
    page.wait_for_function(
        "old => +document.querySelector('#live_figures dd').innerText.replace(/,/g, '') >= old",
        arg=before + 10,
    )


def test_live_values_keep_focus_selection_and_scroll(watched: Watched, scene: Scene) -> None:
    """Focus is on a link, text of another part is selected, and a table is scrolled while the
    page gets new values; all three stay, and the part with the selection stays old."""
    page = watched.open(f"{scene.url}/group?id=billing")
    page.wait_for_selector(".is-live")
    page.set_viewport_size({"width": 320, "height": 700})
    page.locator("#live_partitions tbody a").nth(2).focus()
    page.evaluate("document.querySelector('#live_partitions .scroll').scrollLeft = 10")
    page.evaluate(
        "document.getSelection().selectAllChildren(document.querySelector('#live_figures dt'))"
    )
    selected = page.evaluate("document.getSelection().toString()")
    before = page.locator("#live_partitions").inner_text()
    scene.produce("orders", 400)
    page.wait_for_function(
        "old => document.querySelector('#live_partitions').innerText !== old", arg=before
    )
    assert page.evaluate("document.activeElement.closest('tr').rowIndex") == 3
    assert page.evaluate("document.querySelector('#live_partitions .scroll').scrollLeft") == 10
    assert page.evaluate("document.getSelection().toString()") == selected


@pytest.mark.slow
def test_open_details_and_a_text_in_work_stay(watched: Watched, scene: Scene) -> None:
    page = watched.open(f"{scene.url}/topics")
    page.wait_for_selector(".is-live")
    page.locator("#topics-find").fill("ord")
    page.locator("#topics-find").press_sequentially("e")
    page.wait_for_timeout(2_500)  # Two rounds of new values.
    assert page.locator("#topics-find").input_value() == "orde"


@pytest.mark.slow
def test_pause_stops_the_values_until_it_ends(watched: Watched, scene: Scene) -> None:
    page = watched.open(scene.url)
    page.wait_for_selector(".is-live")
    page.get_by_role("button", name="Pause updates").click()
    before = waiting(page)
    scene.produce("emails", 5)
    page.wait_for_timeout(3_000)  # What must not happen would take 2 s.
    assert (waiting(page), page.locator(".live-text").inner_text()) == (before, "paused")
    page.get_by_role("button", name="Go on").click()
    page.wait_for_function(
        "old => +document.querySelector('#live_figures dd').innerText.replace(/,/g, '') > old",
        arg=before,
    )


def test_stream_is_closed_by_a_hidden_tab_and_opened_again(watched: Watched, scene: Scene) -> None:
    page = watched.page
    page.add_init_script(
        """window.streams = [];
        const Original = window.EventSource;
        window.EventSource = class extends Original {
          constructor(url) { super(url); window.streams.push(this); }
        };
        window.hide = (value) => {
          Object.defineProperty(document, "hidden", {value, configurable: true});
          document.dispatchEvent(new Event("visibilitychange"));
        };"""
    )
    watched.open(scene.url)
    page.wait_for_selector(".is-live")
    page.evaluate("hide(true)")
    assert page.evaluate("streams.map(stream => stream.readyState)") == [2]
    page.evaluate("hide(false)")
    page.wait_for_function("() => streams.length === 2 && streams[1].readyState === 1")
    page.evaluate("streams[1].dispatchEvent(new MessageEvent('end', {data: 'null'}))")
    page.wait_for_function("() => streams.length === 3 && streams[2].readyState === 1")
    assert page.evaluate("streams[1].readyState") == 2


@pytest.mark.slow
def test_subject_that_is_gone_is_told(watched: Watched, scene: Scene) -> None:
    scene.add_group("short-lived")
    wait_until_seen(scene.url, "short-lived")
    page = watched.page
    page.goto(f"{scene.url}/groups")
    page.get_by_role("link", name="short-lived").click()
    page.wait_for_selector(".is-live")
    scene.delete_group("short-lived")
    page.wait_for_function(
        "() => document.querySelector('.live-text').innerText.includes('no group')"
    )
    assert page.locator(".is-live").count() == 0


def test_times_are_in_the_zone_of_the_reader_with_utc_beside(chromium: Any, scene: Scene) -> None:
    with Watched(chromium, timezone_id="Asia/Tokyo") as watched:
        page = watched.open(f"{scene.url}/record?topic=orders&partition=0&offset=0")
        shown = page.locator(".facts time").inner_text()
        local, utc = re.findall(r"(\d\d):\d\d:\d\d", shown)
        assert (int(local) - int(utc)) % 24 == 9
        assert shown.endswith(" UTC)")
        assert "times in Asia/Tokyo" in page.locator("footer").inner_text()
        assert watched.offences == []


def test_newcomer_finds_the_way_by_links(watched: Watched, scene: Scene) -> None:
    """From a group to its letters, and from a topic, or none, to records; own topics come first."""
    page = watched.open(f"{scene.url}/group?id=billing")
    page.locator("#live_figures").get_by_role("link", name="dlq.orders").click()
    page.wait_for_url("**/letters?topic=dlq.orders&group=billing")
    page.goto(f"{scene.url}/topic?name=dlq.orders")
    page.get_by_role("link", name="Its dead letters").click()
    page.wait_for_url("**/letters?topic=dlq.orders")
    page.goto(f"{scene.url}/records")
    names = page.locator("main .links a").all_inner_texts()
    assert names.index("page-views") < names.index("__consumer_offsets")
    page.get_by_role("link", name="orders", exact=True).click()
    page.wait_for_url("**/records?topic=orders")


def test_keyboard_reaches_everything(watched: Watched, scene: Scene) -> None:
    """Tab goes through the skip link, the navigation, the pause and the table; Enter follows."""
    page = watched.open(scene.url)
    page.wait_for_selector(".is-live")
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
            " || document.activeElement.id).trim()"
        )
        if name in seen and name == "Skip to the content":
            break
        seen.append(name)
        if name == "Pause updates":
            page.keyboard.press("Enter")  # Else parts change meanwhile.
        is_outlined = page.evaluate(
            "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
            " || document.activeElement === document.body"
        )
        assert is_outlined, f"the focus on {name!r} is not visible"
    assert seen[0] == "Skip to the content"
    for name in (
        "Overview",
        "Brokers",
        "Pause updates",
        "Share groups",
        "billing",
        "This page as JSON",
    ):
        assert name in seen
    page.locator("tbody").get_by_role("link", name="billing").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/group?id=billing")


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until this element has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


@pytest.mark.slow
def test_letters_are_sent_back_by_keyboard_on_a_phone(chromium: Any, scene: Scene) -> None:
    """Select, dry run, start, progress and result: no pointer is used."""
    with Watched(chromium, **PHONE) as watched:
        page = watched.open(f"{scene.url}/letters?topic=dlq.orders")
        tab_to(page, "[name=everything]")
        page.keyboard.press("Space")
        tab_to(page, "[name=target]")
        page.keyboard.press("ArrowDown")
        tab_to(page, "button[value=redrive]")
        page.keyboard.press("Enter")
        page.wait_for_url("**/plan?*target=original*")
        tab_to(page, "main button.primary")
        count = number_in(re.findall(r"Send back ([\d,]+) letter", page.content())[0])
        page.keyboard.press("Enter")
        page.wait_for_url("**/job?id=*")
        page.wait_for_selector(".state.done")
        assert number_in(page.locator("dd:has(.of)").inner_text().split()[0]) == count > 0
        assert watched.offences == []


def test_everything_but_live_values_works_without_the_script(plain: Watched, scene: Scene) -> None:
    page = plain.open(scene.url)
    assert page.get_by_role("button", name="Pause updates").count() == 0
    page.get_by_role("navigation").get_by_role("link", name="Topics").click()
    assert re.search(r"UTC|orders", page.locator("main").inner_text())
    page.get_by_label("Find in Topics").fill("orders")
    page.keyboard.press("Enter")
    page.wait_for_url("**topics-find=orders")
    assert all("orders" in row for row in page.locator("tbody tr").all_inner_texts())
    page.get_by_role("link", name="Partitions").click()
    assert page.locator("[aria-sort=descending]").first.inner_text().startswith("Partitions")
    assert "orders" in page.url
    page.get_by_role("link", name="orders", exact=True).click()
    page.locator("summary").first.click()
    assert page.get_by_text("retention.ms").first.is_visible()
    page.get_by_role("link", name="billing").click()
    assert page.locator("svg.runs").count() == 4
    page.get_by_role("link", name="2h").click()
    assert page.locator("[aria-current=true]").inner_text() == "2h"
