"""What the service answers, what it refuses, and a thousand hostile requests; `test_serving_process` has the rest."""

from __future__ import annotations

import asyncio
import base64
import csv
import io
import json
import re
import struct
import time
import zlib

import httpx
import numpy as np
import pytest
from PIL import Image

from children import LIMIT
from helpers import label_settings, label_store
from mlcl.cli.main import main
from mlcl.datasets import load_dataset
from mlcl.errors import InputError
from mlcl.integrations.serving import model as model_module
from mlcl.integrations.serving.app import ROUTES, Door, body, make_app
from mlcl.integrations.serving.limits import FREE, Budget, Limits, Refusal, busy
from mlcl.integrations.serving.model import LIGHT_PIXELS, Model, parse
from mlcl.integrations.serving.workers import HEAVY
from mlcl.runs.run import run
from mlcl.taggers import load
from mlcl.taggers.predict import predict

SMALL = Limits(
    image_bytes=200_000, image_pixels=1_000_000, request_pixels=2_000_000, body_bytes=400_000, items=4
)


class Here:
    """Answers in this process, as `Workers` do in others."""

    reloads = failures = restarts = waiting = 0
    ready = True

    def __init__(self, model):
        self.model, self.limits, self.about = model, model.limits, model.about()

    def wait(self):
        return 0.0

    def check(self, kind, size):
        pass

    async def ask(self, kind, body, *, gone):
        return await asyncio.to_thread(self.model.answer, kind, body)


class Client:
    """Calls an application in this process; an error that it lets out is one here too."""

    def __init__(self, app):
        self.app = app

    def request(self, method, path, **options):
        async def call():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost", trust_env=False
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
    return Client(make_app(Here(Model(runs["images"][0], limits=SMALL))))


@pytest.fixture(scope="module")
def vectors(runs):
    return Client(make_app(Here(Model(runs["vectors"][0], limits=SMALL))))


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


def check_examples(client):
    """Send the examples of the description; the answers are as it describes them."""
    routes = client.get("/openapi.json").json()["paths"]
    for path, many in (("/predict", False), ("/batch", True)):
        told = routes[path]["post"]
        (kind,) = told["requestBody"]["content"]
        if kind != "application/json":
            continue
        asked = told["requestBody"]["content"][kind]
        assert asked["example"].keys() == asked["schema"]["properties"].keys()
        found = client.post(path, json=asked["example"])
        assert found.status_code == 200, found.text
        schema = told["responses"]["200"]["content"][kind]["schema"]
        assert found.json().keys() == schema["properties"].keys()
        (item,) = found.json()["results"] if many else [found.json()]
        inner = schema["properties"]["results"]["items"] if many else schema
        assert item.keys() == inner["properties"].keys()
        assert all(0 <= chance <= 1 for chance in item["probabilities"].values())


def test_the_examples_of_the_description_are_answered(images, vectors):
    check_examples(images)
    check_examples(vectors)


def test_texts_get_the_scores_of_predict(tmp_path):
    rows = [
        ("a [red] {ball}", "red"),
        ("the blue sky", "blue"),
        ('red "and" blue', "red|blue"),
        ("none", ""),
    ] * 12
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "tags"), *((f"{text} {k}", tags) for k, (text, tags) in enumerate(rows))]
        )
    folder = tmp_path / "tagger"
    assert main(["learn", str(tmp_path / "table.csv"), "--out", str(folder), "--quiet"]) == 0
    client = Client(make_app(Here(Model(folder))))
    assert client.get("/version").json()["takes"] == "texts"
    texts = ["a [red] {ball}", 'blue \\ "quoted\n', ""]
    expected = load(folder).predict_proba(texts)
    many = client.post("/batch", json={"texts": texts}).json()["results"]
    assert np.allclose([list(found["probabilities"].values()) for found in many], expected, atol=2e-6)
    one = client.post("/predict", json={"text": texts[1]}).json()
    assert one == many[1]
    check_examples(client)
    for content, words in (
        ({"texts": ["a", 1]}, "no list of texts"),
        ({"texts": "a"}, "a list of 1 to 256"),
        ({"texts": ["a"] * 257}, "a list of 1 to 256"),
        ({"vectors": [[1.0]]}, "takes texts, not vectors"),
        ({"images": [""]}, "not images"),
        ({"texts": [["a"]] * 300}, "at most 257 lists"),
    ):
        found = client.post("/batch", json=content)
        assert (found.status_code, words in found.json()["error"]) == (400, True), found.text
    assert client.post("/predict", content=b"x", headers=PNG).status_code == 400


