"""A table in a terminal, Markdown, CSV, LaTeX and HTML, the templates of pages, and how numbers are written.

Texts come from outside, and none is ever markup: this is where they are escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from mlcl.metrics import Interval
from mlcl.texts import csv_text, visible


@dataclass(frozen=True)
class Cell:
    """A formatted cell of a table.

    Attributes:
        text: what it says.
        best: shown in bold.
        pale: shown so that others stand out.
        anchor: on a page, the part of it that the cell leads to.
    """

    text: str
    best: bool = False
    pale: bool = False
    anchor: str = ""


@dataclass(frozen=True)
class PrintedTable:
    """A table of formatted cells; ``print`` of a console of rich shows it.

    Attributes:
        title: stands above it.
        heads: of the columns.
        rows: their cells.
        left: heads of the columns that hold words; the others hold numbers and end at the right.
        below: how many rows stand below a line, at the end.
        whole: whether its cells are kept on one line.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    left: Sequence[str] = ()
    below: int = 0
    whole: bool = False

    def __rich__(self) -> Any:
        """Return the table as rich draws it."""
        from rich.table import Table as Drawn
        from rich.text import Text

        drawn = Drawn(title=Text(visible(self.title), style="table.title"), title_justify="left")
        for head in self.heads:
            side: Any = "left" if head in self.left else "right"
            drawn.add_column(Text(visible(head)), justify=side, overflow="fold", no_wrap=self.whole)
        for number, cells in enumerate(self.rows):
            found = map(as_cell, cells)
            drawn.add_row(
                *(Text(visible(c.text), style=_style(c)) for c in found),
                end_section=number + 1 == len(self.rows) - self.below,
            )
        return drawn

    def markdown(self) -> str:
        """Return the table in Markdown; all columns but the first are numbers."""

        def line(cells: Sequence[Cell | str]) -> str:
            shown = ((cell, in_cell(cell.text)) for cell in map(as_cell, cells))
            return f"| {' | '.join(f'**{text}**' if cell.best else text for cell, text in shown)} |"

        rule = f"|---|{'---:|' * (len(self.heads) - 1)}"
        return "\n".join([line(self.heads), rule, *map(line, self.rows)])

    def csv(self) -> str:
        """Return the table as CSV, for looking at: a spreadsheet takes no text for a formula."""
        rows = [[as_cell(cell).text for cell in row] for row in self.rows]
        return csv_text(list(self.heads), rows, spreadsheet=True)

    def html(self) -> Any:
        """Return the table in HTML (markupsafe's class), in a box that scrolls; its title is read aloud."""
        from markupsafe import Markup, escape

        def side(head: str) -> str:
            return ' class="left"' if head in self.left else ""

        def cell(place: int, found: Cell) -> str:
            text = escape(visible(found.text))
            if found.anchor:
                text = Markup('<a href="#{}">{}</a>').format(found.anchor, text)
            if place == 0:
                return f'<th scope="row">{text}</th>'
            look = (
                ' class="best"' if found.best else ' class="pale"' if found.pale else side(self.heads[place])
            )
            return f"<td{look}>{text}</td>"

        heads = [
            f'<th scope="col"{side(head) if place else ""}>{escape(visible(head))}</th>'
            for place, head in enumerate(self.heads)
        ]
        rows = ["".join(cell(place, as_cell(found)) for place, found in enumerate(row)) for row in self.rows]
        body = "\n".join(f"<tr>{row}</tr>" for row in rows)
        top = f"<thead><tr>{''.join(heads)}</tr></thead>\n" if any(self.heads) else ""
        box = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(visible(self.title))}">'
        return Markup(f"{box}<table>\n{top}<tbody>{body}</tbody></table></div>")  # noqa: S704  (all is escaped)

    def latex(self) -> str:
        """Return the table in LaTeX, all columns but the first as numbers; it needs the package booktabs."""

        def line(cells: Sequence[Cell | str]) -> str:
            texts = ((cell, latex(cell.text)) for cell in map(as_cell, cells))
            # After the end of a line, LaTeX takes [ and * for options.
            shown = [f"\\textbf{{{text}}}" if cell.best else text for cell, text in texts]
            return ("{}" if shown[0].startswith(("[", "*")) else "") + " & ".join(shown) + " \\\\"

        out = [
            f"\\begin{{tabular}}{{l{'r' * (len(self.heads) - 1)}}}",
            "\\toprule",
            line(self.heads),
            "\\midrule",
        ]
        return "\n".join([*out, *map(line, self.rows), "\\bottomrule", "\\end{tabular}"])


