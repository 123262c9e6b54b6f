"""``mlcl serve``: a finished run as a service over HTTP."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mlcl.cli.messages import note
from mlcl.cli.verbs import verb_parser
from mlcl.errors import InputError, check_int


def main(arguments: list[str]) -> int:
    """Serve: ``mlcl serve DIR [--host H] [--port N] [--workers N]``."""
    parser = verb_parser(
        "serve",
        "Serve a finished run over HTTP until SIGTERM: POST an image or a vector to /predict, several to /batch; "
        "/ is a page to try it, /health, /version and /metrics (Prometheus) are for machines. Needs mlcl[serve].",
    )
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the folder of the run; its current version is used"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine)"
    )
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port (default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="threads that compute (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    check_int("--port", given.port, 0)
    check_int("--workers", given.workers, 1)
    if given.port > 65535:
        raise InputError(f"--port is {given.port}; expected a number up to 65535.")
    require_serve()
    from mlcl.integrations.serving.server import serve

    def announce(url: str) -> None:
        note(f"serving {given.folder} on {url}; stop with Ctrl-C")

    serve(given.folder, host=given.host, port=given.port, workers=given.workers, announce=announce)
    return 0


def require_serve() -> None:
    """Raise an `InputError` that says what to install, unless FastAPI and uvicorn are there."""
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise InputError("mlcl serve needs FastAPI and uvicorn; install them with: pip install 'mlcl[serve]'")
