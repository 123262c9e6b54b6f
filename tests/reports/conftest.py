"""Runs to report on, made once: four methods, two seeds, small."""

from __future__ import annotations

import pytest

from helpers import SMALL, small_benchmark
from mlcl.runs.run import run


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder of finished runs: METHOD-SEED."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        for method in ("er", "rldam-wru", "ft", "joint"):
            config = SMALL | {"method": method, "seed": seed}
            run(config, benchmark=small_benchmark(seed=0, name="c-digits"), out=folder / f"{method}-{seed}")
    return folder


@pytest.fixture(scope="session")
def sweep(runs, tmp_path_factory):
    """The folder of a sweep over ER and RLDAM + WRU, with the runs of `runs`."""
    import shutil

    from mlcl.sweeps import TableRow
    from mlcl.sweeps.record import SweepRecord, write_record

    folder = tmp_path_factory.mktemp("sweep")
    rows = [
        TableRow("er", {}, "er", None, "er", {"macro_auc": 79.17}),
        TableRow("rldam-wru", {}, "rldam-wru", None, "er", {}),
    ]
    places = []
    for row in rows:
        for seed in (0, 1):
            place = f"runs/{row.label}-seed{seed}"
            shutil.copytree(runs / f"{row.label}-{seed}", folder / place)
            places.append((row.label, seed, place))
    record = SweepRecord(
        table="core",
        title="The core methods",
        claim="Ours is best.",
        benchmark="c-digits",
        command="mlcl reproduce core",
        seeds=2,
        metric="macro_auc",
        figure="points",
        axis="",
        rows=tuple(rows),
        runs=tuple(places),
    )
    write_record(record, folder)
    return folder
