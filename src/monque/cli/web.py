"""`monque web`."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monque import Monque
from monque.cli.link import ENDS_WITHIN, LOADED, Link
from monque.cli.listen import Ports, health_server
from monque.cli.log import FORMATS, LEVELS, set_up_logging
from monque.cli.session import Database, connects, takes_app, who
from monque.cli.target import find_idle

if TYPE_CHECKING:
    from monque.web import Dashboard
    from monque.web.access.key import Key

logger = logging.getLogger("monque.cli")

# How long the process may take to end, for its supervisor: two seconds are for clients, the rest for a busy
# machine.
LATEST = 5.0

_PASSWORD, _TOKEN = "MONQUE_WEB_PASSWORD", "MONQUE_WEB_TOKEN"
_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The address and the settings of a served dashboard."""

    host: str
    port: int
    health_port: int | None = None
    certfile: Path | None = None
    keyfile: Path | None = None
    proxy_headers: bool = False
    opens_browser: bool = False
    app: dict[str, Any] = field(default_factory=dict, repr=False)
    """The arguments of `dashboard`; its auth may hold a password."""


@click.command()
@takes_app
@connects
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="0: any free one."
)
@click.option(
    "--health-port", type=click.IntRange(1, 65535), help="Answer /healthz and /readyz on this port, too."
)
@click.option("--read-only", is_flag=True, help="Refuse all changes.")
@click.option(
    "--allow-enqueue", is_flag=True, help="Let users store any job, and store and edit any schedule."
)
@click.option("--no-ui", is_flag=True, help="Serve the API without the pages.")
@click.option("--open", "opens_browser", is_flag=True, help="Open it in the browser.")
@click.option("--root-path", metavar="PATH", help="The path at which a proxy serves it, for example /monque.")
@click.option("--title", help="The title of the pages. Default: Monque.")
@click.option("--badge", help="A word beside the title, for example production.")
@click.option(
    "--user", metavar="NAME", help=f"Require this name and its password, from {_PASSWORD} or typed."
)
@click.option("--password-file", type=_FILE, help="The file that holds the password of --user.")
@click.option("--certfile", type=_FILE, help="Serve HTTPS with this certificate.")
@click.option("--keyfile", type=_FILE, help="The key of the certificate.")
@click.option(
    "--proxy-headers",
    is_flag=True,
    help="Trust X-Forwarded-For and -Proto of a proxy on this machine, or of FORWARDED_ALLOW_IPS.",
)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--supervised", type=int, hidden=True)
def web(
    database: Database,
    user: str | None,
    password_file: Path | None,
    log_level: str,
    log_format: str,
    supervised: int | None,
    **given: Any,
) -> None:
    """Serve the dashboard of the jobs and its HTTP API; no job is run.

    With a target it has the options of its Monque and knows the types of its workers. Without one it only
    looks: it creates no index and recovers no job.

    Only this machine is let in, and only with the key in the link that is printed, unless there is a --user
    or a token in MONQUE_WEB_TOKEN. An address that others can reach needs one of these. The key is that of
    MONQUE_WEB_KEY, or of a file that only you can read; programs send it as "Authorization: Bearer KEY".

    \b
    Examples:
      monque web --uri mongodb://localhost:27017/shop
      monque web shop.jobs:monque --read-only
      monque web shop.jobs:monque --host 0.0.0.0 --user ada --certfile cert.pem --keyfile key.pem
    """
    require_server()
    set_up_logging(log_level, log_format)
    # The server's own messages tell of its process and its socket; ours say the address.
    logging.getLogger("uvicorn").setLevel(logging.DEBUG if log_level == "debug" else logging.WARNING)
    serving = _serving(_auth(user, password_file), **given)
    asyncio.run(_serve(database, serving, supervised))


def _serving(auth: Any, *, no_ui: bool, **given: Any) -> Serving:
    """Return the settings that the options give.

    Raises:
        click.UsageError: They do not fit together.
    """
    names = ("read_only", "allow_enqueue", "title", "badge", "root_path")
    app = {"ui": not no_ui, "auth": auth, **{name: given.pop(name) for name in names}}
    serving = Serving(app={name: value for name, value in app.items() if value is not None}, **given)
    if auth is None and not _is_loopback(serving.host):
        raise click.UsageError(
            f"others can reach {serving.host}, so callers must say who they are: give --user NAME, or set "
            f"{_TOKEN}"
        )
    if (serving.certfile is None) is not (serving.keyfile is None):
        raise click.UsageError("--certfile and --keyfile belong together")
    for file in (serving.certfile, serving.keyfile):
        if file is not None and not file.is_file():
            raise click.UsageError(f"there is no file {file}")
    return serving


def require_server(command: str = "monque web") -> None:
    """Say which package *command* lacks, if it does.

    Raises:
        click.ClickException: Starlette or uvicorn is not installed.
    """
    try:
        import starlette  # noqa: F401 - to say what is missing
        import uvicorn  # noqa: F401 - as above
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise click.ClickException(
            f"{command} needs {error.name}; install it with: pip install 'pymonque[web]'"
        ) from error


