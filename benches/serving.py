"""The service against a bare loop of ONNX Runtime: what HTTP, JSON, limits and counting cost.

Both decode the same JPEG files as a store does and run the same exported network, one image after the other; the
service is a process of its own that is asked over the loopback by one client, and by four at once.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benches.store import pictures
from benches.timing import Row
from mlcl import Benchmark
from mlcl.datasets.images import pixels
from mlcl.runs.run import run
from mlcl.taggers.export import export

SIZE, CLIENTS = 32, 4


def small_run(folder: Path) -> Path:
    """Return a run on images, trained for a moment: its speed is that of any."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (200, 3, SIZE, SIZE), dtype=np.uint8)
    labels = (rng.random((200, 20)) < 0.2).astype(np.uint8)
    labels[np.arange(200), np.arange(200) % 20] = 1
    benchmark = Benchmark.from_arrays(images, labels, images[:50], labels[:50], tasks=1)
    settings = {"method": "ft", "model": "resnet8", "train": {"epochs": 1, "threads": 1}}
    run(settings, benchmark=benchmark, out=folder)
    return folder


def bare_loop(model: Path, files: list[bytes], count: int) -> list[float]:
    """Return the seconds of each image: decode, run, sort the labels."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    times = []
    for number in range(count):
        start = time.perf_counter()
        (scores,) = session.run(None, {name: pixels(files[number % len(files)], SIZE)[None]})
        np.argsort(-scores[0])
        times.append(time.perf_counter() - start)
    return times


def ask(port: int, files: list[bytes], count: int) -> list[float]:
    """Return the seconds of each request over one connection that is kept."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times = []
    for number in range(count):
        start = time.perf_counter()
        connection.request("POST", "/predict", files[number % len(files)], {"Content-Type": "image/jpeg"})
        answer = connection.getresponse()
        json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"the service answered {answer.status}")
        times.append(time.perf_counter() - start)
    return times


def ask_at_once(port: int, files: list[bytes], count: int) -> tuple[list[float], float]:
    """Return the seconds of each request of several clients, and the seconds of all together."""
    found: list[list[float]] = [[] for _ in range(CLIENTS)]
    threads = [
        threading.Thread(target=lambda own=own: own.extend(ask(port, files, count // CLIENTS)))
        for own in found
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [seconds for own in found for seconds in own], time.perf_counter() - start


def measure(*, quick: bool) -> list[Row]:
    """Ask the service, and do the same without one."""
    count = 200 if quick else 2000
    with tempfile.TemporaryDirectory(prefix="mlcl-bench-") as place:
        raw = Path(place) / "raw"
        raw.mkdir()
        _, _, files, kind = pictures(100, raw)
        folder = small_run(Path(place) / "run")
        export(folder, Path(place) / "model.onnx", format="onnx")
        bare = bare_loop(Path(place) / "model.onnx", files, count)
        command = [sys.executable, "-m", "mlcl", "serve", str(folder), "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                lines: Iterable[str] = process.stderr or []
                port = next(int(found[1]) for line in lines if (found := re.search(r":(\d+);", line)))
                ask(port, files, 20)
                one = ask(port, files, count)
                many, together = ask_at_once(port, files, count)
            finally:
                process.terminate()
    size = f"{kind} of 96 x 96 to {SIZE} x {SIZE}, resnet8, {count:,} requests"
    rival = "a loop of decoding and ONNX Runtime, one thread"

    def row(subject: str, ours: float, other: float, note: str = "") -> Row:
        return Row(subject, size, ours, rival, other, ours / other, None, above=False, note=note)

    return [
        row("one image over HTTP, median", float(np.median(one)), float(np.median(bare))),
        row("one image over HTTP, p99", float(np.quantile(one, 0.99)), float(np.quantile(bare, 0.99))),
        row(
            f"one image over HTTP, {CLIENTS} clients, p99",
            float(np.quantile(many, 0.99)),
            float(np.quantile(bare, 0.99)),
            note=f"{len(many) / together:,.0f} images per second; the loop {count / sum(bare):,.0f}",
        ),
    ]
