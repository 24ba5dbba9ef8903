"""A center's model for others to use: ONNX with its preprocessing inside, and a model card."""

from abps_node.export.bundle import FILES, Export, export_model

__all__ = ["FILES", "Export", "export_model"]
