"""One method, one seed, one result: how a cell of a table comes about.

The result is a plain object, fit for JSON. Apart from ``seconds`` it depends on the cell alone: the
same cell gives the same bits on one machine, whatever runs beside it.
"""

from __future__ import annotations

import math
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, Final

import numpy as np
import torch

from abps_node import __version__
from abps_node.config_text import checked
from abps_node.errors import ConfigError
from protocol import PROTOCOL_VERSION
from protocol.contract import Policy
from protocol.randomness import derive_seed
from sim.bandwidth import bandwidth_ratio, bandwidth_ratio_vs_50
from sim.choices import chosen
from sim.datasets.base import Progress
from sim.engine import BatchedEngine, Engine
from sim.federation import Federation
from sim.methods import METHODS, Entry, Method, RoundStats, State
from sim.methods.abps import Peers
from sim.metrics import Assessment, assess, mean_auroc
from sim.sources import Source, description, federation
from sim.stopping import EarlyStop, Scope

PLACES: Final = 6
"""Decimals of the curves; everything else is written in full."""

Told = Callable[[int, int], None]
"""Told of the round that is done and of how many there may be."""


@dataclass(frozen=True)
class Cell:
    """What is to be run."""

    method: str
    seed: int
    source: Source
    name: str = ""
    """Of the row in the table; the method's, if empty."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the policy that differ from the method's own."""
    early_stop: Scope = "network"
    beliefs: bool = False
    """Whether the result holds everybody's posterior means."""

    @property
    def row(self) -> str:
        """The name of the row."""
        return self.name or self.method

    def config(self) -> dict[str, Any]:
        """See ``config_of``."""
        return config_of(self)

    def run(self) -> dict[str, Any]:
        """See ``run``."""
        return run(self)


def entry_of(name: str) -> Entry:
    """A method by name; ``ConfigError`` with those that are like it."""
    return chosen("method", name, METHODS)


def policy_of(cell: Cell) -> Policy:
    """The method's policy with the cell's changes; ``ConfigError`` names method and key."""
    entry = entry_of(cell.method)
    model, problems = checked(Policy, {**entry.policy, **cell.policy}, f"{cell.row}: policy")
    if model is None:
        raise ConfigError("\n".join(problems))
    return model


def config_of(cell: Cell) -> dict[str, Any]:
    """All that the result depends on and that is known before anything is read."""
    method = entry_of(cell.method).make()
    return {
        "method": cell.method,
        "hyperparameters": asdict(method) if is_dataclass(method) else {},
        "policy": policy_of(cell).model_dump(),
        "early_stop": cell.early_stop,
        "data": {"name": cell.source.name, "options": dict(cell.source.options)},
        **cell.source.files(),
    }


def run(cell: Cell, progress: Progress | None = None, told: Told | None = None) -> dict[str, Any]:
    """Run one cell and return its result.

    Raises ``ConfigError`` for an unknown method or a faulty policy, ``ConfigError`` and
    ``DataError`` for the data, ``TrainingDiverged`` if a model gets out of hand.
    """
    policy = policy_of(cell)
    began = time.perf_counter()
    with one_thread():
        given = federation(cell.source, cell.seed, progress)
        made = given.with_policy(policy)
        seeds = {center.id: derive_seed(cell.seed, center.id) for center in made.centers}
        engine = BatchedEngine(made.contract, made.centers, seeds)
        try:
            played = play(entry_of(cell.method).make(), engine, cell.seed, cell.early_stop, told)
            return {
                **_result(cell, made, engine, played, _replaced(cell.source, given, policy)),
                "seconds": round(time.perf_counter() - began, 3),
            }
        finally:
            engine.close()


@dataclass
class Played:
    """A run, round by round, and its end."""

    stats: list[RoundStats]
    active: list[int]
    """Centers that took part in each round."""
    auroc: list[float | None]
    """Mean test AUROC after each round, of the models at that time."""
    best_rounds: list[int]
    state: State
    end: Assessment
    """Of the models that early stop chose, or of the last ones."""


def play(
    method: Method[Any], engine: Engine, seed: int, scope: Scope, told: Told | None = None
) -> Played:
    """Run a method on an engine to its last round or early stop; the test split decides nothing."""
    policy = engine.contract.policy
    stop = EarlyStop(scope, policy.patience, engine.metrics, policy.utility)
    state = method.init(engine, seed)
    stats: list[RoundStats] = []
    active: list[int] = []
    curve: list[float | None] = []
    for t in range(1, policy.rounds + 1):
        active.append(int(state.active.sum()))
        stats.append(method.round(engine, state, t))
        models = method.models(engine, state)
        curve.append(mean_auroc(engine.predict(models, "test")))
        if policy.patience is not None:
            values = stats[-1].validation
            stop.judge(t, engine.measure(models) if values is None else values, models)
            state.active[:] = stop.active
        if told is not None:
            told(t, policy.rounds)
        if stop.over:
            break
    chosen = stop.chosen(method.models(engine, state))
    end = assess(engine.predict(chosen, "test"))
    return Played(stats, active, curve, stop.best_rounds, state, end)


