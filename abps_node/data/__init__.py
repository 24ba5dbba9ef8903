"""A center's patients: read, checked, split, encoded. No value of a patient leaves this process."""

from abps_node.data.center import (
    CenterData,
    DataReport,
    Split,
    SplitCounts,
    UnknownLevels,
    load_center,
)
from abps_node.data.encode import Encoder, input_names, input_size

__all__ = [
    "CenterData",
    "DataReport",
    "Encoder",
    "Split",
    "SplitCounts",
    "UnknownLevels",
    "input_names",
    "input_size",
    "load_center",
]
