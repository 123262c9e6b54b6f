"""Reports: tables, figures and a self-contained HTML page from the folders of finished runs."""

from mlcl.reports.gather import RunGroup, Section, sections
from mlcl.reports.records import Run, read_run
from mlcl.reports.tables import Line, table_lines

__all__ = ["Line", "Run", "RunGroup", "Section", "read_run", "sections", "table_lines"]
