"""What only an HTTP request has is refused where a job is declared, with the way that leads there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import (
    BackgroundTasks,
    Body,
    Cookie,
    Depends,
    File,
    Form,
    Header,
    Path,
    Query,
    Response,
    Security,
    UploadFile,
    WebSocket,
)
from fastapi.security import APIKeyHeader, OAuth2PasswordBearer, SecurityScopes

from monque import ConfigurationError, Job, WorkerRegistrationError
from monque.fastapi import JobRouter, cron, job, job_controller


async def get_user() -> str:
    return "ada"


def reads_header(token: Annotated[str, Header()]) -> None: ...
def reads_header_by_default(token: str = Header("none")) -> None: ...
def reads_query(page: Annotated[int, Query(ge=1)]) -> None: ...
def reads_cookie(session: Annotated[str, Cookie()]) -> None: ...
def reads_path(item: Annotated[int, Path()]) -> None: ...
def reads_body(order: Annotated[dict[str, Any], Body()]) -> None: ...
def reads_form(name: Annotated[str, Form()]) -> None: ...
def reads_file(upload: Annotated[UploadFile, File()]) -> None: ...
def reads_anything(page: int) -> None: ...
def reads_anything_with_default(page: int = 1) -> None: ...
def reads_anything_unannotated(page) -> None: ...
def wants_response(response: Response) -> None: ...
def wants_tasks(tasks: BackgroundTasks) -> None: ...
def wants_socket(socket: WebSocket) -> None: ...
def wants_scopes(scopes: SecurityScopes) -> None: ...
def is_secured(user: Annotated[str, Security(get_user, scopes=["me"])]) -> None: ...
def has_bearer(token: Annotated[str, Depends(OAuth2PasswordBearer("token"))]) -> None: ...
def has_key(key: Annotated[str, Depends(APIKeyHeader(name="x-key"))]) -> None: ...


class Paginated:
    def __init__(self, page: int = 1) -> None: ...


REFUSED = {
    reads_header: "'token' is read from the header of an HTTP request",
    reads_header_by_default: "'token' is read from the header of an HTTP request",
    reads_query: "'page' is read from the query of an HTTP request",
    reads_cookie: "'session' is read from the cookie of an HTTP request",
    reads_path: "'item' is read from the path of an HTTP request",
    reads_body: "'order' is read from the body of an HTTP request",
    reads_form: "'name' is read from the form of an HTTP request",
    reads_file: "'upload' is read from the file of an HTTP request",
    reads_anything: "'page' is no dependency",
    reads_anything_with_default: "'page' is no dependency",
    reads_anything_unannotated: "'page' is no dependency",
    wants_response: "'response' is a Response, which only an HTTP request has",
    wants_tasks: "'tasks' is a BackgroundTasks, which only an HTTP request has",
    wants_socket: "'socket' is a WebSocket, which only an HTTP request has",
    wants_scopes: "'scopes' is a SecurityScopes, which only an HTTP request has",
    is_secured: "'user' asks for security scopes",
    has_bearer: "has_bearer -> OAuth2PasswordBearer: reads the credentials of an HTTP request",
    has_key: "has_key -> APIKeyHeader: reads the credentials of an HTTP request",
    Paginated: "'page' is no dependency",
}


@pytest.mark.parametrize("call", REFUSED, ids=lambda call: call.__name__)
def test_a_dependency_that_reads_the_request_is_refused_with_the_chain(call: Callable[..., Any]) -> None:
    def get_service(dependency: Annotated[Any, Depends(call)]) -> None: ...

    with pytest.raises(WorkerRegistrationError) as refused:

        @JobRouter(namespace="mail").job("send")
        async def send(job: Job, service: Annotated[None, Depends(get_service)]) -> None: ...

    assert f"send -> get_service -> {call.__name__}" in str(refused.value)
    assert REFUSED[call] in str(refused.value)
    assert "'mail.send'" in str(refused.value)
    assert refused.value.job_name == "mail.send"


def test_a_parameter_of_the_handler_itself() -> None:
    with pytest.raises(WorkerRegistrationError, match="send: 'page' is no dependency"):

        @job("send")
        async def send(job: Job, page: int) -> None: ...


def test_a_handler_that_forgot_the_job() -> None:
    with pytest.raises(WorkerRegistrationError, match="first parameter takes the job; 'user' cannot"):

        @job("send")
        async def send(user: Annotated[str, Depends(get_user)]) -> None: ...


def test_a_handler_without_parameters() -> None:
    with pytest.raises(WorkerRegistrationError, match="a handler takes one argument, the job"):

        @job("send")
        async def send() -> None: ...


def test_the_constructor_of_a_class() -> None:
    with pytest.raises(WorkerRegistrationError, match="Billing: 'page' is no dependency"):

        @job_controller("billing")
        class Billing:
            def __init__(self, page: int) -> None: ...

            @job("charge")
            async def charge(self, job: Job) -> None: ...


def test_a_name_that_cannot_be_found() -> None:
    def get_service(dependency: Annotated[str, Depends(nowhere)]) -> None: ...  # noqa: F821

    with pytest.raises(WorkerRegistrationError, match=r"send -> get_service: .*'nowhere' is not defined"):

        @job("send")
        async def send(job: Job, service: Annotated[None, Depends(get_service)]) -> None: ...


def test_a_class_without_the_method() -> None:
    with pytest.raises(WorkerRegistrationError, match=r"ProcessOrder has no method handle\(self, job\)"):

        @job("process-order")
        class ProcessOrder:
            async def process(self, job: Job) -> None: ...


def test_a_controller_without_jobs() -> None:
    with pytest.raises(WorkerRegistrationError, match="Billing has no method marked with job or cron"):

        @job_controller("billing")
        class Billing:
            async def charge(self, job: Job) -> None: ...


def test_a_method_given_to_a_router() -> None:
    jobs = JobRouter(namespace="billing")
    with pytest.raises(WorkerRegistrationError, match=r"Billing.charge is a method: .*job_controller"):

        class Billing:
            @jobs.job("charge")
            async def charge(self, job: Job) -> None: ...


@pytest.mark.parametrize("decorator", [job, cron, JobRouter().job, JobRouter().cron])
def test_a_decorator_without_its_argument(decorator: Any) -> None:
    with pytest.raises(ConfigurationError, match="job takes a name and cron an expression"):

        @decorator
        async def send(job: Job) -> None: ...


def test_something_that_is_neither_a_function_nor_a_class() -> None:
    with pytest.raises(WorkerRegistrationError, match="a job is a function or a class, not 'send'"):
        job("send")("send")


def test_a_generator_function() -> None:
    with pytest.raises(WorkerRegistrationError, match=r"'send' cannot be used: send: it contains a yield"):

        @job("send")
        async def send(job: Job, user: Annotated[str, Depends(get_user)]) -> Any:
            yield user


def test_a_method_that_is_a_generator_function() -> None:
    with pytest.raises(WorkerRegistrationError, match="it contains a yield"):

        @job_controller("billing")
        class Billing:
            @job("charge")
            def charge(self, job: Job) -> Any:
                yield job.data


def test_a_class_whose_method_is_a_generator_function() -> None:
    with pytest.raises(WorkerRegistrationError, match="it contains a yield"):

        @JobRouter().job("process-order")
        class ProcessOrder:
            async def handle(self, job: Job) -> Any:
                yield job.data


class Rendering:
    def handle(self, job: Job) -> None: ...


def needs_user(job: Job, user: Annotated[str, Depends(get_user)]) -> None: ...


async def alone(job: Job) -> None: ...


@pytest.mark.parametrize("declared", [Rendering, needs_user])
def test_a_child_process_has_no_application(declared: Any) -> None:
    with pytest.raises(WorkerRegistrationError, match="without the application and its dependencies"):
        JobRouter().job("render", mode="process")(declared)


def test_an_async_def_needs_no_thread() -> None:
    with pytest.raises(WorkerRegistrationError, match="mode='thread' is for def"):
        JobRouter().job("render", mode="thread")(alone)
