"""How figures are drawn: one style, reproducible bytes, as files for a paper and inline for a page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any, cast

from mlcl.texts import visible

INK = "#23262b"
"""Colour of text and axes. A page replaces it by its text colour, so that figures suit light and dark themes."""

# Mid-tones, readable on white and on near-black; markers distinguish rows without colour.
COLOURS = (
    "#3f7fbf",
    "#d4802a",
    "#2f9a6c",
    "#cf4d5f",
    "#8a6cc0",
    "#1f97a5",
    "#a27450",
    "#c265a0",
    "#87962c",
    "#7b838d",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
QUIET = "#8b929c"

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "mlcl",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.16,
    "grid.linewidth": 0.7,
    "grid.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.constrained_layout.use": True,
}
_FONTS = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"


@dataclass(frozen=True)
class ReportFigure:
    """A figure of a report: what it shows in numbers (``alt``), and what draws it on a figure of matplotlib."""

    title: str
    alt: str
    draw: Callable[[Any], None]
    size: tuple[float, float]
    caption: str = ""


@dataclass(frozen=True)
class Panel:
    """A part of a figure, drawn on axes of matplotlib.

    Attributes:
        title: short name.
        alt: alternative text: what it shows, in numbers.
        draw: draws it.
        caption: text below it.
        size: width and height of the axes, in inches.
        labels: names in its legend.
        listed: whether its vertical axis lists the rows.
    """

    title: str
    alt: str
    draw: Callable[[Any], None]
    caption: str = ""
    size: tuple[float, float] = (4.6, 2.7)
    labels: Sequence[str] = ()
    listed: bool = False

    def figure(self) -> ReportFigure:
        """Return the panel as a figure of its own, with its legend below."""

        def draw(figure: Any) -> None:
            axes = figure.subplots()
            self.draw(axes)
            legend(figure, axes, self.labels)

        width, height = self.size
        size = width, height + legend_height(self.labels, width)
        return ReportFigure(self.title, self.alt, draw, size, self.caption)


@contextmanager
def _drawn(figure: ReportFigure, **style: Any) -> Iterator[Any]:
    """Draw a figure and yield it as matplotlib's, without the global state of pyplot."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()  # a style file of the user does not change a report
        mpl.rcParams.update(cast(Any, _STYLE | style))
        drawn = Figure(figsize=figure.size)
        figure.draw(drawn)
        yield drawn


def to_file(figure: ReportFigure, form: str) -> bytes:
    """Return a figure as an SVG or PDF file with its title and alternative text, or as PNG; reproducible bytes."""
    metadata: dict[str, str | None] = {"Date": None} if form == "svg" else {}
    if form == "pdf":
        named = {"Title": visible(figure.title), "Subject": visible(figure.alt)}
        metadata = {"CreationDate": None, "ModDate": None} | named
    buffer = io.BytesIO()
    with _drawn(figure) as drawn:
        dots: Any = 150 if form == "png" else "figure"
        drawn.savefig(buffer, format=form, dpi=dots, metadata=metadata, facecolor="white")
    if form != "svg":
        return buffer.getvalue()
    text = buffer.getvalue().decode()
    start = text.index("<svg") + len("<svg")
    end = text.index(">", start) + 1
    texts = f"\n <title>{_text(figure.title)}</title>\n <desc>{_text(figure.alt)}</desc>"
    return f'{text[:start]} role="img"{text[start:end]}{texts}{text[end:]}'.encode()


def to_inline(figure: ReportFigure, name: str) -> str:
    """Return a figure as an ``<svg>`` element for a page: transparent, with real text in the colour of the page.

    Args:
        figure: the figure.
        name: unique in the page; all ids start with it.
    """
    buffer = io.StringIO()
    with _drawn(figure, **{"svg.fonttype": "none"}) as drawn:
        drawn.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    body = buffer.getvalue()
    body = body[body.index(">", body.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(url\(|href=")#', rf"\g<1>#{name}-", body)
    body = body.replace("xlink:href", "href")
    body = re.sub(r"(font: (?:\w+ )*[\d.]+px) [^;\"]*", rf"\g<1> {_FONTS}", body)
    body = body.replace(INK, "currentColor")
    body = re.sub(r"\n\s*", "\n", body)
    width, height = (round(72 * inches, 2) for inches in figure.size)
    return (
        f'<svg class="chart" role="img" aria-labelledby="{name}-title {name}-desc" '
        f'viewBox="0 0 {width:g} {height:g}" style="max-width:{width * 1.55:.0f}px">'
        f'<title id="{name}-title">{_text(figure.title)}</title>'
        f'<desc id="{name}-desc">{_text(figure.alt)}</desc>{body}'
    )


def _text(text: str) -> str:
    return escape(visible(text))


def colour(position: int) -> str:
    """Return the colour of the row at a position of the table."""
    return COLOURS[position % len(COLOURS)]


def marker(position: int) -> str:
    """Return the marker of the row at a position; beyond ten rows, colours repeat with other markers."""
    return MARKERS[(position + position // len(COLOURS)) % len(MARKERS)]


def shown(text: str, limit: int = 40) -> str:
    """Return a name as it is shown in a figure: visible and not too long.

    >>> shown("a" * 9 + chr(7), limit=8)
    'aaaaaaa…'
    """
    clean = visible(text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def plain_log(axis: Any) -> None:
    """Label the ticks of a logarithmic axis with plain numbers; mathematical text is switched off."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def count_axis(axes: Any, counts: Any, name: str) -> None:
    """Name the axis of numbers of positives; it is logarithmic where a power of ten lies between them."""
    if len(counts) and 0 < counts.min() < counts.max() / 10:  # with fewer no tick would have a label
        axes.set_xscale("log")
        plain_log(axes.xaxis)
    axes.set_xlabel(name)


def legend(figure: Any, axes: Any, labels: Sequence[str]) -> None:
    """Put the legend below the axes, in as many columns as the labels leave room for."""
    if len(labels) > 1:
        handles, names = axes.get_legend_handles_labels()
        columns = _columns(labels, figure.get_figwidth())
        figure.legend(handles, names, loc="outside lower center", ncols=columns)


def legend_height(labels: Sequence[str], width: float) -> float:
    """Return the height of `legend` in inches, so that the axes keep their size."""
    return 0.17 * -(-len(labels) // _columns(labels, width)) + 0.1 if len(labels) > 1 else 0.0


def _columns(labels: Sequence[str], width: float) -> int:
    longest = max(len(shown(label)) for label in labels)
    return min(max(1, int(width * 13 / (longest + 5))), len(labels))


def ticks(count: int) -> list[int]:
    """Return the task numbers to show below an axis, at most twelve."""
    return list(range(1, count + 1, max(1, -(-count // 12))))


def value_list(pairs: Sequence[tuple[str, float]]) -> str:
    """Return names with their values as part of a sentence; undefined values are left out.

    >>> value_list([("er", 71.234), ("joint", float("nan"))])
    'er 71.23'
    """
    return ", ".join(f"{shown(name)} {value:.2f}" for name, value in pairs if math.isfinite(value)) or "none"
