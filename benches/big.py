"""``python -m benches.big --folder DIR``: ten million rows x 128 x 50 labels in one run of ``mlcl learn``.

Writes shards (5.2 GB), learns from them in a process of its own, and prints seconds and peak memory of it and of its
workers. The shards are removed at the end, the tagger stays.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benches.scale import Size, write_rows


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benches.big", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the shards go; 6 GB must be free")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    data, out = given.folder / "data", given.folder / "out"
    data.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    size = Size(given.rows // given.shards, 128, 50, 1.5)
    for number in range(given.shards):
        path = data / f"{number:05d}.parquet"
        if not path.exists():
            temporary = path.with_suffix(".half")
            write_rows(temporary, size, seed=number)
            temporary.rename(path)
    held = sum(path.stat().st_size for path in data.iterdir()) / 1e9
    print(f"{given.shards} shards, {held:.2f} GB, written in {time.perf_counter() - begin:.0f} s", flush=True)
    begin = time.perf_counter()
    command = [sys.executable, "-m", "mlcl", "learn", "--data", str(data), "--out", str(out)]
    subprocess.run([*command, "--jobs", str(given.jobs)], check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{given.rows:,} rows x {size.d} x {size.classes} labels, {given.jobs} workers: "
        f"{time.perf_counter() - begin:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor time; peak memory of "
        f"the largest process {used.ru_maxrss / 2**20:.2f} GB; load {os.getloadavg()[0]:.1f}"
    )
    shutil.rmtree(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
