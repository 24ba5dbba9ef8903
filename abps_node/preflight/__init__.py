"""``abps check``: everything that can be known before the first round, with what to do about it."""

from abps_node.preflight.checks import check_center
from abps_node.preflight.finding import Finding, Severity

__all__ = ["Finding", "Severity", "check_center"]
