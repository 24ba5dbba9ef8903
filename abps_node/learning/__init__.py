"""One center's learning: model, local step, merge, utility, test metrics."""

from abps_node.learning.learner import Learner, MergeResult, TrainResult
from abps_node.learning.local_step import TrainingDiverged
from abps_node.learning.objective_learner import ObjectiveLearner, Tuning, make_learner
from abps_node.learning.start import initial_trunk, initial_trunk_digest, trunk_layout

__all__ = [
    "Learner",
    "MergeResult",
    "ObjectiveLearner",
    "TrainResult",
    "TrainingDiverged",
    "Tuning",
    "initial_trunk",
    "initial_trunk_digest",
    "make_learner",
    "trunk_layout",
]
