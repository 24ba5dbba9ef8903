"""The policy presets of the paper (Table 1) and of this project, as plain config values.

A preset only supplies defaults; keys written out beside it win. Base values (kappa 3, epsilon 0.1,
gamma sqrt(2), tau_acc 0.5, 50 rounds) are those of section 6.3 and stand in ``contract.Policy``.
"""

from __future__ import annotations

from typing import Any, Final

_P = {"head_layers": 1}
_Q = {"wire_dtype": "bfloat16"}
_K1 = {"kappa": 1}
_GOAL = {"card": "enriched", "keep_fraction": 0.25, "keep": "per-center"}

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "abps": {},
    "abps+p": {**_P},
    "abps+q": {**_Q},
    "abps+p+q": {**_P, **_Q},
    "abps+p+q+k1": {**_P, **_Q, **_K1},
    "abps+p+q+k1+hom": {**_P, **_Q, **_K1, **_GOAL, "goal": "homogeneity"},
    "abps+p+q+k1+div": {**_P, **_Q, **_K1, **_GOAL, "goal": "diversity"},
    "abps+p+q+k1+align": {**_P, **_Q, **_K1, **_GOAL, "goal": "alignment"},
    "abps-x": {
        **_Q,
        **_K1,
        **_GOAL,
        "head_layers": 2,
        "goal": "homogeneity",
        "momentum": 0.5,
        "rounds": 100,
        "patience": 10,
    },
    # Not in the paper: gamma so small that the posterior, not the bonus, decides.
    "abps-live": {**_P, **_Q, "gamma": 0.1},
}
"""Preset name to the ``Policy`` fields it sets."""
