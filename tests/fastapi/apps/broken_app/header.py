"""A dependency that reads the HTTP request."""

from typing import Annotated

from fastapi import Depends, Header

from monque import Job
from monque.fastapi import job


async def get_token(authorization: Annotated[str, Header()]) -> str:
    return authorization


async def get_user(token: Annotated[str, Depends(get_token)]) -> str:
    return token


@job("greet")
async def greet(job: Job, user: Annotated[str, Depends(get_user)]) -> None: ...
