"""The paper's method in Avalanche's own loop: WRU as storage policy, RLDAM as criterion of a replay strategy.

    pip install 'mlcl[avalanche]'
    python examples/avalanche_replay.py --memory wru --loss rldam
    python examples/avalanche_replay.py --memory random --loss bce      # plain experience replay

Only four lines come from mlcl: the scenario, the model, the criterion and the storage policy.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from avalanche.training import Naive
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin

from mlcl import build_model, macro_auc
from mlcl.config.resolve import config_from
from mlcl.integrations.avalanche import MultiLabelBuffer, MultiLabelCriterion, multilabel_benchmark
from mlcl.runs.recording import load_benchmark


def main(arguments: list[str] | None = None) -> np.ndarray:
    """Train on c-digits and print the Macro-AUC of every task after each task."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", default="wru", help="wru, prs, ocdm, random or reservoir")
    parser.add_argument("--loss", default="rldam", help="a name from `mlcl ls losses`")
    parser.add_argument("--size", type=int, default=200, help="samples in the memory")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)

    torch.manual_seed(given.seed)
    benchmark = load_benchmark(config_from({"stream": {"tasks": given.tasks}, "seed": given.seed}))
    scenario = multilabel_benchmark(benchmark)
    classes = len(benchmark.dataset.classes)
    model = build_model("resnet8", benchmark.dataset.train.inputs.shape[1:], classes, seed=given.seed)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-5),
        criterion=MultiLabelCriterion(given.loss, classes=classes),
        train_mb_size=32,
        train_epochs=given.epochs,
        eval_mb_size=512,
        plugins=[
            ReplayPlugin(
                mem_size=given.size,
                storage_policy=MultiLabelBuffer(given.size, given.memory, seed=given.seed),
            )
        ],
        evaluator=EvaluationPlugin(),  # accuracy is not meaningful with several labels per image
    )
    matrix = np.full((given.tasks, given.tasks), np.nan)
    for experience in scenario.train_stream:
        t = experience.current_experience
        strategy.train(experience)
        for other in list(scenario.test_stream)[: t + 1]:
            matrix[t, other.current_experience] = 100 * score(model, other.dataset)
        print(f"after task {t + 1}:", "  ".join(f"{value:5.1f}" for value in matrix[t, : t + 1]))
    print(f"Macro-AUC {matrix[-1].mean():.2f}")
    return matrix


def score(model: torch.nn.Module, dataset: torch.utils.data.Dataset) -> float:
    """Return the Macro-AUC over the classes that an experience annotates."""
    model.eval()
    loader = torch.utils.data.DataLoader(dataset, batch_size=512)
    with torch.inference_mode():
        scores, targets = zip(*((model(inputs), targets) for inputs, targets in loader), strict=True)
    labels = torch.cat(targets).numpy()
    own = labels[0] >= 0
    return macro_auc(torch.cat(scores).numpy()[:, own], labels[:, own])


if __name__ == "__main__":
    main()
