"""The program that the image runs. Put yours in its place."""

from monque import Job, Monque

monque = Monque()  # MONQUE_URI names the database


@monque.worker("send-email", concurrency=20)
async def send_email(job: Job[dict[str, str]]) -> None:
    """Pretend to send one."""
    job.add_log(f"sent to {job.data['to']}")
