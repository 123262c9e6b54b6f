"""The service: what it answers, what it refuses, and a thousand hostile requests."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
import zlib

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image

from children import LIMIT, child
from helpers import label_settings, label_store
from mlcl.cli.main import main
from mlcl.datasets import load_dataset
from mlcl.errors import InputError
from mlcl.integrations.serving import server
from mlcl.integrations.serving.app import Refused, body, make_app
from mlcl.integrations.serving.server import listen
from mlcl.integrations.serving.tagger import Limits, Tagger
from mlcl.runs.run import run
from mlcl.taggers.predict import predict

SMALL = Limits(image_bytes=200_000, image_pixels=1_000_000, body_bytes=400_000, items=4)


class Client:
    """Calls an application in this process; an error that it lets out is one here too."""

    def __init__(self, app):
        self.app = app

    def request(self, method, path, **options):
        async def call():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://here", trust_env=False
            ) as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, **options):
        return self.request("POST", path, **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("served")
    found = {}
    for name, images in (("images", True), ("vectors", False)):
        store = label_store(base, name, [0, 1, 2, 3], images=images)
        train = {"epochs": 1, "batch_size": 16, "lr": 0.1}
        settings = label_settings(store, "er", images=images, train=train)
        found[name] = run(settings, out=base / f"{name}-run").folder, store
    return found


@pytest.fixture(scope="module")
def images(runs):
    return Client(make_app(Tagger(runs["images"][0], limits=SMALL)))


@pytest.fixture(scope="module")
def vectors(runs):
    return Client(make_app(Tagger(runs["vectors"][0], limits=SMALL)))


def encoded(pixels, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def pictures(store, count):
    """Images of a store as PNG files of the same size, so that nothing is lost on the way."""
    inputs = load_dataset(str(store)).test.inputs[:count]
    return [encoded(np.ascontiguousarray(image.transpose(1, 2, 0))) for image in inputs]


def bomb(width, height):
    """A PNG of a few bytes whose header promises many pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * 10_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_an_image_gets_the_scores_of_predict(images, runs, tmp_path):
    folder, store = runs["images"]
    files = pictures(store, 3)
    for number, data in enumerate(files):
        (tmp_path / f"{number}.png").write_bytes(data)
    expected = predict(folder, tmp_path)
    one = images.post("/predict", content=files[0], headers={"Content-Type": "image/png"})
    assert one.status_code == 200
    texts = [base64.b64encode(data).decode() for data in files]
    many = images.post("/batch", json={"images": texts}).json()["results"]
    assert len(many) == 3
    assert one.json()["tags"] == many[0]["tags"]
    for found, row in zip(many, expected.values, strict=True):
        assert list(found["probabilities"]) == list(expected.classes)
        assert np.allclose(list(found["probabilities"].values()), row, atol=2e-6)
        values = [tag["probability"] for tag in found["tags"]]
        assert values == sorted(values, reverse=True)


def test_vectors_get_the_scores_of_predict(vectors, runs, tmp_path):
    folder, store = runs["vectors"]
    rows = load_dataset(str(store)).test.inputs[:4]
    np.save(tmp_path / "rows.npy", rows)
    expected = predict(folder, tmp_path / "rows.npy").values
    many = vectors.post("/batch", json={"vectors": rows.tolist()}).json()["results"]
    assert np.allclose([list(found["probabilities"].values()) for found in many], expected, atol=2e-6)
    one = vectors.post("/predict", json={"vector": rows[0].tolist()}).json()
    assert np.allclose(list(one["probabilities"].values()), expected[0], atol=2e-6)


def test_what_machines_ask(images, runs):
    assert images.get("/health").json() == {"status": "ok"}
    about = images.get("/version").json()
    assert about["labels"] == ["ant", "bee", "cat", "dog"]
    assert about["takes"] == "images"
    assert str(runs["images"][0]) not in json.dumps(about)
    text = images.get("/metrics").text
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? [0-9.e+-]+')
    for line in text.splitlines():
        assert line.startswith(("# HELP mlcl_", "# TYPE mlcl_")) or sample.fullmatch(line), line
    assert 'mlcl_requests_total{route="/health",status="200"}' in text
    ends = [int(value) for value in re.findall(r'bucket\{le="[^"]+"\} (\d+)', text)]
    assert ends == sorted(ends)
    assert f"mlcl_request_seconds_count {ends[-1]}" in text
    page = images.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page.text)  # nothing from other hosts


