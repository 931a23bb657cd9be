"""The recipe of the guide: progress in a browser, by server-sent events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx

from monque import Job
from monque.embedded import EmbeddedMongo
from support.aliases import Database, Make
from support.programs.child import uri_of

RECIPE = re.compile(r"\*`progress\.py`:\*\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "results.md"


async def test_the_recipe_for_a_browser_streams_progress_until_the_job_has_ended(
    server: EmbeddedMongo, database: Database, make_monque: Make
) -> None:
    found = RECIPE.search(GUIDE.read_text())
    assert found is not None
    recipe: dict[str, Any] = {"__name__": "progress"}
    exec(found[1].replace("mongodb://localhost:27017/shop", uri_of(server, database)), recipe)  # noqa: S102 - our own page
    app, worker = recipe["app"], make_monque()

    @worker.worker("import")
    async def import_rows(job: Job[None]) -> None:
        job.report_progress(2, 2, "rows")

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as browser,
    ):
        await worker.start()
        job = await worker.enqueue("import")
        stream = await browser.get(f"/jobs/{job.id}/updates")
        missing = await browser.get(f"/jobs/{'0' * 24}/updates")

    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.text.endswith('event: progress\ndata: [2, 2, "rows"]\n\nevent: end\ndata: "completed"\n\n')
    assert missing.status_code == 404
