"""The same bits on any x86-64 machine: numpy and torch compute with AVX2, whatever else the processor offers.

Their libraries choose kernels by instruction set, and those of another width add in another order. Each library has an
environment variable that limits its choice, and reads it once, when it is loaded or first used; so the environment
must be there before. The command line starts itself anew with it; a script calls `set_environment` first. Only the
standard library is imported here.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from mlcl.errors import InputError

if TYPE_CHECKING:
    from mlcl.config.schema import TrainConfig

ENVIRONMENT: Mapping[str, str] = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # convolutions
    # Matrix products. AVX2 would be ignored on processors of AMD, which then take another branch than Intel's.
    "MKL_CBWR": "COMPATIBLE",
    # Both the names that numpy has had since 2.4 and those before; one that it does not know it passes over.
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",  # numpy's matrix products
    "OMP_NUM_THREADS": "1",  # a sum over several threads has another order
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""What must be in the environment when numpy and torch are loaded."""

_STARTED = "MLCL_PORTABLE"
"""Set when the command line has started itself anew, which it does once."""


class NotPortable(InputError):
    """The setting ``train.portable`` needs an environment that this process was not started with."""


def set_environment() -> None:
    """Prepare this process, and those that it starts, for runs with ``train.portable``: call it before anything else.

    Once numpy or torch is loaded it is too late, which is an `InputError`.
    """
    loaded = [name for name in ("numpy", "torch") if name in sys.modules]
    if loaded and _missing():
        raise InputError(
            f"set_environment() was called after {' and '.join(loaded)} had been imported, which read the environment "
            "then; expected it to be called before."
        )
    os.environ.update(ENVIRONMENT)


def require_portable(train: TrainConfig) -> None:
    """Refuse to compute with ``train.portable`` where the bits would not be those of other machines."""
    if not train.portable:
        return
    machine = (platform.system(), platform.machine())
    if machine != ("Linux", "x86_64"):
        raise InputError(
            f"train.portable is true, but this is {' on '.join(machine)}; it needs Linux on x86_64 with AVX2."
        )
    import numpy as np
    import torch

    found = torch.backends.cpu.get_cpu_capability()
    vectors = np.show_config(mode="dicts")["SIMD Extensions"].get("found", ())
    too_wide = found == "AVX512" or any(name.startswith(("AVX512", "X86_V4")) for name in vectors)
    if too_wide or _missing():
        wanted = " ".join(
            f"{name}={f'{value!r}' if ' ' in value else value}" for name, value in ENVIRONMENT.items()
        )
        raise NotPortable(
            "train.portable is true, but numpy and torch were loaded without the environment that it needs; call "
            f"mlcl.training.portable.set_environment() before they are imported, or start Python with: {wanted}"
        )
    if found != "AVX2":
        raise InputError(
            f"train.portable is true, but torch finds {found} here; it needs a processor with AVX2."
        )


def restart() -> NoReturn:
    """Start this command anew, as the same process, with the environment; a second time is an `InputError`."""
    if _STARTED in os.environ:
        changed = ", ".join(f"{name} is {os.environ.get(name, 'not set')}" for name in _missing())
        raise InputError(
            f"train.portable is true, but the environment that it needs was changed after it had been set: {changed}; "
            "a plugin and Python's start-up files must leave it alone."
        )
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **ENVIRONMENT, _STARTED: "1"})  # noqa: S606


@contextlib.contextmanager
def deterministic(train: TrainConfig) -> Iterator[None]:
    """Have torch refuse operations that are not deterministic, if the run is to be portable; as before afterwards."""
    if not train.portable:
        yield
        return
    import torch

    # Its one setting is defined in a way that type checkers cannot see.
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # nothing is read that was not written
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
        memory.fill_uninitialized_memory = fills


def _missing() -> list[str]:
    """Return the variables that are not set, or to something else."""
    return [name for name, value in ENVIRONMENT.items() if os.environ.get(name) != value]
