"""A first draft of the feature schema, from a table that nobody has described yet."""

from abps_node.schema.draft import FILL_IN, Draft, draft_schema

__all__ = ["FILL_IN", "Draft", "draft_schema"]
