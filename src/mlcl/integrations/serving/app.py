"""The routes of the service. Whatever a client sends, the answer is JSON with a reason, and never a traceback."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import logging
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mlcl._version import __version__
from mlcl.errors import one_line
from mlcl.integrations.serving.limits import FREE, Budget, Refusal, busy, is_known_host
from mlcl.integrations.serving.workers import Workers

LOG = logging.getLogger("mlcl.serve")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
}
RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
OPEN = ("/", "/live", "/ready", "/health")
"""Routes without a token: they say nothing about the model. The page asks for the token."""
ROUTES = (*OPEN, "/predict", "/batch", "/version", "/metrics", "/openapi.json")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg=="
"""The smallest image, for examples."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram of seconds."""
COUNTED = (
    ("mlcl_requests_total", "counter", "Requests by route and status."),
    ("mlcl_request_seconds", "histogram", "Seconds per request that was tagged."),
    ("mlcl_inputs_total", "counter", "Inputs that were tagged."),
    ("mlcl_tags_total", "counter", "Tags that they got."),
)
"""What `Counters` count: name, kind and description."""


class Counters:
    """Requests by route and status, the seconds of those that were tagged, and their inputs: for Prometheus."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        parts = [*(f'_bucket{{le="{end:g}"}}' for end in BUCKETS), '_bucket{le="+Inf"}', "_sum", "_count"]
        names = [*(f"mlcl_request_seconds{part}" for part in parts), "mlcl_inputs_total", "mlcl_tags_total"]
        self._values: dict[str, float] = dict.fromkeys(names, 0)

    def _add(self, more: dict[str, float]) -> None:
        with self._lock:
            for name, value in more.items():
                self._values[name] = self._values.get(name, 0) + value

    def seen(self, route: str, status: int) -> None:
        """Count one request; ``route`` must be one of few."""
        self._add({f'mlcl_requests_total{{route="{route}",status="{status}"}}': 1})

    def tagged(self, seconds: float, inputs: int, tags: int) -> None:
        """Count an answer: refusals, which are quick, do not hide how long answers take."""
        ends = [*(f"{end:g}" for end in BUCKETS if seconds <= end), "+Inf"]
        found: dict[str, float] = {f'mlcl_request_seconds_bucket{{le="{end}"}}': 1 for end in ends}
        found |= {"mlcl_request_seconds_sum": seconds, "mlcl_request_seconds_count": 1}
        self._add(found | {"mlcl_inputs_total": inputs, "mlcl_tags_total": tags})

    def text(self, more: Iterable[tuple[str, str, str, float]] = ()) -> str:
        """Return all values in the text format of Prometheus; ``more`` are name, kind, description, value of others."""
        with self._lock:
            values = dict(self._values)
        others = list(more)
        values |= {name: value for name, *_, value in others}
        lines = []
        for name, kind, words in (*COUNTED, *(other[:3] for other in others)):
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
            lines += [f"{key} {round(value, 6)}" for key, value in values.items() if key.startswith(name)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Door:
    """Who is let in.

    Attributes:
        names: the hosts that the service is known by, beside its addresses; ``*`` for any.
        token: what requests must carry; None for nothing.
        prefix: under which a proxy shows the service, such as ``/tagger``.
        counters: of all requests.
    """

    names: Collection[str] = ("localhost",)
    token: str | None = None
    prefix: str = ""
    counters: Counters = field(default_factory=Counters)

    def route(self, path: str) -> str:
        """Return a path without the prefix, which a proxy may have taken off already.

        >>> door = Door(prefix="/tagger")
        >>> door.route("/tagger/predict"), door.route("/predict"), door.route("/tagger"), door.route("/taggers")
        ('/predict', '/predict', '/', '/taggers')
        """
        found = path.removeprefix(self.prefix) or "/"
        return found if found.startswith("/") else path

    def refusal(self, route: str, headers: dict[bytes, bytes]) -> Refusal | None:
        """Return why a request is not let in."""
        host = headers.get(b"host")  # HTTP/1.0 needs none
        if host is not None and not is_known_host(host.decode("latin-1"), self.names):
            return Refusal(421, "this host is not known here; start the service with --host-names NAME")
        if self.token is None or route in OPEN:
            return None
        scheme, _, sent = headers.get(b"authorization", b"").partition(b" ")
        right = hmac.compare_digest(sent.strip(), self.token.encode())
        if right and scheme.lower() == b"bearer":
            return None
        words = "a token is needed: send the header Authorization: Bearer TOKEN"
        return Refusal(401, words, headers={"WWW-Authenticate": "Bearer"})


def make_app(workers: Workers, *, door: Door | None = None) -> ASGIApp:
    """Return the application."""
    door = door or Door()
    app = FastAPI(
        title="mlcl",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": door.prefix or "/"}],
    )
    _add_pages(app, workers, door)
    _add_predictions(app, workers, door.counters)
    _add_refusals(app)
    return Guard(app, door)


def _add_pages(app: FastAPI, workers: Workers, door: Door) -> None:
    """Add what the service says of itself."""
    page = (resources.files("mlcl.integrations.serving") / "page.html").read_text(encoding="utf-8")
    page = page.replace("<base>", f'<base href="{html.escape(door.prefix)}/">' if door.prefix else "")

    @app.get("/", response_model=None, response_class=HTMLResponse, summary="A page to try the model.")
    async def home() -> str:
        return page

    @app.get("/health", response_model=None, summary="Whether the service is up, as /live.")
    @app.get("/live", response_model=None, summary="Whether the service is up; if not, start it again.")
    async def live() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready", response_model=None, summary="Whether requests are answered now; if not, send none.")
    async def ready() -> dict[str, str]:
        if not workers.ready:
            raise busy("no model is ready for more requests", workers.wait())
        return {"status": "ok"}

    @app.get("/version", response_model=None, summary="Which model this is, its labels and what it takes.")
    async def version() -> dict[str, Any]:
        return workers.about

    @app.get(
        "/metrics",
        response_model=None,
        response_class=PlainTextResponse,
        summary="Counters, in the format of Prometheus.",
    )
    async def metrics() -> Response:
        more = (
            ("mlcl_requests_waiting", "gauge", "Requests that wait for a process.", workers.waiting),
            ("mlcl_wait_seconds", "gauge", "Seconds that one more would wait.", round(workers.wait(), 6)),
            ("mlcl_ready", "gauge", "Whether requests are answered now.", int(workers.ready)),
            ("mlcl_reloads_total", "counter", "Models that were loaded while serving.", workers.reloads),
            ("mlcl_reload_failures_total", "counter", "Models that could not be loaded.", workers.failures),
            ("mlcl_restarts_total", "counter", "Processes that ended and were replaced.", workers.restarts),
        )
        return PlainTextResponse(
            door.counters.text(more), media_type="text/plain; version=0.0.4; charset=utf-8"
        )


def _add_predictions(app: FastAPI, workers: Workers, counters: Counters) -> None:
    """Add the routes that tag: one input, or a batch."""
    limits = workers.limits
    budget = Budget(limits.waiting_bytes)

    async def answer(request: Request, kind: str) -> Response:
        started = time.perf_counter()
        takes = workers.about["takes"]
        if kind != "batch" and (kind == "image") != (takes == "images"):
            raise Refusal(400, f"the model takes {takes}, not {'images' if kind == 'image' else 'JSON'}")
        workers.check(kind, declared(request))
        async with body(request, limits.body(kind, workers.about), limits.seconds, budget) as data:
            found = await workers.ask(kind, data, gone=request.is_disconnected)
        if found.status == 200:
            counters.tagged(time.perf_counter() - started, found.inputs, found.tags)
        return Response(found.body, status_code=found.status, media_type="application/json")

    @app.post(
        "/predict",
        response_model=None,
        summary='One image (its bytes are the body), {"vector": [...]} or {"text": "..."}: tags.',
        openapi_extra=openapi_of(workers.about, many=False),
    )
    async def predict(request: Request) -> Response:
        kind = media_type(request)
        if kind.startswith("image/") or kind == "application/octet-stream":
            return await answer(request, "image")
        if kind != "application/json":
            raise Refusal(415, "the content type must be that of an image, or application/json")
        return await answer(request, "item")

    @app.post(
        "/batch",
        response_model=None,
        summary='{"images": [base64, ...]}, {"vectors": [[...], ...]} or {"texts": [...]}: tags of each.',
        openapi_extra=openapi_of(workers.about, many=True),
    )
    async def batch(request: Request) -> Response:
        if media_type(request) != "application/json":
            raise Refusal(415, "the content type must be application/json")
        return await answer(request, "batch")


def openapi_of(about: dict[str, Any], *, many: bool) -> dict[str, Any]:
    """Return what OpenAPI says of a request for tags, with an example that the model takes, and of the answer.

    Args:
        about: the model.
        many: whether it is a batch.
    """
    takes, shape = about["takes"], about["input_shape"]
    kinds: dict[str, tuple[dict[str, Any], Any]] = {
        "texts": ({"type": "string"}, "a text to tag"),
        "vectors": (
            {"type": "array", "items": {"type": "number"}, "minItems": shape[0], "maxItems": shape[0]},
            [0.0] * shape[0] if takes == "vectors" else [],
        ),
        "images": ({"type": "string", "contentEncoding": "base64"}, PIXEL),
    }
    one, example = kinds[takes]
    name = takes if many else takes.removesuffix("s")
    schema = {"type": "array", "items": one, "minItems": 1} if many else one
    asked: dict[str, Any] = {
        "application/json": {
            "schema": {"type": "object", "required": [name], "properties": {name: schema}},
            "example": {name: [example] if many else example},
        }
    }
    if takes == "images" and not many:
        asked = {"image/*": {"schema": {"type": "string", "format": "binary"}}}
    tags = {"type": "array", "items": {"type": "string"}}
    chances = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1}}
    item = {"type": "object", "properties": {"tags": tags, "probabilities": chances}}
    answer = {"type": "object", "properties": {"results": {"type": "array", "items": item}}} if many else item
    return {
        "requestBody": {"required": True, "content": asked},
        "responses": {
            "200": {"description": "Tags.", "content": {"application/json": {"schema": answer}}},
            "400": {"description": "What is wrong with the request, in one sentence."},
        },
    }


def _add_refusals(app: FastAPI) -> None:
    """Answer what is refused with a status and a reason."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> JSONResponse:
        return as_answer(error)

    @app.exception_handler(HTTPException)
    async def not_here(_: Request, error: HTTPException) -> JSONResponse:
        words = one_line(error.detail, limit=300)
        return as_answer(Refusal(error.status_code, words, headers=dict(error.headers or {})))

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> JSONResponse:
        return as_answer(Refusal(400, "the client has gone"))

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> JSONResponse:
        return as_answer(Refusal(500, "internal error"))


