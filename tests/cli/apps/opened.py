"""A module that opens its Monque when it is imported, as scripts do."""

from shop import QUICK

from monque import Job, SyncMonque

monque = SyncMonque(options=QUICK).open()


@monque.worker("work")
def work(job: Job[float]) -> None:
    print("worked", flush=True)
