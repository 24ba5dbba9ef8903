"""How centers train, merge and are measured, many at once: two engines, one interface."""

from sim.engine.batched import BatchedEngine
from sim.engine.engine import Engine, Mix
from sim.engine.objective import Hand, Objective
from sim.engine.sequential import SequentialEngine
from sim.engine.stack import Scores, SplitName, Stack, Table

__all__ = [
    "BatchedEngine",
    "Engine",
    "Hand",
    "Mix",
    "Objective",
    "Scores",
    "SequentialEngine",
    "SplitName",
    "Stack",
    "Table",
]
