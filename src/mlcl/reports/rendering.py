"""A table in a terminal, in Markdown and in LaTeX, and the templates of pages.

Texts come from outside, and none is ever markup: this is where they are escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from mlcl.reports.markdown import in_cell
from mlcl.reports.markdown import table as markdown_table
from mlcl.texts import visible


@dataclass(frozen=True)
class Cell:
    """A formatted cell of a table.

    Attributes:
        text: what it says.
        best: shown in bold.
        pale: shown so that others stand out.
    """

    text: str
    best: bool = False
    pale: bool = False


@dataclass(frozen=True)
class Table:
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
        return markdown_table(
            [in_cell(head) for head in self.heads],
            [
                [f"**{in_cell(c.text)}**" if c.best else in_cell(c.text) for c in map(as_cell, row)]
                for row in self.rows
            ],
        )

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


def page_template(name: str) -> Any:
    """Return a template of this package: what it shows is text, unless it is HTML of ours (markupsafe's class)."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        return (
            visible(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
        )

    source = (resources.files("mlcl.reports") / name).read_text(encoding="utf-8")
    options: Any = {"undefined": StrictUndefined, "finalize": shown}
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, **options).from_string(source)


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


_LATEX = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$"}


def latex(text: str) -> str:
    """Escape text for LaTeX.

    >>> latex("50 % of a_b ± 1")
    '50 \\\\% of a\\\\_b $\\\\pm$ 1'
    """
    escaped = "".join(_LATEX.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in visible(text))
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)
