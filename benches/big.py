"""``python -m benches.big --folder DIR``: ten million rows x 128 x 50 labels in one run of ``mlcl learn``.

Writes shards (5.4 GB), learns from them in a process of its own, and records seconds and peak memory of it and of its
workers in ``benches/big.json`` and docs/evidence/scale.md. The shards are removed at the end, the tagger stays.
With ``--quick`` there are 100,000 rows and nothing is recorded.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benches.machine import describe
from benches.page import FOLDER
from benches.scale import Size, write_rows
from benches.scale_page import write_big


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benches.big", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the shards go; 6 GB must be free")
    parser.add_argument("--jobs", type=int, default=2, help="workers (default: 2)")
    parser.add_argument("--quick", action="store_true", help="few rows; nothing is recorded")
    given = parser.parse_args()
    record = describe()
    shards = 10 if given.quick else 100
    data, out = given.folder / "data", given.folder / "out"
    data.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    size = Size(10_000 if given.quick else 100_000, 128, 50, 1.5)
    for number in range(shards):
        path = data / f"{number:05d}.parquet"
        if not path.exists():
            temporary = path.with_suffix(".half")
            write_rows(temporary, size, seed=number)
            temporary.rename(path)
    held = sum(path.stat().st_size for path in data.iterdir()) / 1e9
    print(f"{shards} shards, {held:.2f} GB, written in {time.perf_counter() - begin:.0f} s", flush=True)
    middle = time.perf_counter()
    command = [sys.executable, "-m", "mlcl", "learn", "--data", str(data), "--out", str(out), "--overwrite"]
    subprocess.run([*command, "--jobs", str(given.jobs)], check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    record |= asdict(size) | {
        "rows": shards * size.n,
        "shards": shards,
        "gigabytes": held,
        "jobs": given.jobs,
        "clock": time.perf_counter() - middle,
        "processor": used.ru_utime + used.ru_stime,
        "peak_gb": used.ru_maxrss * 1024 / 1e9,
        "seconds": round(time.perf_counter() - begin, 1),
    }
    print(
        f"{record['rows']:,} rows x {size.d} x {size.classes} labels, {given.jobs} workers: {record['clock']:.0f} s, "
        f"{record['processor']:.0f} s of processor time; peak memory of the largest process {record['peak_gb']:.2f} GB"
    )
    if not given.quick:
        (FOLDER / "big.json").write_text(json.dumps(record, indent=1) + "\n")
        write_big(record)
    shutil.rmtree(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
