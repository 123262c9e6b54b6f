"""The routes of the service. Whatever a client sends, the answer is JSON with a reason, and never a traceback."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mlcl._version import __version__
from mlcl.errors import InputError, one_line
from mlcl.integrations.serving.counters import Counters
from mlcl.integrations.serving.tagger import Tagger

LOG = logging.getLogger("mlcl.serve")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
ROUTES = ("/", "/predict", "/batch", "/health", "/version", "/metrics", "/openapi.json")


class Refused(Exception):
    """A request that is answered with a status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def make_app(tagger: Tagger, *, workers: int = 1) -> FastAPI:
    """Return the application: one model, ``workers`` threads that decode and compute.

    Args:
        tagger: the model, with its limits.
        workers: threads at work at once; others wait.
    """
    app = FastAPI(title="mlcl", version=__version__, docs_url=None, redoc_url=None)
    counters = Counters()
    _add_pages(app, tagger, counters)
    _add_predictions(app, tagger, counters, ThreadPoolExecutor(workers, thread_name_prefix="mlcl-serve"))
    _add_refusals(app)
    _add_guard(app, counters, waiting=tagger.limits.waiting)
    return app


def _add_pages(app: FastAPI, tagger: Tagger, counters: Counters) -> None:
    """Add what the service says of itself."""
    page = (resources.files("mlcl.integrations.serving") / "page.html").read_text(encoding="utf-8")

    @app.get("/", response_model=None, response_class=HTMLResponse, summary="A page to try the model.")
    async def home() -> str:
        return page

    @app.get("/health", response_model=None, summary="Whether the service is up.")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/version", response_model=None, summary="Which model this is, its labels and what it takes.")
    async def version() -> dict[str, Any]:
        return tagger.about()

    @app.get(
        "/metrics",
        response_model=None,
        response_class=PlainTextResponse,
        summary="Counters, in the format of Prometheus.",
    )
    async def metrics() -> Response:
        return PlainTextResponse(counters.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_predictions(app: FastAPI, tagger: Tagger, counters: Counters, pool: ThreadPoolExecutor) -> None:
    """Add the routes that tag: one item, or a batch."""
    limits = tagger.limits

    async def answer(read: Callable[[float], Any]) -> list[dict[str, Any]]:
        """Decode and tag in a thread of the pool, within the time that is allowed; ``read`` is given its end."""
        end = time.monotonic() + limits.seconds

        def work() -> list[dict[str, Any]]:
            return tagger.tag(read(end))

        try:
            async with asyncio.timeout(limits.seconds):
                found = await asyncio.get_running_loop().run_in_executor(pool, work)
        except InputError as error:
            raise Refused(400, one_line(error, limit=300)) from None
        except TimeoutError:
            raise Refused(503, f"no answer within {limits.seconds:g} seconds") from None
        counters.tagged(len(found), sum(len(each["tags"]) for each in found))
        return found

    @app.post(
        "/predict",
        response_model=None,
        summary='One image (its bytes are the body) or {"vector": [...]}: tags.',
    )
    async def predict(request: Request) -> dict[str, Any]:
        kind = media_type(request)
        if kind.startswith("image/") or kind == "application/octet-stream":
            image = await body(request, min(limits.image_bytes, limits.body_bytes), limits.seconds)
            return (await answer(lambda _: tagger.images([image])))[0]
        if kind != "application/json":
            raise Refused(415, "the content type must be that of an image, or application/json with a vector")
        content = parse(await body(request, limits.body_bytes, limits.seconds), "vector")
        return (await answer(lambda _: tagger.vectors([content["vector"]])))[0]

    @app.post(
        "/batch",
        response_model=None,
        summary='{"images": [base64, ...]} or {"vectors": [[...], ...]}: tags of each.',
    )
    async def batch(request: Request) -> dict[str, Any]:
        if media_type(request) != "application/json":
            raise Refused(415, "the content type must be application/json")
        content = parse(await body(request, limits.body_bytes, limits.seconds), "images", "vectors")
        ((name, values),) = content.items()
        if not isinstance(values, list) or not 1 <= len(values) <= limits.items:
            raise Refused(400, f"{name} must be a list of 1 to {limits.items} items")
        if name == "vectors":
            return {"results": await answer(lambda _: tagger.vectors(values))}
        encoded = [decoded(value, place) for place, value in enumerate(values)]
        return {"results": await answer(lambda end: tagger.images(encoded, end=end))}


def _add_refusals(app: FastAPI) -> None:
    """Answer what is refused with a status and a reason."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return reason(error.status, error.reason)

    @app.exception_handler(HTTPException)
    async def not_here(_: Request, error: HTTPException) -> JSONResponse:
        return reason(error.status_code, one_line(error.detail, limit=300))


def _add_guard(app: FastAPI, counters: Counters, *, waiting: int) -> None:
    """Put a guard before all routes; at most ``waiting`` requests wait for an answer."""

    @app.middleware("http")
    async def guard(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        """Count every request, turn away what is too much, and let no error out as it is."""
        started = time.perf_counter()
        route = request.url.path if request.url.path in ROUTES else "other"
        if request.method == "POST" and not counters.enter(waiting):
            response: Response = reason(503, f"{waiting} requests are waiting already; try again later")
            response.headers["Retry-After"] = "1"
        else:
            try:
                response = await call(request)
            except ClientDisconnect:
                response = reason(400, "the client has gone")
            except Exception:
                LOG.exception("a request to %s failed", route)
                response = reason(500, "internal error")
            finally:
                if request.method == "POST":
                    counters.leave()
        counters.seen(route, response.status_code, time.perf_counter() - started)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response


def reason(status: int, words: str) -> JSONResponse:
    """Return a refusal: a status and one sentence."""
    return JSONResponse({"error": words}, status_code=status)


def media_type(request: Request) -> str:
    """Return the content type of a request without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def body(request: Request, limit: int, seconds: float) -> bytes:
    """Read a request of at most so many bytes, within so many seconds."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise Refused(413, f"the request has {declared[:20]} bytes; at most {limit} were expected")
    found = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                found += chunk
                if len(found) > limit:
                    raise Refused(413, f"the request has more than {limit} bytes")
    except TimeoutError:
        raise Refused(408, f"the request was not complete within {seconds:g} seconds") from None
    return bytes(found)


def parse(data: bytes, *names: str) -> dict[str, Any]:
    """Return a JSON object with exactly one of some fields, and no other.

    >>> parse(b'{"vector": [1, 2]}', "vector")
    {'vector': [1, 2]}
    """
    expected = " or ".join(repr(name) for name in names)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):  # of bytes that are no UTF-8, too
        raise Refused(400, f"the request is no JSON; expected an object with {expected}") from None
    if not isinstance(found, dict) or len(found) != 1 or next(iter(found)) not in names:
        raise Refused(400, f"the request is no JSON object with {expected} alone")
    return found


def decoded(value: object, place: int) -> bytes:
    """Return the bytes of an image in base64."""
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise Refused(400, f"image {place} is not text in base64")
