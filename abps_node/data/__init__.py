"""A center's patients: read, checked, split, encoded. No value of a patient leaves this process."""

from abps_node.data.center import (
    CenterData,
    DataReport,
    Split,
    SplitCounts,
    UnknownLevels,
    load_center,
    load_with_patients,
    prepare_center,
    prepare_table,
    split_rows,
)
from abps_node.data.encode import Encoder, input_names, input_size
from abps_node.data.fingerprint import Fingerprint
from abps_node.data.patients import Patients, column_names, read_patients
from abps_node.data.table import read_table, table_in_memory

__all__ = [
    "CenterData",
    "DataReport",
    "Encoder",
    "Fingerprint",
    "Patients",
    "Split",
    "SplitCounts",
    "UnknownLevels",
    "column_names",
    "input_names",
    "input_size",
    "load_center",
    "load_with_patients",
    "prepare_center",
    "prepare_table",
    "read_patients",
    "read_table",
    "split_rows",
    "table_in_memory",
]
