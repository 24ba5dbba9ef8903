"""Trunks on the wire: layout, packing, and the checks every received one must pass.

A trunk in this package is one flat float32 vector, shape ``(size,)``; how it maps to layers is the
``TrunkLayout`` that both sides derive from the contract. Nothing here knows torch.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protocol.errors import TrunkError

Vector = NDArray[np.float32]
WireDtype = Literal["float32", "bfloat16"]
BYTES_PER_PARAMETER: dict[str, int] = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class TrunkLayout:
    """Names and shapes of the trunk's tensors, in their order on the wire."""

    tensors: tuple[tuple[str, tuple[int, ...]], ...]

    @cached_property
    def size(self) -> int:
        """Number of parameters."""
        return sum(math.prod(shape) for _, shape in self.tensors)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of names and shapes; travels with every trunk."""
        return hashlib.sha256(repr(self.tensors).encode()).hexdigest()

    def payload_bytes(self, dtype: WireDtype) -> int:
        """Length in bytes of one trunk on the wire."""
        return self.size * BYTES_PER_PARAMETER[dtype]


def to_bfloat16(vector: Vector) -> NDArray[np.uint16]:
    """Round float32 to bfloat16 bit patterns, to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(vector, dtype=np.float32).view(np.uint32)
    rounded = ((bits + (((bits >> 16) & 1) + 0x7FFF).astype(np.uint32)) >> 16).astype(np.uint16)
    return np.where(np.isnan(vector), np.uint16(0x7FC0), rounded).astype(np.uint16)


def from_bfloat16(bits: NDArray[np.uint16]) -> Vector:
    """Widen bfloat16 bit patterns to float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def pack(vector: Vector, dtype: WireDtype) -> bytes:
    """Little-endian bytes of a trunk in the contract's wire type."""
    if dtype == "bfloat16":
        return to_bfloat16(vector).astype("<u2").tobytes()
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def unpack(payload: bytes | memoryview, layout: TrunkLayout, dtype: WireDtype) -> Vector:
    """The inverse of ``pack``; raises ``TrunkError`` if the length is not the layout's."""
    expected = layout.payload_bytes(dtype)
    if len(payload) != expected:
        raise TrunkError("trunk-length", f"found {len(payload)} bytes, allowed: {expected}")
    if dtype == "bfloat16":
        return from_bfloat16(np.frombuffer(payload, dtype="<u2").astype(np.uint16))
    return np.frombuffer(payload, dtype="<f4").astype(np.float32)


def norm(vector: Vector) -> float:
    """Euclidean norm, in double precision so that a huge trunk gives a number, not an overflow.

    By numpy's own sum: that of BLAS depends in its last bit on the number of threads, and a replay
    may have another.
    """
    return float(np.sqrt(np.square(vector, dtype=np.float64).sum()))


def norm_is_plausible(found: float, own_norm: float, max_ratio: float) -> bool:
    """Whether a trunk of this norm may be merged; never for a norm that is not a number."""
    return own_norm / max_ratio <= found <= own_norm * max_ratio


def check(vector: Vector, own_norm: float, max_ratio: float) -> None:
    """Refuse a trunk that is not finite, or whose norm is absurd beside the own trunk's.

    Allowed is ``own_norm / max_ratio <= norm <= own_norm * max_ratio`` (``policy.max_norm_ratio``).
    """
    if not np.isfinite(vector).all():
        bad = int(vector.size - np.isfinite(vector).sum())
        raise TrunkError(
            "trunk-not-finite", f"{bad} of {vector.size} parameters are NaN or infinite"
        )
    found = norm(vector)
    if not norm_is_plausible(found, own_norm, max_ratio):
        raise TrunkError(
            "trunk-norm",
            f"found norm {found:.4g}, allowed: {own_norm / max_ratio:.4g} to "
            f"{own_norm * max_ratio:.4g} ({max_ratio:g} times the own trunk's, either way)",
        )


def digest(payload: bytes | memoryview) -> str:
    """SHA-256 (hex) of a packed trunk."""
    return hashlib.sha256(payload).hexdigest()