def test_what_machines_ask(images, runs):
    for route in ("/health", "/live", "/ready"):
        assert images.get(route).json() == {"status": "ok"}
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
        ("/predict", b'{"vector": [1]}', JSON, 400, "takes images, not JSON"),
        ("/batch", b"{}", JSON, 400, "alone"),
        ("/batch", b"{]", JSON, 400, "no JSON"),
        ("/batch", b"[" * 100_000, JSON, 400, "at most 5 lists"),
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
        [10**99] * 8,
        [1e39] * 8,
        7,
    ],
)
def test_what_is_no_vector_is_refused(vector, vectors):
    found = vectors.post("/predict", json={"vector": vector})
    assert found.status_code == 400, found.text
    assert re.search("vector|at most 2 lists", found.json()["error"])
    other = vectors.post("/predict", content=b'{"path": "/etc/passwd"}', headers=JSON)
    assert "'vector' or 'text' alone" in other.json()["error"]
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


FULL = {
    "lists in lists": ("application/json", lambda size: b"[" * (size // 2) + b"]" * (size - size // 2)),
    "one text": ("application/json", lambda size: b'{"text":"' + b"x" * (size - 11) + b'"}'),
    "one image": ("application/json", lambda size: b'{"images":["' + b"A" * (size - 15) + b'"]}'),
    "an image with a tail": ("image/png", lambda size: bomb(30, 30).ljust(size, b"\0")),
}


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("model", ["images", "vectors"])
def test_bodies_of_full_size_through_every_route(model, path, name, request):
    """As many bytes as may be are read and judged, and one more is too long; routes that take nothing read nothing."""
    client, (kind, make) = request.getfixturevalue(model), FULL[name]
    image = kind == "image/png"
    asked = "batch" if path == "/batch" else "image" if image else "item"
    most = SMALL.body(asked, {"takes": model, "input_shape": [8]})
    read = path == "/batch" if not image else path == "/predict" and model == "images"
    read = read or (path == "/predict" and not image and model == "vectors")
    # What follows an image in its file is not read, so this one is an image.
    for size, status in ((most, 200 if image and read else 400), (most + 1, 413 if read else 400)):
        data = make(size)
        assert len(data) == size
        found = client.post(path, content=data, headers={"Content-Type": kind})
        if path not in ("/predict", "/batch"):
            status = 405
        assert found.status_code == (415 if image and path == "/batch" else status), found.text
        assert "error" in found.json() or found.status_code == 200


def test_lists_are_counted_before_anything_is_parsed(monkeypatch):
    """30 MB of lists took 13 s and 1.5 GB."""
    monkeypatch.setattr("json.loads", lambda _: pytest.fail("parsed"))
    many = b'{"vectors": [' + b"[]," * 300 + b"[]]}"
    for data in (many, b'{"vectors":' + b"[" * 300 + b"]" * 300 + b"}", b'{"a":' * 300 + b"1" + b"}" * 300):
        with pytest.raises(InputError, match="at most 257 lists"):
            parse(data, "images", "vectors", lists=257)


def test_a_body_of_vectors_has_no_more_bytes_than_its_numbers_need(vectors):
    row = "[" + ",".join(["-0.12345678901234567"] * 8) + "]"
    assert vectors.post("/predict", content=f'{{"vector":{row}}}', headers=JSON).status_code == 200
    found = vectors.post("/predict", content=b'{"vector":[' + b"1," * 5_000 + b"1]}", headers=JSON)
    assert found.status_code == 413
    full = json.dumps({"vectors": [[-0.12345678901234567] * 8] * 4}, indent=8)
    assert vectors.post("/batch", content=full, headers=JSON).status_code == 200
    assert vectors.post("/batch", content=full + " " * 4_000, headers=JSON).status_code == 413


def test_pixels_are_counted_over_a_whole_request_before_any_is_decoded(images, monkeypatch):
    def plain(kind):
        return base64.b64encode(encoded(np.zeros((900, 1000, 3), np.uint8), kind)).decode()

    assert images.post("/batch", json={"images": [plain("PNG")] * 2}).status_code == 200
    # Of a JPEG an eighth is decoded, each way, where that is enough.
    assert images.post("/batch", json={"images": [plain("JPEG")] * 4}).status_code == 200
    monkeypatch.setattr(model_module, "decode_input", lambda *_, **__: pytest.fail("decoded"))
    found = images.post("/batch", json={"images": [plain("PNG")] * 3})
    assert found.status_code == 400
    assert "2700000 pixels to decode; at most 2000000" in found.json()["error"]


def test_what_takes_long_is_left_to_others(runs):
    model = Model(runs["images"][0])
    small, large = (encoded(np.zeros((side, side), np.uint8)) for side in (8, int(LIGHT_PIXELS**0.5) + 1))
    assert model.answer("image", small, light=True).status == 200
    assert model.answer("image", large, light=True).status == HEAVY
    assert model.answer("image", large).status == 200


def test_a_batch_is_given_up_when_nobody_waits_any_more(runs):
    model = Model(runs["images"][0], limits=SMALL)
    files = pictures(runs["images"][1], 3)
    assert len(model.images(files)) == 3
    with pytest.raises(InputError, match="0 of 3 images"):
        model.images(files, end=time.monotonic() - 1)


class Sent:
    """A request whose body comes in chunks, and then never ends, or does."""

    def __init__(self, *chunks, ends=False):
        self.headers, self.chunks, self.ends = {}, chunks, ends

    async def stream(self):
        for chunk in self.chunks:
            yield chunk
        if not self.ends:
            await asyncio.Event().wait()


def test_a_body_that_is_too_long_or_never_comes_is_given_up():
    async def read(sent, seconds):
        async with body(sent, 10, seconds, Budget(100)):
            pass

    with pytest.raises(Refusal, match="more than 10 bytes") as error:
        asyncio.run(read(Sent(*[b"x" * 8] * 3), LIMIT))
    assert error.value.status == 413
    with pytest.raises(Refusal, match="not complete within") as error:
        asyncio.run(read(Sent(b"x"), 0.01))
    assert error.value.status == 408


def test_large_requests_share_a_budget_and_small_ones_need_none():
    async def read():
        budget = Budget(1000)
        async with body(Sent(b"x" * (FREE + 800), ends=True), 10**6, LIMIT, budget) as data:
            assert len(data) == FREE + 800
            assert budget.left == 200
            with pytest.raises(Refusal) as error:
                async with body(Sent(b"x" * (FREE + 100), b"x" * 101), 10**6, LIMIT, budget):
                    pass
            assert error.value.status == 503
            assert "Retry-After" in error.value.headers
            assert budget.left == 200
            async with body(Sent(b"x" * FREE, ends=True), 10**6, LIMIT, budget):
                assert budget.left == 200
        assert budget.left == 1000

    asyncio.run(read())


def test_an_error_inside_is_no_traceback(runs, monkeypatch, caplog):
    model = Model(runs["vectors"][0])
    monkeypatch.setattr(model, "_tag", lambda _: 1 / 0)
    found = Client(make_app(Here(model))).post("/predict", json={"vector": [0.0] * 8})
    assert (found.status_code, found.json()) == (500, {"error": "internal error"})
    assert "a request to /predict failed" in caplog.text


def test_only_hosts_of_the_service_are_answered_and_nothing_leads_elsewhere(vectors):
    for path in ("/health", "/live", "/", "/predict"):
        found = vectors.request("GET", path, headers={"Host": "evil.example"})
        assert found.status_code == 421
        assert "evil" not in str(found.headers) + found.text
    slash = vectors.get("/health/")
    assert slash.status_code == 404
    assert "location" not in slash.headers
    for host in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000", "192.168.1.7"):
        assert vectors.request("GET", "/health", headers={"Host": host}).status_code == 200


def test_a_token_opens_all_that_says_something_of_the_model(runs):
    client = Client(make_app(Here(Model(runs["vectors"][0])), door=Door(token="open")))
    for path in ("/version", "/metrics", "/openapi.json", "/absent"):
        found = client.get(path)
        assert found.status_code == 401, path
        assert found.headers["WWW-Authenticate"] == "Bearer"
    for word in (
        "Bearer",
        "Bearer ",
        "Bearer opEn",
        "Basic open",
        "open",
        "Bearer open, Bearer open",
        "Bearer ö",
    ):
        found = client.request(
            "POST", "/predict", json={"vector": [0.0] * 8}, headers={"Authorization": word.encode()}
        )
        assert found.status_code == 401, word
    right = {"Authorization": "Bearer open"}
    found = client.request("POST", "/predict", json={"vector": [0.0] * 8}, headers=right)
    assert found.status_code == 200
    assert client.request("GET", "/version", headers=right).status_code == 200
    for path in ("/", "/live", "/ready", "/health"):
        assert client.get(path).status_code == 200


def test_tokens_are_compared_in_constant_time(runs, monkeypatch):
    seen = []

    def compare(sent, token):
        seen.append((sent, token))
        return False

    monkeypatch.setattr("hmac.compare_digest", compare)
    client = Client(make_app(Here(Model(runs["vectors"][0])), door=Door(token="open")))
    assert client.request("GET", "/version", headers={"Authorization": "Bearer open"}).status_code == 401
    assert seen == [(b"open", b"open")]


def test_a_prefix_of_a_proxy_is_known_whether_or_not_it_is_taken_off(runs):
    client = Client(make_app(Here(Model(runs["vectors"][0])), door=Door(prefix="/tagger")))
    for path in ("/tagger/health", "/health", "/tagger", "/tagger/", "/"):
        assert client.get(path).status_code == 200, path
    assert client.get("/taggers/health").status_code == 404
    assert '<base href="/tagger/">' in client.get("/tagger").text
    assert client.get("/tagger/openapi.json").json()["servers"] == [{"url": "/tagger"}]
    assert 'route="/health"' in client.get("/metrics").text


def test_head_is_get_without_a_body(vectors):
    for path in ("/health", "/live", "/ready", "/version", "/metrics", "/"):
        found = vectors.request("HEAD", path)
        assert found.status_code == 200, path
        assert found.content == b""
        assert int(found.headers["content-length"]) > 10
    wrong = vectors.request("HEAD", "/predict")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


def test_refusals_are_no_part_of_the_latency(runs):
    client = Client(make_app(Here(Model(runs["vectors"][0]))))
    for vector in ([0.0] * 8, [1.0], "x"):
        client.post("/predict", json={"vector": vector})
    text = client.get("/metrics").text
    assert 'mlcl_requests_total{route="/predict",status="400"} 2' in text
    assert "mlcl_request_seconds_count 1\n" in text
    assert "mlcl_inputs_total 1\n" in text


def test_ready_and_live_are_two_things(runs):
    here = Here(Model(runs["vectors"][0]))
    here.ready, here.wait = False, lambda: 6.4
    client = Client(make_app(here))
    found = client.get("/ready")
    assert (found.status_code, found.headers["Retry-After"]) == (503, "7")
    assert client.get("/live").status_code == 200
    assert client.get("/health").status_code == 200


def test_what_would_wait_for_too_long_is_refused_before_it_is_read(runs, monkeypatch):
    here = Here(Model(runs["vectors"][0]))
    seen = []

    def check(kind, size):
        seen.append((kind, size))
        raise busy("many requests are waiting", 3.0)

    here.check = check
    monkeypatch.setattr("mlcl.integrations.serving.app.body", lambda *_: pytest.fail("read"))
    found = Client(make_app(here)).post("/batch", content=b"x" * 700, headers=JSON)
    assert (found.status_code, found.headers["Retry-After"]) == (503, "3")
    assert seen == [("batch", 700)]
