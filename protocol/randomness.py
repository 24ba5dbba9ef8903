"""Every random choice derives from (seed, round, purpose), so that a redo repeats itself."""

from __future__ import annotations

import hashlib
import random


def derive_seed(seed: int, *parts: str | int) -> int:
    """A 63-bit seed from a base seed and any number of labels, stable across machines."""
    text = "\x1f".join([str(seed), *map(str, parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derive_rng(seed: int, *parts: str | int) -> random.Random:
    """A generator of its own for one purpose of one round."""
    return random.Random(derive_seed(seed, *parts))
