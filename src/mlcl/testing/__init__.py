"""Checks for parts of your own: the rules that all shipped parts keep, as functions for your tests.

Each function takes a part by its registered name, or the function or class itself, and options of the part by keyword.
It calls every rule of that kind of part with ``cases`` random cases of its own, made from ``seed``, from small to
large. What breaks a rule is an `AssertionError` in one sentence: the part, the rule, and a small example. pytest is not
needed.

    def test_my_memory():
        check_memory(update_richest, fraction=0.5)

The rules themselves are the functions in ``MEMORY_RULES``, ``LOSS_RULES``, ...: each states its rule in its docstring.
"""

from mlcl.testing.augmentations import AUGMENTATION_RULES, check_augmentation
from mlcl.testing.label_policies import LABEL_POLICY_RULES, check_label_policy
from mlcl.testing.losses import LOSS_RULES, check_loss
from mlcl.testing.memories import MEMORY_RULES, check_memory
from mlcl.testing.models import MODEL_RULES, check_model
from mlcl.testing.regularisers import REGULARISER_RULES, check_regulariser
from mlcl.testing.rules import statement
from mlcl.testing.sources import SOURCE_RULES, check_source

__all__ = [
    "AUGMENTATION_RULES",
    "LABEL_POLICY_RULES",
    "LOSS_RULES",
    "MEMORY_RULES",
    "MODEL_RULES",
    "REGULARISER_RULES",
    "SOURCE_RULES",
    "check_augmentation",
    "check_label_policy",
    "check_loss",
    "check_memory",
    "check_model",
    "check_regulariser",
    "check_source",
    "statement",
]
