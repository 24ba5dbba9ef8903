"""A first draft of the feature schema, from a table that nobody has described yet."""

from abps_node.schema.draft import Draft, draft_schema

__all__ = ["Draft", "draft_schema"]
