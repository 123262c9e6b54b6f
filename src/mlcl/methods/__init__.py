"""Methods: presets of independent parts, and the parts that are neither loss nor memory."""

from mlcl.methods.presets import PRESETS, Preset, get_preset

__all__ = ["PRESETS", "Preset", "get_preset"]
