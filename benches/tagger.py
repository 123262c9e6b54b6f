"""ExactTagger against one logistic regression a label, on two published sets of feature vectors.

Run: ``python benches/tagger.py [--orders 3]``. Needs ``arff/Scene.arff.bz2`` and ``arff/Enron.arff.bz2`` of
`MLCL_DATA`, or of ``../shared/data`` beside the project. Labels come in 3 (Scene) and 5 (Enron) calls, in random
orders; every call brings all training rows with its own labels only. Printed: Macro-AUC over all labels on the test
rows at the end, in points, and seconds of learning.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mlcl import macro_auc
from mlcl.datasets import load_dataset, prepare_source
from mlcl.sklearn import ExactTagger

Split = tuple[NDArray[Any], NDArray[Any]]
Calls = list[NDArray[np.int64]]


def exact(**params: Any) -> Callable[[Split, Split, Calls, int], NDArray[Any]]:
    """Return what learns with an exact tagger, call by call, and scores the test rows."""

    def scores(train: Split, test: Split, calls: Calls, seed: int) -> NDArray[Any]:
        found = ExactTagger(random_state=seed, **params)
        for ids in calls:
            found.partial_fit(train[0], train[1][:, ids], classes=ids)
        return found.decision_function(test[0])

    return scores


def regressions(strength: float) -> Callable[[Split, Split, Calls, int], NDArray[Any]]:
    """Return what learns one regression a label when the label comes: it cannot forget, and shares nothing."""

    def scores(train: Split, test: Split, calls: Calls, seed: int) -> NDArray[Any]:  # noqa: ARG001
        columns = []
        for k in np.concatenate(calls):
            if len(np.unique(train[1][:, k])) < 2:
                columns.append(np.zeros(len(test[0])))
                continue
            model = LogisticRegression(class_weight="balanced", max_iter=300, C=strength)
            columns.append(
                make_pipeline(StandardScaler(), model)
                .fit(train[0], train[1][:, k])
                .decision_function(test[0])
            )
        return np.stack(columns, axis=1)

    return scores


WAYS = {
    "exact tagger": exact(),
    "exact tagger, unlabelled 0": exact(unlabelled=0.0),
    "logistic regressions, C = 1": regressions(1.0),
    "logistic regressions, C = 0.01": regressions(0.01),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=3)
    orders = parser.parse_args().orders
    folder = (
        Path(os.environ.get("MLCL_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "arff"
    )
    if not folder.is_dir():
        raise SystemExit(f"no {folder}: set MLCL_DATA to the folder of the data")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # labels without a positive in training
    for name, tasks in (("Scene", 3), ("Enron", 5)):
        with tempfile.TemporaryDirectory() as place:
            prepare_source("arff", folder / f"{name}.arff.bz2", out=Path(place) / name, jobs=1)
            data = load_dataset(str(Path(place) / name), in_memory=True)
        train, test = ((np.array(part.inputs), part.labels) for part in (data.train, data.test))
        print(
            f"{name}: {len(train[0])} training rows, {train[1].shape[1]} labels in {tasks} calls, {orders} orders"
        )
        for way, learn in WAYS.items():
            values, started = [], time.process_time()
            for seed in range(orders):
                order = np.random.default_rng(seed).permutation(train[1].shape[1])
                scores = learn(train, test, np.array_split(order, tasks), seed)
                values.append(100 * macro_auc(scores, test[1][:, order]))
            seconds = (time.process_time() - started) / orders
            spread = np.std(values, ddof=1) if orders > 1 else np.nan
            print(
                f"  {way:32} {np.mean(values):6.2f} ± {spread:.2f}   {seconds:5.1f} s of one core", flush=True
            )


if __name__ == "__main__":
    main()
