"""Reports: tables, figures and a self-contained HTML page from the folders of finished runs."""

from mlcl.reports.gather import Group, Section, sections
from mlcl.reports.records import Run, read_run
from mlcl.reports.tables import Line, table_lines

__all__ = ["Group", "Line", "Run", "Section", "read_run", "sections", "table_lines"]
