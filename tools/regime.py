"""Draw docs/images/fixed-features.svg, the README's figure: ``python tools/regime.py`` (``make results``).

Macro-AUC of the methods on fixed features, in-task and pooled, against seconds and bytes kept, from the committed
``results/fixed-*/runs.csv``.
"""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
from beyond import mean
from ledger import ROOT, Sweep, write
from matplotlib.figure import Figure

SHOWN = {
    "er": ("ER", "#7f7f7f", "o"),
    "rldam-wru": ("RLDAM + WRU (the paper)", "#d95f02", "s"),
    "distilled-replay": ("distilled replay", "#7570b3", "D"),
    "exact, u 0": ("exact, u 0", "#66c2a5", "*"),
    "exact, u 0.1": ("exact, u 0.1", "#1b9e77", "*"),
    "exact, u 1": ("exact, u 1", "#00441b", "*"),
    "joint + RLDAM": ("joint training", "#000000", "P"),
}
"""Label of a row, and its name, colour and marker in the figure."""

NAMES = {"c-voc-features": "VOC 2012", "c-coco-features": "COCO 2017"}


def draw(sweeps: list[Sweep]) -> str:
    """Return the figure as SVG."""
    figure = Figure(figsize=(9, 3.1 * len(sweeps)), layout="constrained")
    axes = figure.subplots(len(sweeps), 2, squeeze=False)
    for row, sweep in zip(axes, sweeps, strict=True):
        name = NAMES[sweep.record["benchmark"]]
        for axis, metric, text in zip(
            row, ("seconds", "memory_bytes"), ("seconds", "bytes kept"), strict=True
        ):
            for label, (shown, colour, marker) in SHOWN.items():
                seeds = sorted(sweep.values("macro_auc").get(label, {}))
                found = [
                    mean(sweep.values(m), label, seeds) for m in (metric, "macro_auc", "pooled_macro_auc")
                ]
                if None in found or (metric == "memory_bytes" and label.startswith("joint")):
                    continue  # joint training keeps all rows
                x, inside, pooled = found
                size = 110 if marker == "*" else 45
                axis.plot([x, x], [inside, pooled], color=colour, linewidth=0.8, alpha=0.5)
                axis.scatter([x], [pooled], s=size, color=colour, marker=marker, label=shown, zorder=3)
                axis.scatter(
                    [x], [inside], s=size, facecolors="none", edgecolors=colour, marker=marker, zorder=3
                )
            axis.set_xscale("log")
            axis.set_xlabel(text)
            axis.set_title(f"{name}: Macro-AUC against {text}", loc="left", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("filled: pooled, hollow: in-task", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "mlcl", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def folders() -> list[Path]:
    """Return the folders of the tables that there are."""
    return [path for name in NAMES if (path := ROOT / "results" / f"fixed-{name}").exists()]


if __name__ == "__main__":
    picture = draw([Sweep.read(path) for path in folders()])
    raise SystemExit(write(picture, ROOT / "docs" / "images" / "fixed-features.svg"))
