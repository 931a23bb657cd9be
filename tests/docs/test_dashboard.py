"""What the guide to the dashboard shows is what happens."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from fastapi import FastAPI

from monque import Monque
from support.web import KEY, client_of

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "dashboard.md"


@pytest.fixture
def app(monque: Monque, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """The app of the guide, on the database of this test."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "shop_app.py").write_text(code)
    monkeypatch.setattr("monque.Monque", lambda _uri: monque)
    made = runpy.run_path(str(tmp_path / "shop_app.py"))["app"]
    assert isinstance(made, FastAPI)
    return made


async def test_on_this_machine_an_app_shows_it_with_the_key(app: FastAPI) -> None:
    async with client_of(app, cookies={}) as client:
        page = await client.get(f"/monque/?key={KEY}", headers={"accept": "text/html"}, follow_redirects=True)
        me = await client.get("/monque/api/ops/v1/me")

    assert (page.status_code, me.status_code) == (200, 200)
    assert '<base href="/monque/" />' in page.text


async def test_from_another_address_it_answers_with_the_sentence_of_the_guide(app: FastAPI) -> None:
    (told,) = re.findall(r"answers 403.*?```text\n(.*?)\n```", GUIDE.read_text(), re.DOTALL)

    async with client_of(app, client="192.0.2.7") as client:
        refused = await client.get("/monque/api/ops/v1/me")
        page = await client.get("/monque/", headers={"accept": "text/html"})

    assert (refused.status_code, refused.json()["detail"]) == (403, told)
    assert page.status_code == 403
    assert told in page.text
