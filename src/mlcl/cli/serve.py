"""``mlcl serve``: a tagger as a service over HTTP."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from pathlib import Path

from mlcl.cli.messages import note
from mlcl.errors import InputError, check_int
from mlcl.files import read_bounded

TOKEN = "MLCL_TOKEN"  # noqa: S105  (the name of a variable)


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    follow: bool = False,
    token: str | None = None,
    no_token: bool = False,
    host_names: list[str] = [],  # noqa: B006
    prefix: str = "",
) -> int:
    """Serve a tagger over HTTP until SIGTERM.

    POST an image, a vector or a text to /predict, several to /batch; / is a page to try it; /live, /ready, /health,
    /version and /metrics (Prometheus) are for machines. Needs mlcl[serve].

    Args:
        folder (DIR): the tagger; its version in use is served.
        host (HOST): address to listen on.
        port (N): port.
        workers (N): processes that compute.
        follow: use another version, or changed files, without a restart.
        token (TOKEN): answer only requests with the header Authorization: Bearer TOKEN; @FILE reads it from a file, and
            without the option it is that of the variable MLCL_TOKEN, if set.
        no_token: let everybody ask who can reach --host, without a token.
        host_names (NAME): names by which clients call this service, beside its addresses, localhost and the name of the
            machine; * for any.
        prefix (/PATH): path under which a proxy shows the service.
    """
    check_int("--port", port, 0)
    check_int("--workers", workers, 1)
    if port > 65535:
        raise InputError(f"--port is {port}; expected a number up to 65535.")
    if not re.fullmatch(r"(/[\w.~-]+)*", prefix, re.ASCII):
        raise InputError(f"--prefix is {prefix!r}; expected a path such as /tagger.")
    require_serve()
    from mlcl.integrations.serving import server
    from mlcl.integrations.serving.app import Door

    secret = find_token(token)
    check_reach(host, secret, without=no_token)
    names = {name.lower() for name in ("localhost", socket.gethostname(), host, *host_names)}

    def announce(url: str) -> None:
        note(f"serving {folder} on {url}{prefix}; stop with Ctrl-C")

    server.serve(
        folder,
        host=host,
        port=port,
        workers=workers,
        door=Door(names, secret, prefix),
        follow=follow,
        announce=announce,
        report=note,
    )
    return 0


def find_token(given: str | None) -> str | None:
    """Return the token that was given, or that of the environment; one that fits no header is an `InputError`."""
    found = os.environ.get(TOKEN) if given is None else given
    if found is None:
        return None
    if found.startswith("@"):
        content = read_bounded(Path(found[1:]), limit=4096, expected="a token")
        found = content.decode(errors="replace").strip()
    if not re.fullmatch(r"[!-~]+", found):
        raise InputError("--token is empty, or has characters other than letters, digits and signs of ASCII.")
    return found


def check_reach(host: str, token: str | None, *, without: bool) -> None:
    """Refuse to be open to other machines unless that was said."""
    from mlcl.integrations.serving.limits import is_loopback

    if token is not None and without:
        raise InputError(
            f"a token is given (--token or {TOKEN}) and --no-token as well; expected one of them."
        )
    if token is None and not without and not is_loopback(host):
        raise InputError(
            f"--host {host} lets other machines ask; give a token (--token TOKEN, --token @FILE or the variable "
            f"{TOKEN}), or --no-token to let everybody ask."
        )


def require_serve() -> None:
    """Raise an `InputError` that says what to install, unless FastAPI and uvicorn are there."""
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise InputError("mlcl serve needs FastAPI and uvicorn; install them with: pip install 'mlcl[serve]'")