PNG = {"Content-Type": "image/png"}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "words"),
    [
        ("/predict", b"", PNG, 400, "not an image"),
        ("/predict", b"hello", PNG, 400, "not an image"),
        ("/predict", b"%!PS-Adobe-3.0 EPSF-3.0\n", {"Content-Type": "image/eps"}, 400, "not an image"),
        ("/predict", b"/etc/passwd", {"Content-Type": "text/plain"}, 415, "content type"),
        ("/predict", b"x" * 300_000, PNG, 413, "bytes"),
        ("/predict", bomb(50_000, 50_000), PNG, 400, "not an image"),
        ("/predict", bomb(4_000, 4_000), PNG, 400, "4000 x 4000 pixels; at most 1000000"),
        ("/predict", b'{"vector": [1]}', JSON, 400, "takes images"),
        ("/predict", b'{"path": "/etc/passwd"}', JSON, 400, "'vector' alone"),
        ("/batch", b"{}", JSON, 400, "alone"),
        ("/batch", b"[" * 100_000, JSON, 400, "no JSON"),
        ("/batch", b'{"images": []}', JSON, 400, "1 to 4 items"),
        ("/batch", b'{"images": ["a","a","a","a","a"]}', JSON, 400, "1 to 4 items"),
        ("/batch", b'{"images": ["/etc/passwd"]}', JSON, 400, "base64"),
        ("/batch", b'{"images": [5]}', JSON, 400, "base64"),
        ("/batch", b'{"images": ["aGVsbG8="]}', JSON, 400, "not an image"),
        ("/absent", b"", {}, 404, "Not Found"),
        ("/health", b"", {}, 405, "Method Not Allowed"),
    ],
)
def test_what_is_no_image_is_refused_with_a_reason(path, content, headers, status, words, images):
    found = images.post(path, content=content, headers=headers)
    assert found.status_code == status, found.text
    assert words in found.json()["error"]


@pytest.mark.parametrize(
    "vector",
    [
        [],
        [1],
        ["1"] * 8,
        [True] * 8,
        [[1]] * 8,
        [None] * 8,
        "12345678",
        {"a": 1},
        [10**400] * 8,
        [1e39] * 8,
        7,
    ],
)
def test_what_is_no_vector_is_refused(vector, vectors):
    found = vectors.post("/predict", json={"vector": vector})
    assert found.status_code == 400, found.text
    assert "vectors" in found.json()["error"]
    nan = vectors.post("/predict", content=b'{"vector": [NaN, 1, 1, 1, 1, 1, 1, 1]}', headers=JSON)
    assert nan.status_code == 400


def hostile(rng, good):
    """One hostile request: method, path, body, headers."""
    path = str(
        rng.choice(
            ["/predict", "/batch", "/", "/metrics", "/../../etc/passwd", "/predict/%2e%2e", "/x" * 500]
        )
    )
    kind = str(
        rng.choice(
            ["image/png", "image/jpeg", "application/json", "application/octet-stream", "text/html", "x"]
        )
    )
    choice = rng.integers(8)
    if choice == 0:
        data = rng.bytes(int(rng.integers(0, 5000)))
    elif choice == 1:
        data = good[: int(rng.integers(1, len(good)))]
    elif choice == 2:
        changed = bytearray(good)
        for place in rng.integers(0, len(good), 20):
            changed[place] = int(rng.integers(256))
        data = bytes(changed)
    elif choice == 3:
        data = bomb(*rng.integers(1_001, 60_000, 2).tolist())
    elif choice == 4:
        data = b"GIF89a" + rng.bytes(200)
    elif choice == 5:
        value = rng.choice(
            np.array(["[" * 5000, '{"a":' * 5000, "9" * 9000, '"' + "\\ud800" * 99 + '"', "NaN"])
        )
        data = (b'{"images": [' + str(value).encode() + b"]}") if rng.random() < 0.5 else str(value).encode()
    elif choice == 6:
        text = base64.b64encode(rng.bytes(300)).decode()
        data = json.dumps(
            {str(rng.choice(["images", "vectors", "vector", "file"])): [text, None, {}]}
        ).encode()
    else:
        data = json.dumps({"vector": rng.normal(size=int(rng.integers(0, 40))).tolist()}).encode()
    return (
        str(rng.choice(["POST", "POST", "POST", "PUT", "DELETE", "GET"])),
        path,
        data,
        {"Content-Type": kind},
    )


@pytest.mark.slow
def test_a_thousand_hostile_requests_are_survived(images, runs):
    rng = np.random.default_rng(0)
    good = pictures(runs["images"][1], 1)[0]
    seen = set()
    for _ in range(1000):
        method, path, data, headers = hostile(rng, good)
        found = images.request(method, path, content=data, headers=headers)
        # A damaged image may still be one; nothing else is ever accepted, and nothing fails inside.
        assert found.status_code < 500, (method, path, data[:80], found.text)
        if found.status_code >= 400:
            assert isinstance(found.json()["error"], str)
            assert "Traceback" not in found.text
        seen.add(found.status_code)
    assert seen >= {400, 404, 405, 415}
    assert images.post("/predict", content=good, headers=PNG).status_code == 200
    assert "mlcl_requests_waiting 0" in images.get("/metrics").text


class Endless:
    """A request whose body never ends, or never comes."""

    def __init__(self, chunks):
        self.headers, self.chunks = {}, chunks

    async def stream(self):
        for chunk in self.chunks:
            yield chunk
        await asyncio.Event().wait()


def test_a_body_that_is_too_long_or_never_comes_is_given_up():
    with pytest.raises(Refused, match="more than 10 bytes") as error:
        asyncio.run(body(Endless([b"x" * 8] * 3), 10, 5.0))
    assert error.value.status == 413
    with pytest.raises(Refused, match="not complete within") as error:
        asyncio.run(body(Endless([b"x"]), 10, 0.01))
    assert error.value.status == 408


