"""Theory diagnostics: margins, imbalance terms of Theorem 1, and the distance of a memory from its task.

They are defined in specification.md#theory. A diagnostic, not a guarantee; `REMARK` says why.
"""

from mlcl.theory.bounds import (
    DirectionCheck,
    best_margins,
    check_proposition,
    imbalance_terms,
    numeric_margins,
    optimal_margins,
)
from mlcl.theory.diagnosis import (
    REMARK,
    Diagnosis,
    RiskSettings,
    Scored,
    TaskDiagnosis,
    class_risks,
    diagnose_task,
    random_choice,
)
from mlcl.theory.sources import diagnose, diagnose_run

__all__ = [
    "REMARK",
    "Diagnosis",
    "DirectionCheck",
    "RiskSettings",
    "Scored",
    "TaskDiagnosis",
    "best_margins",
    "check_proposition",
    "class_risks",
    "diagnose",
    "diagnose_run",
    "diagnose_task",
    "imbalance_terms",
    "numeric_margins",
    "optimal_margins",
    "random_choice",
]
