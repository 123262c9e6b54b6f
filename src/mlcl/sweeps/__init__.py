"""Sweeps: tables described as data, expanded into runs that are executed on all cores or on a cluster, each once."""

from mlcl.sweeps.experiment import Axis, Experiment, TableRow, experiments, load_experiment, parse_experiment
from mlcl.sweeps.plan import PlannedRun, plan_runs
from mlcl.sweeps.sweep import Finished, Position, SweepCallback, run_all

__all__ = [
    "Axis",
    "Experiment",
    "Finished",
    "PlannedRun",
    "Position",
    "SweepCallback",
    "TableRow",
    "experiments",
    "load_experiment",
    "parse_experiment",
    "plan_runs",
    "run_all",
]
