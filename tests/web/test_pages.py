"""The built pages: one page for all screens, and the files that it loads. What is in them, browsers test."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from monque.web import Dashboard
from support.web import Client, Connect


@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/jobs/65f1c0ffee65f1c0ffee0001", "/queue", "/no/such/screen"]
)
async def test_every_path_that_is_no_file_is_the_page(api: Client, path: str) -> None:
    answer = await api.get(path, headers={"accept": "text/html"})

    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["cache-control"] == "no-cache"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert answer.text == '<head><base href="/" /></head>'


async def test_links_of_the_page_begin_at_the_mount(board: Dashboard, connect: Connect) -> None:
    client = connect(Starlette(routes=[Mount("/ops", Starlette(routes=[Mount("/monque", board)]))]))

    answer = await client.get("/ops/monque/jobs/1", headers={"accept": "text/html"})

    assert '<base href="/ops/monque/" />' in answer.text


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_files_with_a_hash_are_kept_for_ever_by_this_browser_alone(api: Client, encoding: str) -> None:
    answer = await api.get("/assets/index-a1b2.js", headers={"accept-encoding": encoding})

    assert (answer.status_code, answer.text) == (200, "let x = 1;")
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert answer.headers.get("content-encoding", "identity") == encoding
    assert answer.headers["vary"] == "accept-encoding"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_other_files_are_asked_for_again(api: Client) -> None:
    answer = await api.get("/favicon.svg")

    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize(
    "path", ["/assets/other.js", "/assets/../app.py", "/assets/%2e%2e/app.py", "/assets//etc/passwd"]
)
async def test_only_built_files_are_found(api: Client, path: str) -> None:
    answer = await api.get(path)

    assert answer.status_code in (200, 404)
    assert "import" not in answer.text
    assert "root:" not in answer.text


async def test_a_page_takes_no_post(api: Client) -> None:
    answer = await api.post("/jobs", json={})

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
