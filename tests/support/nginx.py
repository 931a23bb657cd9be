"""A real nginx, in front of a server on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.ports import free_port
from support.serving import is_up, running

# Users have no `sbin` on their PATH.
_NGINX = shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))

needs_nginx = pytest.mark.skipif(
    _NGINX is None, reason="there is no nginx; on Debian: sudo apt-get install nginx (as root, `make nginx`)"
)

# One process in the foreground, which writes nowhere but into its folder.
_CONFIGURATION = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port};
        {inside}
    }}
}}
"""


@asynccontextmanager
async def nginx(inside: str, folder: Path) -> AsyncIterator[str]:
    """Run nginx with this text inside of its one server; its address, without a slash at the end."""
    assert _NGINX is not None
    port = free_port()
    (folder / "nginx.conf").write_text(_CONFIGURATION.format(port=port, inside=inside))
    async with running(
        _NGINX, "-e", "stderr", "-p", str(folder), "-c", "nginx.conf", cwd=folder, env=dict(os.environ)
    ) as child:
        await is_up(child, port)
        yield f"http://127.0.0.1:{port}"
