"""Sweeps: tables as data, expanded into runs that are done on all cores, or on a cluster, and never twice."""

from mlcl.sweeps.experiment import Axis, Experiment, Row, experiments, load_experiment, parse_experiment
from mlcl.sweeps.plan import PlannedRun, plan_runs
from mlcl.sweeps.sweep import run_all
from mlcl.sweeps.work import Finished, Position, Watch

__all__ = [
    "Axis",
    "Experiment",
    "Finished",
    "PlannedRun",
    "Position",
    "Row",
    "Watch",
    "experiments",
    "load_experiment",
    "parse_experiment",
    "plan_runs",
    "run_all",
]
