"""The page of waiting records: what it shows, and who may run and cancel them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sharegroup.client import Producer
from sharegroup.console.access.roles import Grant, Role, Roles, UserGrant
from sharegroup.console.pages import waiting
from sharegroup.testing import broker
from sharegroup.worker import App, Record, Retry
from tests.integration.console.access_scene import TOKENS, form_token, with_tokens

ROLES = Roles(
    grants=(
        UserGrant(users=("ada",), grant=Grant(role=Role.OPERATOR, groups=("billing",))),
        UserGrant(users=("bob",), grant=Grant(role=Role.VIEWER, topics=("other",))),
    )
)


@pytest.mark.slow
def test_waiting_records_are_listed_run_and_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also: a command is refused if the search for its record was cut off before it was found."""
    runs: Counter[bytes] = Counter()

    async def scene() -> None:
        async with broker() as there:
            app = App("shop", bootstrap_servers=there.bootstrap_servers)
            retry = Retry(max_attempts=3, initial_delay="1h", multiplier=1, jitter=0)

            @app.share_group("billing", topics="orders", retry=retry, steering=True)
            async def work(value: bytes, record: Record) -> None:
                runs[value] += 1
                if record.attempt == 1:
                    raise ConnectionError("the bank hung up")

            async with app, with_tokens(there, roles=ROLES, allow_changes=True) as console:
                async with Producer(bootstrap_servers=there.bootstrap_servers) as producer:
                    for value in (b"1", b"2"):
                        await producer.send_and_wait("orders", value)
                ada, bob = await console.browser(), await console.browser()
                await ada.log_in(token=TOKENS["ada"])
                await bob.log_in(token=TOKENS["bob"])
                program = await console.browser(token=TOKENS["ada"])
                data = await program.until(
                    "/waiting", lambda data: len(data["records"]) == 2, group="billing"
                )
                assert data["classes"] == [{"error": "builtins.ConnectionError", "count": 2}]
                assert {row["failures"] for row in data["records"]} == {1}
                first, second = (row["id"] for row in data["records"])
                given = {"group": "billing", "id": first}
                with monkeypatch.context() as patched:
                    patched.setattr(waiting, "LOOK_SECONDS", 0.0)
                    answer = await program.http.post("/api/v1/waiting/run", json=given)
                    assert (answer.status_code, "0 s of reading" in answer.text) == (404, True)
                page = (await ada.get("/waiting", group="billing", id=first)).text
                assert "Run now" in page
                token = form_token(page)

                for record_id, verb in ((first, "run"), (second, "cancel")):
                    fields = {"form_token": token, "group": "billing", "id": record_id}
                    answer = await ada.http.post(f"/waiting/{verb}", data=fields)
                    assert answer.headers.get("location") == (
                        f"/waiting?group=billing&id={record_id}&outcome=done"
                    ), answer.text
                gone = await program.data("/waiting", group="billing")
                assert gone["records"] == []
                again = {"group": "billing", "id": first}
                answer = await program.http.post("/api/v1/waiting/run", json=again)
                assert answer.status_code == 404

                token = form_token((await bob.get("/")).text)
                refused = {"form_token": token, "group": "billing", "id": second}
                assert (await bob.http.post("/waiting/run", data=refused)).status_code == 403
                assert (await ada.get("/waiting", group="secret")).status_code == 404
                foreign = await ada.get("/waiting", group="billing", outcome="<b>")
                assert foreign.status_code == 400
                groups = await program.data("/waiting")
                assert [row["group"] for row in groups["groups"]] == ["billing"]
        assert sorted(runs.values()) == [1, 2]

    asyncio.run(scene())
