"""The first words of users of other task queues."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sharegroup.worker import App


def declared() -> tuple[Any, Any]:
    app = App("orders")

    @app.share_group("billing", topics="orders")
    async def bill(order: bytes) -> None: ...

    return app, bill


@pytest.mark.parametrize("name", ["task", "consumer", "agent", "actor"])
def test_application_says_how_to_declare_a_handler(name: str) -> None:
    app, _ = declared()
    with pytest.raises(AttributeError, match=r"@app\.share_group\("):
        getattr(app, name)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("conf", "settings are arguments of App"),
        ("on_after_configure", '@app.every("5m")'),
        ("autodiscover_tasks", "register the handlers of a module with app.routes(module)"),
        ("control", "use sharegroup worker status, stop and quiet"),
    ],
)
def test_application_says_what_replaces_a_name_of_celery(name: str, advice: str) -> None:
    app, _ = declared()
    with pytest.raises(AttributeError) as raised:
        getattr(app, name)
    assert advice in str(raised.value)


@pytest.mark.parametrize("name", ["delay", "apply_async", "perform_async", "perform_later"])
def test_handler_says_how_to_send(name: str) -> None:
    _, bill = declared()
    with pytest.raises(AttributeError, match=r"await handler\.send\(value\)"):
        getattr(bill, name)


def test_other_unknown_names_have_pythons_error() -> None:
    app, bill = declared()
    with pytest.raises(AttributeError, match=r"^'App' object has no attribute 'qux'$"):
        _ = app.qux
    assert not hasattr(bill, "qux")
    assert copy.copy(bill).route is bill.route
