"""New patients through a center's model, with exactly the preprocessing of its training."""

from abps_node.predict.score import Scores, score
from abps_node.predict.write import require_writable, write_scores

__all__ = ["Scores", "require_writable", "score", "write_scores"]
