"""The main job: enqueue, process, complete."""

from __future__ import annotations

from monque import Job, JobStatus, Monque
from support.waiting import Events


async def test_an_enqueued_job_is_processed_and_completed(monque: Monque, events: Events) -> None:
    """User story 1, scenarios 1 and 2; FR-001, FR-004."""
    seen: list[Job[dict[str, str]]] = []

    @monque.worker("send-email")
    async def send_email(job: Job[dict[str, str]]) -> None:
        seen.append(job)

    await monque.start()
    job = await monque.enqueue(send_email, {"to": "user@example.com", "subject": "Welcome"})
    [event] = await events.wait("job:complete")

    assert [received.data for received in seen] == [{"to": "user@example.com", "subject": "Welcome"}]
    assert event.job == await monque.get_job(job.id)
    assert event.job.status is JobStatus.COMPLETED
