"""A project under gunicorn with preload: the parent has connected before it forks."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import httpx2

from .conftest import Configure, Work

# It enqueues when it is imported, in the parent. Nobody should; some do.
APPLICATION = """
from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()

from support.djangoapp.tasks import add

add.enqueue(0)
"""


def test_workers_that_were_forked_enqueue_in_both_ways(
    configure: Configure, environment: dict[str, str], tmp_path: Path, work: Work
) -> None:
    from support.djangoapp.tasks import add, seen

    configure()
    (tmp_path / "served.py").write_text(APPLICATION)
    log = tmp_path / "log"
    options = ["--preload", "--workers", "2", "--bind", "127.0.0.1:0", "--chdir", str(tmp_path)]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *options, "served:application"],
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = monotonic() + 60
        while not (found := re.search(r"Listening at: (http://[\d.:]+)", log.read_text())):
            assert monotonic() < deadline, log.read_text()
            sleep(0.05)
        with httpx2.Client(base_url=found[1], timeout=30) as client:
            ids = [client.get(path).text for path in ("/enqueue", "/aenqueue") * 3]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    work()

    assert [add.get_result(each).return_value for each in ids] == [5] * 6, log.read_text()
    assert (0, 0) in seen
    assert "Traceback" not in log.read_text()
