"""Methods: presets of independent parts, and the parts that are neither loss nor memory.

``presets`` lists the methods; ``regularisers``, ``labels`` (label policies) and ``augment`` are the parts they name;
``step`` is what parts may look at while training.
"""

from mlcl.methods.presets import PRESETS, Preset
from mlcl.registry import discover

discover(__name__, __path__)

__all__ = ["PRESETS", "Preset"]