class Guard:
    """What every request passes: the door, the count, the headers of every answer. No error gets out as it is."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route, head = self._door.route(scope["path"]), scope["method"] == "HEAD"
        inner = {**scope, "path": route, "root_path": "", "method": "GET" if head else scope["method"]}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._door.counters.seen(route if route in ROUTES else "other", message["status"])
                message["headers"] = [*message["headers"], *RAW_HEADERS]
            elif head:
                message = {**message, "body": b""}
            await send(message)

        refusal = self._door.refusal(route, dict(scope["headers"]))
        try:
            await (as_answer(refusal) if refusal else self._app)(inner, receive, answer)
        except Exception:  # it has been answered
            LOG.exception("a request to %s failed", route if route in ROUTES else "another path")


def as_answer(refusal: Refusal) -> JSONResponse:
    """Return a refusal as an answer: a status and one sentence."""
    return JSONResponse({"error": refusal.reason}, status_code=refusal.status, headers={**refusal.headers})


def media_type(request: Request) -> str:
    """Return the content type of a request without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def declared(request: Request) -> int:
    """Return the bytes that a request says it has, or 0."""
    found = request.headers.get("content-length", "")[:20]
    return int(found) if found.isdecimal() else 0


@contextlib.asynccontextmanager
async def body(request: Request, limit: int, seconds: float, budget: Budget) -> AsyncIterator[bytes]:
    """Read a request of at most so many bytes, within so many seconds; they count as waiting until the answer."""
    if declared(request) > limit:
        raise Refusal(413, f"the request has {declared(request)} bytes; at most {limit} were expected")
    found, taken = bytearray(), 0
    try:
        try:
            async with asyncio.timeout(seconds):
                async for chunk in request.stream():
                    found += chunk
                    if len(found) > limit:
                        raise Refusal(413, f"the request has more than {limit} bytes")
                    more = max(0, len(found) - FREE) - taken
                    if not budget.take(more):
                        raise busy("too many large requests are waiting")
                    taken += more
        except TimeoutError:
            raise Refusal(408, f"the request was not complete within {seconds:g} seconds") from None
        yield bytes(found)
    finally:
        budget.left += taken
