"""Settings: `schema` lists them, `parts` reads those of the parts, `resolve` turns names and files into a `Config`.

The shipped configs are the YAML files in ``shipped``.
"""

from mlcl.config.schema import (
    AugmentConfig,
    CheckpointConfig,
    Config,
    LabelsConfig,
    LossConfig,
    MemoryConfig,
    ModelConfig,
    RegulariserConfig,
    StreamConfig,
    TrainConfig,
    to_dict,
)

__all__ = [
    "AugmentConfig",
    "CheckpointConfig",
    "Config",
    "LabelsConfig",
    "LossConfig",
    "MemoryConfig",
    "ModelConfig",
    "RegulariserConfig",
    "StreamConfig",
    "TrainConfig",
    "to_dict",
]