def page_template(name: str, **values: Any) -> str:
    """Fill a template of this package: what it shows is text, unless it is HTML of ours (markupsafe's class)."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        text = isinstance(value, str) and not isinstance(value, Markup)
        return visible(value, lines=True) if text else value

    source = (resources.files("mlcl.reports") / name).read_text(encoding="utf-8")
    options: Any = {"undefined": StrictUndefined, "finalize": shown}
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, **options).from_string(source)
    return page.render(**values)


def as_cell(cell: Cell | str) -> Cell:
    """Return a cell; a text is one."""
    return Cell(cell) if isinstance(cell, str) else cell


def _style(cell: Cell) -> str:
    return "bold" if cell.best else "dim" if cell.pale else ""


def decimals(value: float, digits: int = 2) -> str:
    """Return a value with its decimals; a dash where it is undefined.

    >>> decimals(71.234), decimals(71.26, 1), decimals(float("nan"))
    ('71.23', '71.3', '-')
    """
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def signed(value: float) -> str:
    """Return a change with its sign; a dash where it is undefined.

    >>> signed(1.0), signed(-0.004), signed(float("inf")), signed(float("nan"))
    ('+1.00', '-0.00', '+inf', '-')
    """
    return "-" if math.isnan(value) else f"{value:+.2f}"


def interval(difference: Interval | None) -> str:
    """Return a difference with its interval.

    >>> interval(Interval(1.5, 0.25, 2.75, 0.95)), interval(Interval(-1.0, float("nan"), float("nan"), 0.95))
    ('+1.50 [+0.25, +2.75]', '-1.00')
    """
    if difference is None:
        return ""
    ends = (difference.low, difference.high)
    shown = "" if math.isnan(ends[0]) else f" [{signed(ends[0])}, {signed(ends[1])}]"
    return signed(difference.estimate) + shown


def in_points(low: float, high: float) -> str:
    """Return the interval of a share, in points; a dash where it is undefined.

    >>> in_points(0.5, 0.625), in_points(float("nan"), 1.0)
    ('50.0 to 62.5', '-')
    """
    return f"{decimals(100 * low, 1)} to {decimals(100 * high, 1)}" if math.isfinite(low) else "-"


def points(value: float) -> str:
    """Return a number of points in words.

    >>> points(1.0), points(2.5)
    ('1 point', '2.5 points')
    """
    return plural(value, "point")


PROBABILITIES = {
    "brier": "Brier score",
    "brier_prior": "Brier score of a constant, the share of rows with the label",
    "log_loss": "Log-loss",
    "calibration_error": "Calibration error, all labels together",
    "calibration_error_classes": "Calibration error, mean over labels",
}
"""What is measured of probabilities, in words."""


def plural(count: float, word: str) -> str:
    """Return a number with a word.

    >>> plural(1, "run"), plural(12, "run"), plural(20000, "class")
    ('1 run', '12 runs', '20000 classes')
    """
    ending = "" if count == 1 else "es" if word.endswith("s") else "s"
    return f"{count} {word}{ending}" if isinstance(count, int) else f"{count:g} {word}{ending}"


_LATEX = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$"}


def latex(text: str) -> str:
    """Escape text for LaTeX.

    >>> latex("50 % of a_b ± 1")
    '50 \\\\% of a\\\\_b $\\\\pm$ 1'
    """
    escaped = "".join(_LATEX.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in visible(text))
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)


def escaped(text: object) -> str:
    r"""Return text that Markdown shows as it is, wherever it stands: no markup, no table cell, no HTML, no new line.

    >>> print(escaped("a|b <script> [x](y) # *z*"))
    a\|b \<script\> \[x\]\(y\) \# \*z\*
    """
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&$])", r"\\\1", visible(text))


def in_cell(text: object) -> str:
    r"""Return text that Markdown shows as it is in the cell of a table, with no more backslashes than it takes.

    >>> print(in_cell("a|b <script> [x](y) [1.2, 3.4] (R&B)"))
    a\|b \<script> [x\](y) [1.2, 3.4] (R&B)
    """
    return re.sub(r"([\\|*_`<$]|~(?=~)|\](?=[(\[:])|&(?=#?\w+;))", r"\\\1", visible(text))


def fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text, lines=True).rstrip()}\n{fence}"