def _replaced(source: Source, given: Federation, policy: Policy) -> dict[str, Any]:
    """What a federation directory says of the policy, where the method says something else."""
    if source.directory is None:
        return {}
    theirs, ours = given.contract.policy.model_dump(), policy.model_dump()
    return {"policy_of_directory": {key: theirs[key] for key in ours if theirs[key] != ours[key]}}


def _result(
    cell: Cell, made: Federation, engine: Engine, played: Played, more: Mapping[str, Any]
) -> dict[str, Any]:
    stats, centers, size = played.stats, len(engine.centers), engine.model.size
    rounds, moved = len(stats), sum(each.bytes for each in stats)
    center_rounds = sum(played.active)
    choices = sum(each.credits.choices for each in stats)
    earned = sum(each.credits.earned for each in stats)
    rests = sum((Counter(each.rests) for each in stats), Counter[str]())
    found = {
        "name": cell.row,
        "method": cell.method,
        "seed": cell.seed,
        "config": {
            **config_of(cell),
            "data": {**description(cell.source, made), **more},
            "contract": made.contract.digest(),
            "model": made.contract.model.model_dump(),
            "training": made.contract.training.model_dump(),
            "utilities": dict(sorted(Counter(engine.metrics).items())),
        },
        "versions": versions(),
        "rounds_run": rounds,
        **played.end.summary(),
        "bytes": moved,
        "bandwidth_ratio": bandwidth_ratio(moved, centers, size, rounds),
        "bandwidth_ratio_vs_50": bandwidth_ratio_vs_50(moved, centers, size),
        "mean_partners": sum(int(each.partners.sum()) for each in stats) / center_rounds,
        "belief_changed_order": _share(sum(each.credits.changed for each in stats), choices),
        "clipped_share": _share(sum(each.credits.clipped for each in stats), earned),
        "isolation": {cause: count / center_rounds for cause, count in sorted(rests.items())},
        "per_center": _per_center(engine, played),
        "history": _history(played, engine),
    }
    if cell.beliefs and isinstance(played.state, Peers):
        found["beliefs"] = _beliefs(played.state)
    return found


def versions() -> dict[str, str]:
    """What computed the result."""
    return {
        "abps": __version__,
        "protocol": str(PROTOCOL_VERSION),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def _per_center(engine: Engine, played: Played) -> dict[str, dict[str, Any]]:
    end = played.end
    partners = np.sum([each.partners for each in played.stats], axis=0)
    return {
        name: {
            "train_rows": int(engine.sizes[row]),
            "test_rows": int(end.rows[row]),
            "test_events": int(end.events[row]),
            "auroc": None if math.isnan(end.auroc[row]) else float(end.auroc[row]),
            "brier": float(end.brier[row]),
            "utility": engine.metrics[row],
            "exchanges": int(partners[row]),
            "best_round": played.best_rounds[row] or len(played.stats),
        }
        for row, name in sorted(enumerate(engine.ids), key=lambda item: item[1])
    }


def _history(played: Played, engine: Engine) -> dict[str, Any]:
    """One value per round of everything that is drawn over rounds."""
    stats, active = played.stats, played.active
    causes = sorted({cause for each in stats for cause in each.rests})
    counts = [(each, count or 1) for each, count in zip(stats, active, strict=True)]
    return {
        "auroc": [None if value is None else round(value, PLACES) for value in played.auroc],
        "loss": [None if math.isnan(each.loss) else round(each.loss, PLACES) for each in stats],
        "bytes": [each.bytes for each in stats],
        "active": active,
        "partners": [round(int(each.partners.sum()) / count, PLACES) for each, count in counts],
        "isolation": {
            cause: [round(each.rests.get(cause, 0) / count, PLACES) for each, count in counts]
            for cause in causes
        },
    }


def _beliefs(state: Peers) -> dict[str, Any]:
    """Posterior means by center and peer; who is not named stands at the prior."""
    ids = state.rules.field.ids
    return {
        ids[place]: {
            ids[peer]: [round(belief.mean, 4), belief.n] for peer, belief in sorted(held.items())
        }
        for place, held in enumerate(state.beliefs)
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums of torch come in one order, however many cores there are; given back at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
