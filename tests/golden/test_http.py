"""The OpenAPI document, and what `/api/v1` answers, are those of the golden files."""

from __future__ import annotations

from monque.web import LoopbackOnly, dashboard
from support.each_kind import Stored
from support.golden import as_json, assert_golden
from support.web import client_of

READS = ("/jobs?limit=50", "/jobs/stats", "/queue-views", "/capabilities", "/health", "/jobs/unknown")


async def test_the_openapi_document_has_not_changed(stored: Stored) -> None:
    async with dashboard(stored.monque, auth=LoopbackOnly()) as board, client_of(board) as client:
        document = (await client.get("/openapi.json")).json()
    assert_golden("openapi.json", as_json(document))


async def test_what_the_first_api_answers_has_not_changed(stored: Stored) -> None:
    paths = {path: path for path in READS}
    paths |= {f"/jobs/<{name}>": f"/jobs/{job.id}" for name, job in stored.jobs.items()}
    answers = {}
    async with dashboard(stored.monque, auth=LoopbackOnly()) as board, client_of(board) as client:
        for name, path in paths.items():
            answer = await client.get(f"/api/v1{path}")
            answers[name] = {"status": answer.status_code, "body": answer.json()}
    assert_golden("api-v1.json", as_json(answers))
