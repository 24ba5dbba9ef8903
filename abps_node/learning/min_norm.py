"""The point of least norm in the convex hull of gradients: the weights of a Pareto step.

μ* = argmin ‖Σ μ_s g_s‖² over μ ≥ 0, Σ μ_s = 1, from the Gram matrix G_st = ⟨g_s, g_t⟩ alone, in
double precision. Closed form for two gradients; for more an exact active-set method in the manner
of Lawson and Hanson: the minimizer of λᵀGλ + (1 − Σλ)² over λ ≥ 0 is a positive multiple of μ*, and
its normal matrix G + 11ᵀ is regular on every set of gradients that the method ever holds, also
where gradients are parallel, opposite or zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_TOLERANCE: Final = 1e-13
"""A constraint whose multiplier is within this of zero, in units of the trace, is not violated."""
_GOOD_ENOUGH: Final = 1e-12
"""In units of the trace: what two inner products may differ by."""
_POLISH_STEPS: Final = 50
_WILD: Final = 1e8
"""From here on squared lengths lie so far apart that in units of the trace the short ones blur."""
_NOTHING: Final = 1e-200
"""A squared length of no more than this, in units of the trace, is a gradient of zero."""
_PASSES: Final = 200
"""Far more than any matrix needed; rounding must not go round in circles."""


@dataclass(frozen=True)
class MinNorm:
    """The solution μ* and what it attains."""

    weights: FloatArray
    """μ*, ``(S,)``: not negative, sum 1."""
    norm2: float
    """‖Σ μ*_s g_s‖², in the units of the Gram matrix."""


def min_norm(gram: FloatArray) -> MinNorm:
    """Solve for a symmetric positive semidefinite ``gram`` ``(S, S)``.

    Where several weights attain the minimum one of them is returned, always the same. Raises
    ``ValueError`` for a matrix that is not square or not finite.
    """
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or gram.shape[0] == 0:
        raise ValueError(f"gram: found shape {gram.shape}, allowed: (S, S) with S of at least 1")
    if not np.isfinite(gram).all():
        raise ValueError("gram: found a number that is not finite, allowed: finite numbers")
    size = gram.shape[0]
    if size == 1:
        weights = np.ones(1)
    elif size == 2:
        weights = _two(float(gram[0, 0]), float(gram[0, 1]), float(gram[1, 1]))
    else:
        weights = _active_set(gram)
    return MinNorm(weights, max(0.0, float(weights @ gram @ weights)))


def kkt_residual(gram: FloatArray, weights: FloatArray) -> float:
    """By how much the optimality conditions fail, in units of the trace; 0 is exact.

    They say that no gradient has a smaller inner product with the solution d than d itself:
    ⟨g_s, d⟩ ≥ ‖d‖², with equality wherever μ_s > 0. That is the common descent property.
    """
    trace = float(np.trace(gram))
    if trace <= 0.0:
        return 0.0
    slack = gram @ weights - weights @ gram @ weights
    below = max(0.0, -float(slack.min()))
    return max(below, float(np.abs(slack * weights).max())) / trace


def _two(first: float, mixed: float, second: float) -> FloatArray:
    """μ_1 = clip(⟨g_2 − g_1, g_2⟩ / ‖g_1 − g_2‖²); equal gradients share evenly.

    Whether one of the two is the answer alone is read from the numerators: between gradients that
    are all but equal their sum, the denominator, has no digit left.
    """
    first_ends, second_ends = first <= mixed, second <= mixed
    if first_ends and second_ends:
        return np.array([0.5, 0.5])
    if first_ends or second_ends:
        return np.array([float(first_ends), float(second_ends)])
    share = min(1.0, (second - mixed) / (first + second - 2.0 * mixed))
    return np.array([share, 1.0 - share])


def _active_set(gram: FloatArray) -> FloatArray:
    trace = float(np.trace(gram))
    squares = gram.diagonal()
    least = float(squares.min())
    if least <= _NOTHING * trace:
        zero = squares <= _NOTHING * trace
        return np.asarray(zero / zero.sum())
    if trace >= _WILD * least:
        return _in_units_of(least, gram)
    normal = gram / trace + 1.0
    everything = _regular_solution(normal)
    if everything is not None:
        return np.asarray(everything / everything.sum())
    solution = _lawson_hanson(normal)
    return _polished(gram, solution / solution.sum(), _GOOD_ENOUGH * trace)


def _in_units_of(least: float, gram: FloatArray) -> FloatArray:
    """The same in units of the shortest gradient, than which the solution is no longer.

    In units of the trace, what a far longer gradient leaves of the others' inner products is
    rounding, and an objective of theirs could get worse.
    """
    solution = _lawson_hanson(gram / least + 1.0)
    weights = np.asarray(solution / solution.sum())
    if float(weights @ gram @ weights) <= least:
        return weights
    shortest = gram.diagonal() <= least
    return np.asarray(shortest / shortest.sum())


def _polished(gram: FloatArray, weights: FloatArray, tolerance: float) -> FloatArray:
    """Exact steps between two gradients at a time, for what rounding left over.

    Among gradients that are all but the same the matrix is so ill-conditioned that the digits of a
    solve mean little; a step along one edge of the simplex has no such trouble.
    """
    weights = weights.copy()
    squares = gram.diagonal()
    for _ in range(_POLISH_STEPS):
        inner = gram @ weights
        held = np.where(weights > 0.0, inner, -np.inf)
        if held.max() - inner.min() <= tolerance:
            break
        # The step that gains most: of two that all but agree whole weights move, and first.
        falls = np.maximum(held[:, None] - inner, 0.0)
        curvature = np.maximum(squares[:, None] + squares - 2.0 * gram, 0.0)
        whole = np.broadcast_to(weights[:, None], falls.shape)
        shares = np.minimum(
            whole, np.divide(falls, curvature, out=whole.copy(), where=curvature > 0)
        )
        gains = shares * (2.0 * falls - shares * curvature)
        most, least = divmod(int(gains.argmax()), gains.shape[1])
        share = shares[most, least]
        weights[least] += share
        weights[most] = max(0.0, weights[most] - share)
    return weights


def _regular_solution(normal: FloatArray) -> FloatArray | None:
    """The unconstrained solution where it is the answer: all weights positive. Else None.

    Among gradients that conflict it mostly is, and one solve is a third of the method's time.
    """
    try:
        solution = np.linalg.solve(normal, np.ones(normal.shape[0]))
    except np.linalg.LinAlgError:
        return None
    if solution.min() <= 0.0 or np.abs(normal @ solution - 1.0).max() > _TOLERANCE:
        return None
    return np.asarray(solution, dtype=np.float64)


def _lawson_hanson(normal: FloatArray) -> FloatArray:
    """argmin λᵀNλ/2 − Σλ over λ ≥ 0."""
    size = normal.shape[0]
    digits = 0.5 * _TOLERANCE * np.abs(normal)
    solution = np.zeros(size)
    held: list[int] = []
    barred: set[int] = set()
    # Every pass with a new member lowers the objective: but for rounding no set ever comes back.
    for _ in range(_PASSES):
        descent = 1.0 - normal @ solution
        rounding = np.maximum(_TOLERANCE, digits @ solution)
        free = [s for s in range(size) if s not in held and s not in barred]
        free = [s for s in free if descent[s] > rounding[s]]
        if not free:
            break
        entering = max(free, key=lambda s: float(descent[s]))
        trial = [*held, entering]
        target = _solved(normal, trial)
        if target is None or target[-1] <= 0.0:
            # In the span of the others up to rounding: it can bring nothing.
            barred.add(entering)
            continue
        held = _step(normal, solution, trial, target)
        barred.clear()
    return solution


def _step(
    normal: FloatArray, solution: FloatArray, held: Sequence[int], target: FloatArray
) -> list[int]:
    """Move ``solution`` in place to the minimizer over ``held``, dropping what would go below 0."""
    members = list(held)
    while target.min() <= 0.0:
        present = solution[members]
        falling = np.flatnonzero(target <= 0.0)
        shares = present[falling] / (present[falling] - target[falling])
        solution[members] = present + shares.min() * (target - present)
        solution[members[falling[shares.argmin()]]] = 0.0
        members = [s for s in members if solution[s] > 0.0]
        solved = _solved(normal, members)
        if solved is None:
            return members
        target = solved
    solution[members] = target
    return members


def _solved(normal: FloatArray, members: Sequence[int]) -> FloatArray | None:
    """The minimizer over these members without bounds; None where it is not unique."""
    try:
        solved = np.linalg.solve(normal[np.ix_(members, members)], np.ones(len(members)))
    except np.linalg.LinAlgError:
        return None
    return np.asarray(solved, dtype=np.float64)
