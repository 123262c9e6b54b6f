"""The service under attack: 200 clients on the loopback, of which 30 % are hostile, for a minute.

    python -m benches.hostile [--before FOLDER_OF_ANOTHER_CHECKOUT]     # writes benches/hostile.json

Valid clients send one input after the other over a connection that they keep, compare every answer with what the model
says without a service, and come back when ``Retry-After`` says so. Hostile ones send what `ATTACKS` lists. One more
process asks every tenth of a second whether the service is up, each time over a new connection. With ``--before`` the
same is done to the service of another checkout, in turns, since only ratios of one sitting mean something on a machine
that does other work as well.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
PAUSE = 0.1
"""Seconds that every client waits after an answer."""
PATIENCE = 30.0
"""Seconds for which a client waits for an answer."""
JSON, PNG = "application/json", "image/png"


def request(path: str, body: bytes, kind: str, *, host: str = "127.0.0.1") -> bytes:
    """Return a request as bytes."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def attacks() -> dict[str, Callable[[random.Random], bytes]]:
    """Return what hostile clients send, by name: the bytes of a request, whole or not."""
    buffer = io.BytesIO()
    Image.new("RGB", (8000, 5000)).save(buffer, "WEBP", lossless=True)
    bomb = buffer.getvalue()
    images = json.dumps({"images": [base64.b64encode(bomb).decode()] * 256}).encode()
    deep = b'{"vectors":' + b"[" * 15_000_000 + b"]" * 15_000_000 + b"}"
    many = b'{"vectors":[' + b"[]," * 6_500_000 + b"[]]}"
    numbers = b'{"vectors":[[' + b"1," * 9_000_000 + b"1]]}"
    good = request("/predict", b'{"vector": [1]}', JSON)
    return {
        "30 MB of lists within lists": lambda _: request("/batch", deep, JSON),
        "20 MB of empty lists": lambda _: request("/batch", many, JSON),
        "18 MB of numbers": lambda _: request("/batch", numbers, JSON),
        "an image of 40 megapixels in 1.6 kB": lambda _: request("/predict", bomb, "image/webp"),
        "256 such images": lambda _: request("/batch", images, JSON),
        "random bytes as an image": lambda random: request("/predict", random.randbytes(20_000), PNG),
        "another host": lambda _: request("/predict", b"{}", JSON, host="evil.example"),
        "no HTTP": lambda random: random.randbytes(300) + b"\r\n\r\n",
        "half a head": lambda _: b"POST /predict HT",
        "a body that does not come": lambda _: good[:-5],
        "nothing at all": lambda _: b"",
    }


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes
) -> tuple[int, float, bytes]:
    """Send a request and return status, the seconds of ``Retry-After``, and body of the answer."""
    async with asyncio.timeout(PATIENCE):
        writer.write(data)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        size = int((re.search(rb"(?i)content-length: (\d+)", head) or [b"", b"0"])[1])
        later = int((re.search(rb"(?i)retry-after: (\d+)", head) or [b"", b"0"])[1])
        return int(head[9:12]), later, await reader.readexactly(size)


async def valid_client(
    port: int, end: float, cases: list[tuple[bytes, list[float]]], seen: dict[str, Any]
) -> None:
    """Ask for tags until the time is over, and compare."""
    number, connection = random.randrange(len(cases)), None
    while time.monotonic() < end:
        number = (number + 1) % len(cases)
        data, expected = cases[number]
        start, later = time.monotonic(), 0.0
        try:
            connection = connection or await asyncio.open_connection("127.0.0.1", port)
            status, later, body = await exchange(*connection, data)
        except (OSError, EOFError) as error:
            seen["statuses"][type(error).__name__] += 1
            if connection is not None:
                connection[1].close()
            connection = None
        else:
            seen["statuses"][str(status)] += 1
            if status == 200:
                seen["seconds"].append(time.monotonic() - start)
                found = list(json.loads(body)["probabilities"].values())
                seen["wrong"] += not np.allclose(found, expected, atol=1e-5)
        await asyncio.sleep(max(PAUSE, later))


