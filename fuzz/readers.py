# ruff: noqa: T201, SIM105
"""Every reader of files, given mutated bytes: each input must load or end in an `InputError`, and nothing else.

    python fuzz/readers.py [--count N] [--seed S] [--only TARGET]

Bytes are flipped, cut, doubled and spliced; JSON and YAML are also changed inside (types, extremes, missing fields).
Checksums of checkpoints are made right again after the change, so that what lies behind them is reached too. An input
that ends in anything else is kept in ``mlcl-fuzz-crashes`` of the system's temporary folder; the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import safe_open
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from helpers import SMALL, small_arrays, small_benchmark
from mlcl.arrays import digest
from mlcl.config.resolve import config_from, merge, shipped, to_yaml
from mlcl.datasets import open_store, plan_source, prepare_source, read_ids
from mlcl.datasets.shards import ShardColumns, describe_shard
from mlcl.errors import InputError
from mlcl.exact import fit_map
from mlcl.files import json_digest
from mlcl.runs import checkpoints
from mlcl.runs.continuing import begin_from, extended_benchmark, load_base, read_base, update
from mlcl.runs.folder import is_finished, read_result
from mlcl.runs.run import run
from mlcl.sklearn import ExactTagger
from mlcl.sklearn.shard_parts import Job, count, list_parts, read_part, write_part
from mlcl.training.callbacks import Callback, Interrupted
from mlcl.training.learner import Learner
from shard_files import made_up, write_shard

ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**70,
    1e308,
    float("nan"),
    "",
    "x" * 300,
    "\0",
    "../../etc",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
)


@dataclass(frozen=True)
class Target:
    """A reader: good inputs to start from, and what to do with a changed one."""

    seeds: tuple[bytes, ...]
    read: Callable[[bytes], object]
    structured: bool = False


def mutate_bytes(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Flip, cut, double or splice at random places."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, max(len(out), 1)))
        length = int(rng.integers(1, 40))
        kind = rng.integers(0, 6)
        if kind == 0 and out:
            out[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = out[at : at + length]
        elif kind == 4:
            out[at : at + length] = rng.bytes(length)
        else:
            start = int(rng.integers(0, max(len(other), 1)))
            out[at:at] = other[start : start + length]
    return bytes(out)


def mutate_value(value: Any, rng: np.random.Generator) -> Any:
    """Change one place deep inside: another type, an extreme, a missing or a doubled entry."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = list(value)[int(rng.integers(len(value)))]
        chance = rng.random()
        if chance < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if chance < 0.15:
            return {**value, f"{key}x": value[key]}
        return {**value, key: mutate_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = int(rng.integers(len(value)))
        chance = rng.random()
        if chance < 0.1:
            return value[:at] + value[at + 1 :]
        if chance < 0.2:
            return value[: at + 1] + value[at:]
        return [*value[:at], mutate_value(value[at], rng), *value[at + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.5:
        return [value + 1, -value, value * 1000, float(value)][int(rng.integers(4))]
    return ODD[int(rng.integers(len(ODD)))]


def mutants(target: Target, count: int, seed: int) -> Iterator[bytes]:
    """Yield changed inputs, half of them changed inside where the format allows it."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data, other = (target.seeds[int(rng.integers(len(target.seeds)))] for _ in range(2))
        if target.structured and rng.random() < 0.6:
            value = json.loads(data) if data[:1] == b"{" else yaml.safe_load(data)
            for _ in range(rng.integers(1, 4)):
                value = mutate_value(value, rng)
            yield json.dumps(value).encode()
        else:
            yield mutate_bytes(data, other, rng)


class _Stop(Callback):
    def on_step(self, learner: Learner, loss: float) -> None:  # noqa: ARG002
        if learner.task_index == 1 and learner.step == 3:
            raise Interrupted


TABLES = (
    "id,f1,f2,tags,annotated\na,1,2,x|y,x|y\nb,3,4,x,\nc,5,6,,x\nd,7,8,y,x|y\n",
    'text;label_x;label_y\nred;1;0\n"blue; green";;1\npink;0;\n',
    "title,split,tags\nred,train,\"a, b\"\nblue,test,\"['a', 'b']\"\n",
)


def json_lines(table: str) -> bytes:
    """Return a CSV as JSON lines, with lists of numbers and names."""
    rows = list(csv.DictReader(io.StringIO(table)))
    found = [
        {
            "features": [float(row["f1"]), float(row["f2"])],
            "tags": row["tags"].split("|") if row["tags"] else [],
            "annotated": row["annotated"].split("|") if row["annotated"] else None,
        }
        for row in rows
    ]
    return "\n".join(map(json.dumps, found)).encode()


def plain(content: bytes) -> bytes:
    """Return arrays as version 0.1 wrote them: without the checksum that keeps changed bytes from going far."""
    return save_arrays(load_arrays(content))


def make_targets(folder: Path) -> dict[str, Target]:
    """Make small good files of every kind below a folder."""
    benchmark = small_benchmark()
    config = config_from(
        merge(SMALL, {"method": "ewc", "memory": {"kind": "wru", "size": 20}, "train": {"epochs": 1}})
    )
    try:
        run(config, benchmark=benchmark, out=folder / "run", callback=_Stop())
    except Interrupted:
        pass
    config = config_from(folder / "run/config.yaml")  # names the arrays
    newest = max((folder / "run/checkpoints").glob("*.json"))
    manifest, tensors = newest.read_bytes(), plain(newest.with_suffix(".safetensors").read_bytes())
    done = folder / "done"
    run(config, benchmark=benchmark, out=done)
    arrays = dict(
        zip(("x_train", "y_train", "x_test", "y_test"), (*small_arrays(), *small_arrays(seed=1)), strict=True)
    )
    arrays |= {f"known_{split}": np.arange(720).reshape(120, 6) % 7 > 0 for split in ("train", "test")}
    np.savez(folder / "arrays.npz", **arrays)
    store = folder / "store"
    prepare_source("arrays", folder / "arrays.npz", out=store, jobs=1)

    # A run that is used: its files are read to predict and to learn the labels of another store.
    np.savez(folder / "new.npz", **arrays, classes=np.array([f"new-{k}" for k in range(6)]))
    prepare_source("arrays", folder / "new.npz", out=folder / "new", jobs=1)
    used, second = shutil.copytree(done, folder / "used"), folder / "second"
    settings = dataclasses.replace(config, data=str(folder / "new"))
    (used / "config.yaml").write_text(to_yaml(settings))
    result = json.loads((used / "result.json").read_text())
    result.pop("sha256")  # without checksums, what lies behind them is reached
    (used / "result.json").write_text(json.dumps(result))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        update(used, config=settings, out=second, known=False)

    # A tagger in one file: its header, with a checksum that is made right for every header, and its bytes.
    x, y = small_arrays()
    exact = folder / "exact.safetensors"
    ExactTagger(dimensions=2).fit(x, y).save(exact)
    exact_seed, sums = exact.read_bytes(), load_arrays(exact.read_bytes())
    with safe_open(exact, framework="numpy") as file:
        exact_header = file.metadata()["mlcl"]

    def read_exact_tagger(data: bytes) -> object:
        exact.write_bytes(data)
        return ExactTagger.load(exact)

    def read_exact_header(data: bytes) -> object:
        text = data.decode(errors="replace")
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(text)
            if isinstance(value, dict):
                value.pop("sha256", None)
                text = json.dumps(value | {"sha256": digest(value, sums)})
        exact.write_bytes(save_arrays(sums, {"mlcl": text}))
        return ExactTagger.load(exact).predict(x)

    # Shards, and the sums of shards.
    shard = write_shard(folder / "shards" / "a.parquet", made_up(1)[0])
    columns = ShardColumns("vector", "tags")
    shard_sums = folder / "parts"
    shard_sums.mkdir()
    features = fit_map(made_up(1)[0].vectors)
    key = write_part(shard_sums, *count(Job((describe_shard(str(shard), columns),), columns, features)))

    def read_shard(data: bytes) -> object:
        changed = folder / "changed.parquet"
        changed.write_bytes(data)
        return count(Job((describe_shard(str(changed), columns),), columns, features))

    def read_plan(name: str) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            (folder / name).write_bytes(data)
            return plan_source("table", folder / name)

        return read

    def read_sums(data: bytes) -> object:
        (shard_sums / f"{key}.safetensors").write_bytes(data)
        return list_parts(shard_sums), read_part(shard_sums, key)

    def read_extends(data: bytes) -> object:
        (second / "extends.json").write_bytes(data)
        return read_base(second)

    def read_config(data: bytes) -> object:
        path = folder / "config.yaml"
        path.write_bytes(data)
        return config_from(path)

    def read_checkpoint(manifest: bytes, tensors: bytes) -> object:
        """Make the checksums right, where the manifest is still JSON, then load it into a new learner."""
        try:
            fields = json.loads(manifest)
            fields.pop("sha256", None)
            fields["tensors"] = {"bytes": len(tensors), "sha256": hashlib.sha256(tensors).hexdigest()}
            manifest = json.dumps({**fields, "sha256": json_digest(fields)}).encode()
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass
        newest.write_bytes(manifest)
        newest.with_suffix(".safetensors").write_bytes(tensors)
        found = checkpoints.read_checkpoint(newest)
        learner = Learner(config, benchmark)
        identity = checkpoints.Identity.of(found.identity.run, config, benchmark)
        checkpoints.refuse_changes(found.identity, identity, source=newest)
        checkpoints.restore(learner, found)
        return learner

    def read_result_json(data: bytes) -> object:
        (done / "result.json").write_bytes(data)
        is_finished(done)
        return read_result(done)

    def read_store(name: str) -> Callable[[bytes], object]:
        good = (store / name).read_bytes()

        def read(data: bytes) -> object:
            try:
                (store / name).write_bytes(data)
                return open_store(store), read_ids(store)
            finally:
                (store / name).write_bytes(good)

        return read

    def read_file_of_run(name: str) -> Callable[[bytes], object]:
        good = (used / name).read_bytes()

        def read(data: bytes) -> object:
            try:
                (used / name).write_bytes(data)
                base = load_base(used)
                benchmark = extended_benchmark(base, config_from(used / "config.yaml"))
                begin_from(Learner(base.trained.config, benchmark), base)
                return base
            finally:
                (used / name).write_bytes(good)

        return read

    targets = {
        "config": Target(
            (
                (done / "config.yaml").read_bytes(),
                *(shipped()[name].encode() for name in ("c-digits", "c-scene")),
            ),
            read_config,
            True,
        ),
        "checkpoint manifest": Target((manifest,), lambda data: read_checkpoint(data, tensors), True),
        "checkpoint tensors": Target((tensors,), lambda data: read_checkpoint(manifest, data)),
        "result.json": Target(((done / "result.json").read_bytes(),), read_result_json, True),
        "result.json in use": Target(
            ((used / "result.json").read_bytes(),), read_file_of_run("result.json"), True
        ),
        "weights": Target(
            (plain((used / "weights.safetensors").read_bytes()),), read_file_of_run("weights.safetensors")
        ),
        "memory": Target(
            (plain((used / "memory.safetensors").read_bytes()),), read_file_of_run("memory.safetensors")
        ),
        "exact tagger": Target((exact_seed,), read_exact_tagger),
        "exact tagger header": Target((exact_header.encode(),), read_exact_header, True),
        "shard": Target((shard.read_bytes(),), read_shard),
        "sums of shards": Target(((shard_sums / f"{key}.safetensors").read_bytes(),), read_sums),
        "extends.json": Target(((second / "extends.json").read_bytes(),), read_extends, True),
        "store manifest": Target(
            ((store / "manifest.json").read_bytes(),), read_store("manifest.json"), True
        ),
        "store labels": Target(((store / "labels.npy").read_bytes(),), read_store("labels.npy")),
        "store known": Target(((store / "known.npy").read_bytes(),), read_store("known.npy")),
        "table csv": Target(tuple(text.encode() for text in TABLES), read_plan("t.csv")),
        "table jsonl": Target((json_lines(TABLES[0]),), read_plan("t.jsonl")),
        "table parquet": Target((shard.read_bytes(),), read_plan("t.parquet")),
        "store inputs": Target(((store / "inputs.npy").read_bytes(),), read_store("inputs.npy")),
        "store ids": Target(((store / "ids.json").read_bytes(),), read_store("ids.json"), True),
    }
    return targets


def judge(target: Target, data: bytes) -> str:
    """Return ``loaded`` or ``refused``; anything but an `InputError` comes out as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            target.read(data)
        except InputError as error:
            if "\n" in str(error) or not str(error):
                raise AssertionError(f"not one sentence: {str(error)!r}") from error
            return "refused"
    return "loaded"


def main() -> int:
    """Fuzz all targets and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=12_000, help="inputs over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one target")
    given = parser.parse_args()
    crashes, total = 0, 0
    with tempfile.TemporaryDirectory(prefix="mlcl-fuzz-") as folder:
        targets = make_targets(Path(folder))
        chosen = {name: target for name, target in targets.items() if given.only in (None, name)}
        for number, (name, target) in enumerate(chosen.items()):
            started, counts = time.perf_counter(), Counter[str]()
            for data in mutants(target, -(-given.count // len(chosen)), 1000 * given.seed + number):
                try:
                    counts[judge(target, data)] += 1
                except BaseException:
                    counts["crashed"] += 1
                    crashes += 1
                    place = Path(tempfile.gettempdir()) / "mlcl-fuzz-crashes"
                    place.mkdir(exist_ok=True)
                    file = place / f"{name.replace(' ', '-')}-{hashlib.sha256(data).hexdigest()[:12]}"
                    file.write_bytes(data)
                    if counts["crashed"] <= 3:
                        print(f"{file}\n{traceback.format_exc(limit=-4)}")
            total += counts.total()
            found = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            print(f"{name:20} {found}   ({time.perf_counter() - started:.0f} s)", flush=True)
    print(f"{total} inputs, {crashes} crashes")
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
