"""What all centers of a contract start from: the same trunk, whatever heads they put on it."""

from __future__ import annotations

import hashlib

from abps_node.learning.model import Mlp
from abps_node.learning.objective_net import ObjectiveNet
from protocol.contract import Contract
from protocol.trunk import TrunkLayout, Vector


def _model(contract: Contract) -> Mlp | ObjectiveNet:
    if contract.model.kind == "mlp":
        return Mlp.of(contract)
    return ObjectiveNet.of(contract, 0, ("label",))


def trunk_layout(contract: Contract) -> TrunkLayout:
    """Names and shapes of the shared tensors, in their order on the wire."""
    return _model(contract).trunk


def initial_trunk(contract: Contract) -> Vector:
    """The trunk that every center of this contract starts from."""
    model = _model(contract)
    vector: Vector = model.initial(contract.model.init_seed)[: model.trunk.size].numpy().copy()
    return vector


def initial_trunk_digest(contract: Contract) -> str:
    """SHA-256 (hex) of the initial trunk's float32 little-endian bytes and its layout.

    It travels in the handshake: averaging independently drawn networks would destroy both.
    """
    payload = initial_trunk(contract).astype("<f4").tobytes()
    return hashlib.sha256(payload + trunk_layout(contract).digest.encode()).hexdigest()