def test_an_error_inside_is_no_traceback_and_too_many_requests_wait_elsewhere(runs, monkeypatch):
    tagger = Tagger(runs["vectors"][0], limits=Limits(waiting=1, seconds=LIMIT))
    started, go = threading.Event(), threading.Event()

    def tag(inputs):
        started.set()
        assert go.wait(LIMIT)
        raise RuntimeError("secret detail")

    monkeypatch.setattr(tagger, "tag", tag)
    row = {"vector": [0.0] * 8}
    client, answers = Client(make_app(tagger)), []
    worker = threading.Thread(target=lambda: answers.append(client.post("/predict", json=row)))
    worker.start()
    assert started.wait(LIMIT)
    busy = client.post("/predict", json=row)
    assert busy.status_code == 503
    assert busy.headers["Retry-After"] == "1"
    assert client.get("/health").status_code == 200
    go.set()
    worker.join(LIMIT)
    assert answers[0].status_code == 500
    assert answers[0].json() == {"error": "internal error"}
    slow = Tagger(runs["vectors"][0], limits=Limits(seconds=0.01))
    hold = threading.Event()
    monkeypatch.setattr(slow, "tag", lambda inputs: hold.wait(LIMIT))
    late = Client(make_app(slow)).post("/predict", json=row)
    hold.set()
    assert late.status_code == 503
    assert "no answer within" in late.json()["error"]


def test_a_large_batch_does_not_keep_the_worker_when_nobody_waits_any_more(runs):
    tagger = Tagger(runs["images"][0], limits=SMALL)
    files = pictures(runs["images"][1], 3)
    assert len(tagger.images(files)) == 3
    with pytest.raises(InputError, match="0 of 3 images"):
        tagger.images(files, end=time.monotonic() - 1)


def test_a_head_that_never_ends_closes_the_connection(monkeypatch):
    """Nothing at all, half a line, and a byte now and then; whole requests are answered on the same connection."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def talk():
        config = uvicorn.Config(
            app,
            http=server.Patient,
            ws="none",
            lifespan="off",
            log_level="critical",
            timeout_keep_alive=int(LIMIT),
        )
        running = uvicorn.Server(config)
        with listen("127.0.0.1", 0) as place:
            task = asyncio.create_task(running.serve(sockets=[place]))
            port = place.getsockname()[1]
            drip = await asyncio.open_connection("127.0.0.1", port)
            whole = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
            for _ in range(2):
                drip[1].write(whole)
                assert (await drip[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            monkeypatch.setattr(server, "HEAD", 0.2)
            silent, half = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            half[1].write(b"GET / HT")
            drip[1].write(whole[:9])
            for reader, _ in (silent, half, drip):
                assert await asyncio.wait_for(reader.read(), LIMIT) == b""
            running.should_exit = True
            await task

    monkeypatch.setattr(server, "HEAD", LIMIT)
    asyncio.run(talk())


def test_small_answers_are_sent_at_once():
    """asyncio sets TCP_NODELAY on the connections of a socket whose protocol says TCP, and on no other."""
    with listen("127.0.0.1", 0) as place:
        assert place.proto == socket.IPPROTO_TCP
        with pytest.raises(InputError, match="cannot be listened on"):
            listen("127.0.0.1", place.getsockname()[1])


def test_bad_arguments_are_one_sentence(tmp_path, capsys, monkeypatch):
    for arguments, words in (
        ([str(tmp_path)], "holds no run"),
        ([str(tmp_path), "--port", "99999"], "65535"),
        ([str(tmp_path), "--workers", "0"], "--workers"),
    ):
        assert main(["serve", *arguments]) == 2
        assert words in capsys.readouterr().err
    import mlcl.cli.serve as verb

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'mlcl\[serve\]'"):
        verb.require_serve()


@pytest.mark.slow
def test_the_process_ends_cleanly_on_sigterm(runs, capsys):
    command = [sys.executable, "-m", "mlcl", "serve", str(runs["vectors"][0]), "--port", "0"]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with child(command, text=True, **pipes) as process:
        for line in process.stderr:
            if found := re.search(r"on (http://127\.0\.0\.1:\d+)", line):
                break
        request = urllib.request.Request(
            f"{found.group(1)}/predict", data=json.dumps({"vector": [0.0] * 8}).encode(), headers=JSON
        )
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            assert "tags" in json.load(answer)
        taken = found.group(1).rpartition(":")[2]
        rng = np.random.default_rng(0)
        for _ in range(50):  # what is no HTTP at all
            with socket.create_connection(("127.0.0.1", int(taken)), timeout=LIMIT) as raw:
                raw.sendall(rng.bytes(300) + b"\r\n\r\n")
                assert raw.recv(12) == b"HTTP/1.1 400"
        assert main(["serve", str(runs["vectors"][0]), "--port", taken]) == 2
        assert "cannot be listened on" in capsys.readouterr().err
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(LIMIT) == 0
        assert "Traceback" not in rest