async def hostile_client(port: int, end: float, own: random.Random, seen: dict[str, Any]) -> None:
    """Attack until the time is over, over a new connection each time."""
    kinds = seen["kinds"]
    while time.monotonic() < end:
        name = own.choice(list(kinds))
        status = "no answer"
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                status = str((await exchange(reader, writer, kinds[name](own)))[0])
            finally:
                writer.close()
        except (OSError, EOFError, ValueError):
            pass
        seen["statuses"][f"{name}: {status}"] += 1
        await asyncio.sleep(PAUSE)


async def clients(role: str, port: int, count: int, seconds: float, cases: Path) -> dict[str, Any]:
    """Be all clients of a role; return what they saw."""
    seen: dict[str, Any] = {"statuses": Counter(), "seconds": [], "wrong": 0}
    known = [
        (request("/predict", base64.b64decode(body), kind), expected)
        for kind, body, expected in json.loads(cases.read_text())
    ]
    seen["kinds"] = attacks() if role == "hostile" else {}
    end = begin() + seconds
    if role == "valid":
        await asyncio.gather(*(valid_client(port, end, known, seen) for _ in range(count)))
    else:
        await asyncio.gather(*(hostile_client(port, end, random.Random(k), seen) for k in range(count)))
    del seen["kinds"]
    return seen


