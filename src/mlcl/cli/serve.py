"""``mlcl serve``: a tagger as a service over HTTP."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import socket
from pathlib import Path

from mlcl.cli.messages import note
from mlcl.cli.verbs import verb_parser
from mlcl.errors import InputError, check_int
from mlcl.files import read_bounded

TOKEN = "MLCL_TOKEN"  # noqa: S105  (the name of a variable)


def main(arguments: list[str]) -> int:
    """Serve: ``mlcl serve DIR [--host H] [--port N] [--workers N] [--token TOKEN] [--follow] ...``."""
    given = _parser().parse_args(arguments)
    check_int("--port", given.port, 0)
    check_int("--workers", given.workers, 1)
    if given.port > 65535:
        raise InputError(f"--port is {given.port}; expected a number up to 65535.")
    if not re.fullmatch(r"(/[\w.~-]+)*", given.prefix, re.ASCII):
        raise InputError(f"--prefix is {given.prefix!r}; expected a path such as /tagger.")
    require_serve()
    from mlcl.integrations.serving.app import Door
    from mlcl.integrations.serving.server import serve

    token = find_token(given.token)
    check_reach(given.host, token, without=given.no_token)
    names = {name.lower() for name in ("localhost", socket.gethostname(), given.host, *given.host_names)}

    def announce(url: str) -> None:
        note(f"serving {given.folder} on {url}{given.prefix}; stop with Ctrl-C")

    serve(
        given.folder,
        host=given.host,
        port=given.port,
        workers=given.workers,
        door=Door(names, token, given.prefix),
        follow=given.follow,
        announce=announce,
        report=note,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = verb_parser(
        "serve",
        "Serve a tagger over HTTP until SIGTERM: POST an image or a vector to /predict, several to /batch; / is a page "
        "to try it; /live, /ready, /health, /version and /metrics (Prometheus) are for machines. Needs mlcl[serve].",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the tagger; its version in use is served")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine)"
    )
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port (default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that compute (default: %(default)s)"
    )
    parser.add_argument(
        "--follow", action="store_true", help="use another version, or changed files, without a restart"
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help="answer only requests with the header Authorization: Bearer TOKEN; @FILE reads it from a file, and "
        f"without the option it is that of the variable {TOKEN}, if set",
    )
    parser.add_argument(
        "--no-token", action="store_true", help="let everybody ask who can reach --host, without a token"
    )
    parser.add_argument(
        "--host-names",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names by which clients call this service, beside its addresses, localhost and the name of the machine; "
        "* for any",
    )
    parser.add_argument(
        "--prefix", default="", metavar="/PATH", help="path under which a proxy shows the service"
    )
    return parser


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
