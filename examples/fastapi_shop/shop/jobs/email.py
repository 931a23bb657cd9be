"""Jobs as functions: the first parameter takes the job, all others are dependencies, as in a route."""

from dataclasses import dataclass

from monque import Job
from monque.fastapi import JobRouter
from shop.services import MailerDep

jobs = JobRouter(namespace="email")


@dataclass
class Email:
    to: str
    subject: str


@jobs.job("send", concurrency=10)
async def send(job: Job[Email], mailer: MailerDep) -> None:
    await mailer.send(job.data.to, job.data.subject)


@jobs.cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
async def morning_report(_job: Job[None], mailer: MailerDep) -> None:
    await mailer.send("owner@example.org", "Good morning")
