"""The demo on this machine alone, and beside four busy loops: ``python -m benches busy``.

Linux shares the cores between sessions first, where ``kernel.sched_autogroup_enabled`` is 1 (the default) and no other
control group applies, and then between the threads of a session. Beside loops of another session, as of another
terminal or a service, the demo so has half of the cores; beside loops of its own session it has as many shares as it
has threads. Both are timed.

``python -m benches.busy`` prints, instead, milliseconds per step of a small network beside the loops under several
settings of OpenMP, in turns: how the settings of `mlcl.engines.cores` were chosen.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benches.timing import Row, within

LOOPS, GOAL = 4, 3.0
SETTINGS = {
    "GOMP_SPINCOUNT=10000": ("10000", False),
    "GOMP_SPINCOUNT=1000": ("1000", False),
    "GOMP_SPINCOUNT=10000, short slices": ("10000", True),
    "GOMP_SPINCOUNT=1000, short slices": ("1000", True),
}
STEPS = """
import sys, time
from mlcl.engines.cores import ask_for_short_slices
if sys.argv[1] == "True":
    ask_for_short_slices()
import torch
from torch import nn
torch.manual_seed(0)
def block(a, b, stride):
    return nn.Conv2d(a, b, 3, stride=stride, padding=1), nn.BatchNorm2d(b), nn.ReLU()
head = nn.Flatten(), nn.Linear(1024, 20)
net = nn.Sequential(*block(3, 16, 1), *block(16, 32, 2), *block(32, 64, 2), *head).to(memory_format=torch.channels_last)
inputs = torch.rand(64, 3, 16, 16).to(memory_format=torch.channels_last)
optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
def step():
    optimiser.zero_grad()
    net(inputs).square().mean().backward()
    optimiser.step()
for _ in range(3):
    step()
start, used, steps = time.perf_counter(), time.process_time(), 0
while time.perf_counter() - start < float(sys.argv[2]):
    step()
    steps += 1
print(1e3 * (time.perf_counter() - start) / steps, 1e3 * (time.process_time() - used) / steps)
"""


def measure(*, quick: bool) -> list[Row]:
    """Time the demo once alone and once beside the loops, start included; two runs of each would take too long."""
    options = ["--train.epochs", "1", "--stream.tasks", "2"] if quick else []
    quiet, rows = demo(options), []
    size = "mlcl run" + "".join(f" {word}" for word in options)
    for whose in ("another", "its own"):
        with busy_loops(LOOPS, apart=whose == "another"):
            time.sleep(1)
            beside = demo(options)
        subject = f"demo beside {LOOPS} busy loops of {whose} session"
        rows.append(within(subject, size, beside, "the same alone", quiet, GOAL))
    return rows


@contextlib.contextmanager
def busy_loops(count: int, *, apart: bool = False) -> Iterator[None]:
    """Keep so many processes busy; they end with this one, also where it is killed.

    Args:
        count: number of loops.
        apart: in a session of their own, as if they were started in another terminal.
    """
    loop = f"import os\nfor _ in range({count - 1}):\n    if not os.fork(): break\nmine = os.getppid()\n"
    loop += "while os.getppid() == mine: pass"
    first = subprocess.Popen(
        [sys.executable, "-c", loop], start_new_session=apart, process_group=None if apart else 0
    )
    try:
        yield
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()


def demo(options: list[str]) -> float:
    """Return the seconds of a run of the demo, start included."""
    decided = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    free = {name: value for name, value in os.environ.items() if name not in decided}
    with tempfile.TemporaryDirectory(prefix="mlcl-bench-") as place:
        command = [sys.executable, "-m", "mlcl", "run", *options, "--quiet", "--out", f"{place}/run"]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=free)
        return time.perf_counter() - start


def steps(rounds: int, seconds: float) -> None:
    """Print the settings in turns."""
    for number in range(rounds):
        for name, (spins, short) in SETTINGS.items():
            settings = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": spins, "OMP_NUM_THREADS": "2"}
            done = subprocess.run(
                [sys.executable, "-c", STEPS, str(short), str(seconds)],
                check=True, capture_output=True, text=True, env={**os.environ, **settings},
            )  # fmt: skip
            wall, used = map(float, done.stdout.split())
            print(
                f"round {number + 1}  {name:38} {wall:7.1f} ms per step, {used:5.1f} ms of processor time",
                flush=True,
            )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benches.busy", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="how often each setting is tried (default: 2)")
    given = parser.parse_args()
    print(f"load before {os.getloadavg()[0]:.1f}, {LOOPS} busy loops")
    with busy_loops(LOOPS):
        steps(given.rounds, 4.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