def _auth(user: str | None, password_file: Path | None) -> Any:
    """Return the way in which callers say who they are; None if nobody is asked."""
    from monque.web import BasicAuth, BearerAuth, FirstOf

    if user is None and password_file is not None:
        raise click.UsageError("--password-file belongs to --user NAME")
    token = os.environ.get(_TOKEN)
    auths: list[Any] = []
    if user is not None:
        auths.append(BasicAuth({user: _password(user, password_file)}))
    if token:
        auths.append(BearerAuth({"token": token}))
    return FirstOf(*auths) if len(auths) > 1 else auths[0] if auths else None


def _password(user: str, file: Path | None) -> str:
    """The password of *user*; never an argument, which everybody on the machine can see."""
    if file is not None:
        password = _read(file)
    elif (given := os.environ.get(_PASSWORD)) is not None:
        password = given
    else:
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    if not password:
        raise click.UsageError(f"the password of {user} is empty")
    return password


def _read(file: Path) -> str:
    try:
        return file.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the password cannot be read from {file}: {error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _serve(database: Database, serving: Serving, link: int | None) -> None:
    """Serve until SIGINT or SIGTERM, or until the supervisor at the other end of the *link* is gone."""
    from monque.web.server import serve

    with _listening_socket(serving) as listener:
        async with _opened(database) as monque, _board(monque, serving) as (app, key):
            server = _server(app, serving)  # before anybody is told an address that nobody serves
            ports = Ports(health=serving.health_port, host=serving.host)
            async with _supervised(link, server), health_server(ports, lambda: _not_served(server)):
                _tell(serving, listener, key)
                await serve(server, listener)


def _not_served(server: Any) -> str | None:
    """Return the reason why requests are not answered; pages say themselves that the database is away."""
    return None if server.started and not server.should_exit else "the dashboard is starting or stopping"


@asynccontextmanager
async def _board(monque: Monque, serving: Serving) -> AsyncIterator[tuple[Dashboard, Key | None]]:
    """The dashboard, and the key that it asks for if nobody has to say who they are."""
    from monque.web import dashboard
    from monque.web.access.key import KeyAuth, key_of_process

    key = None if "auth" in serving.app else key_of_process()
    options = serving.app if key is None else {**serving.app, "auth": KeyAuth(key)}
    async with dashboard(monque, **options) as app:
        yield app, key


@asynccontextmanager
async def _supervised(descriptor: int | None, server: Any) -> AsyncIterator[None]:
    if descriptor is None:
        yield
        return

    def end() -> None:
        server.should_exit = True

    async with Link.attached(descriptor) as link:
        link.say(f"{ENDS_WITHIN} {LATEST}")
        link.say(LOADED)
        async with link.kept(lambda: bool(server.started), lambda: None, end):
            yield


def _server(app: Any, serving: Serving) -> Any:
    from monque.web.server import configure

    try:
        return configure(
            app,
            proxy_headers=serving.proxy_headers,
            ssl_certfile=serving.certfile,
            ssl_keyfile=serving.keyfile,
        )
    except OSError as error:  # an SSLError is one
        raise click.UsageError(
            f"{serving.certfile} and {serving.keyfile} are no certificate and its key in PEM: {error}"
        ) from error


def _listening_socket(serving: Serving) -> socket.socket:
    from monque.web.server import listen

    try:
        return listen(serving.host, serving.port)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {serving.host}, port {serving.port}: {error.strerror}; "
            "choose another --host or --port"
        ) from error


def _tell(serving: Serving, listener: socket.socket, key: Key | None) -> None:
    from monque.web.server import address_of

    scheme = "http" if serving.certfile is None else "https"
    address = address_of(listener, serving.host, scheme=scheme, prefix=serving.app.get("root_path", ""))
    address = address if key is None else key.link(address)
    click.echo(f"Monque at {address} (Ctrl-C ends it)", err=True)
    if scheme == "http" and not _is_loopback(serving.host) and not serving.proxy_headers:
        logger.warning("passwords and tokens cross the network in the clear; give --certfile, or use a proxy")
    if serving.opens_browser:
        webbrowser.open(address)


@asynccontextmanager
async def _opened(database: Database) -> AsyncIterator[Monque]:
    """The Monque to serve, open: that of the app, or one that changes nothing by itself."""
    monque, life = await _found(database)
    own = monque.options
    options = replace(
        own,
        collection=own.collection if database.collection is None else database.collection,
        create_indexes=own.create_indexes and database.app is not None,
        recover_stale_jobs=False,
        instance_id=who("web"),
    )
    monque.reconfigure(database=database.uri, options=options)
    async with life():
        yield monque


async def _found(database: Database) -> tuple[Monque, Callable[[], AbstractAsyncContextManager[object]]]:
    if database.app is not None:
        return await find_idle(database.app)
    database.require_data()
    monque = Monque(database.uri)
    return monque, lambda: monque