def begin() -> float:
    """Wait until all processes are ready; return the time."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.monotonic()


def probe(port: int, seconds: float, path: str) -> dict[str, Any]:
    """Ask whether the service is up, again and again; return the seconds of each answer."""
    end, found = begin() + seconds, []
    while (start := time.monotonic()) < end:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            up = connection.getresponse().status == 200
        except OSError:
            up = False
        connection.close()
        found.append(time.monotonic() - start if up else PATIENCE)
        time.sleep(PAUSE)
    return {"statuses": {}, "seconds": found, "wrong": 0}


def memory(root: int) -> float:
    """Return the resident megabytes of a process and its children."""
    total, todo = 0.0, [root]
    while todo:
        place = Path("/proc") / str(todo.pop())
        try:
            total += int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            todo += map(int, (place / "task" / place.name / "children").read_text().split())
        except OSError:
            continue
    return total


def attack(
    source: Path, folder: Path, cases: Path, *, count: int, seconds: float, path: str
) -> dict[str, Any]:
    """Serve a tagger with the package of one checkout, attack it, and return what was seen."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mlcl", "serve", str(folder), "--port", "0"]
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (it outlives this block of lines)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=log, cwd=folder
    ) as service:
        try:
            port = _port(log, service)
            roles = (("valid", count * 7 // 10), ("hostile", count - count * 7 // 10), (path, 1))
            children = [
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", "benches.hostile", "--role", role, "--port", str(port)),
                        *("--clients", str(share), "--seconds", str(seconds), "--cases", str(cases)),
                    ],
                    cwd=HERE.parent,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for role, share in roles
            ]
            for child in children:
                if child.stdout is None or child.stdout.readline() != "ready\n":
                    raise RuntimeError("a process of clients did not start")
            sizes: list[float] = []
            over = threading.Event()
            watch = threading.Thread(target=_watch_memory, args=(service.pid, sizes, over))
            watch.start()
            for child in children:
                print(file=child.stdin, flush=True)
            found = [json.loads(child.communicate(timeout=seconds + 3 * PATIENCE)[0]) for child in children]
            over.set()
            watch.join()
        finally:
            service.terminate()
            try:
                service.wait(60)
            except subprocess.TimeoutExpired:
                service.kill()
    log.seek(0, 2)
    return _summary(found, sizes, log.tell())


def _port(log: Any, service: subprocess.Popen[bytes]) -> int:
    while service.poll() is None:
        log.seek(0)
        if found := re.search(r"on http://127\.0\.0\.1:(\d+)", log.read()):
            return int(found[1])
        time.sleep(0.1)
    raise RuntimeError("the service ended")


def _watch_memory(pid: int, sizes: list[float], over: threading.Event) -> None:
    while not over.wait(0.5):
        sizes.append(memory(pid))


def _summary(found: list[dict[str, Any]], sizes: list[float], log: int) -> dict[str, Any]:
    valid, hostile, probes = found
    statuses = valid["statuses"]
    answers = sum(statuses.values())
    third = len(sizes) // 3
    return {
        "valid requests": answers,
        "statuses": statuses,
        "share of 503": round(statuses.get("503", 0) / max(1, answers), 4),
        "share answered": round(statuses.get("200", 0) / max(1, answers), 4),
        "wrong answers": valid["wrong"],
        "p50 seconds": _quantile(valid["seconds"], 0.5),
        "p99 seconds": _quantile(valid["seconds"], 0.99),
        "up: probes": len(probes["seconds"]),
        "up: p50 ms": _quantile(probes["seconds"], 0.5, 1000),
        "up: worst ms": _quantile(probes["seconds"], 1, 1000),
        "up: over 100 ms": sum(second > 0.1 for second in probes["seconds"]),
        "memory MB: first, second, last third (medians)": [
            round(float(np.median(part)))
            for part in (sizes[:third], sizes[third : 2 * third], sizes[2 * third :])
        ],
        "memory MB: most": round(max(sizes)),
        "log bytes": log,
        "hostile": dict(sorted(hostile["statuses"].items())),
    }


def _quantile(values: list[float], share: float, scale: float = 1) -> float | None:
    return round(float(np.quantile(values, share)) * scale, 3) if values else None


def prepare(kind: str, place: Path) -> tuple[Path, Path]:
    """Make a tagger, and a file of inputs with what it says of them."""
    from mlcl.runs.trained import load_trained

    folder, cases = place / kind, []
    if kind == "images":
        from benches.serving import small_run
        from benches.store import pictures

        raw = place / "raw"
        raw.mkdir()
        files = pictures(50, raw)[2]
        small_run(folder)
        from mlcl.taggers.predict import decode_input

        trained = load_trained(folder)
        inputs: Any = np.stack([decode_input(data, trained.input_shape, name="an image") for data in files])
        bodies = [("image/jpeg", data) for data in files]
    else:
        from mlcl import Benchmark, run

        rng = np.random.default_rng(0)
        rows = rng.normal(size=(2000, 256)).astype(np.float32)
        labels = rows @ rng.normal(size=(256, 100)) > 20
        benchmark = Benchmark.from_arrays(rows, labels, rows[:200], labels[:200], tasks=1)
        run({"method": "ft", "model": "mlp", "train": {"epochs": 1}}, benchmark=benchmark, out=folder)
        trained, inputs = load_trained(folder), rows[:50]
        bodies = [(JSON, json.dumps({"vector": row.tolist()}).encode()) for row in inputs]
    for (media, body), row in zip(bodies, trained.probabilities(inputs), strict=True):
        cases.append((media, base64.b64encode(body).decode(), row.astype(float).tolist()))
    file = place / f"{kind}.json"
    file.write_text(json.dumps(cases))
    return folder, file


def main() -> None:
    """Attack, and write what was seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="the folder of another checkout, to compare with")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--inputs", choices=("images", "vectors"), help="one kind of tagger alone")
    parser.add_argument("--out", type=Path, default=HERE / "hostile.json")
    for name in ("role", "port", "cases"):  # of the processes that are started
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    seconds, count = min(given.seconds, 300.0), min(given.clients, 500)
    if given.role is not None and given.role.startswith("/"):
        print(json.dumps(probe(int(given.port), seconds, given.role)))
        return
    if given.role is not None:
        print(
            json.dumps(asyncio.run(clients(given.role, int(given.port), count, seconds, Path(given.cases))))
        )
        return
    from benches.machine import describe

    record: dict[str, Any] = {**describe(), "clients": count, "seconds": seconds}
    del record["data"]
    with tempfile.TemporaryDirectory(prefix="mlcl-hostile-") as place:
        for kind in [given.inputs] if given.inputs else ["images", "vectors"]:
            folder, cases = prepare(kind, Path(place))
            sides = {"after": (HERE.parent, "/live")}
            if given.before is not None:
                sides = {"before": (given.before.resolve(), "/health"), **sides}
            for side, (source, path) in sides.items():
                load = round(os.getloadavg()[0], 1)
                found = attack(source, folder, cases, count=count, seconds=seconds, path=path)
                record[f"{kind}, {side}"] = {"load before": load, **found}
                print(kind, side, json.dumps(found, indent=1), flush=True)
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
