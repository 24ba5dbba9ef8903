"""One method, one seed, one result for FedCARE's tables: a plain object, fit for JSON.

Apart from ``seconds`` it depends on the cell alone. The test split decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from abps_node.config_text import checked
from abps_node.errors import ConfigError
from abps_node.learning.objective_losses import durations
from protocol.contract import Training
from sim.choices import chosen
from sim.multi.base import AnyMethod, RoundStats, Settings
from sim.multi.clients import Clients, Options, clients_of
from sim.multi.datasets import load
from sim.multi.methods import METHODS, Entry
from sim.runner import one_thread, versions

KIND: Final = "objectives"
PLACES: Final = 6
"""Decimals of the curves."""

Told = Callable[[int, int], None]


@dataclass(frozen=True)
class TaskCell:
    """What is to be run."""

    method: str
    seed: int
    data: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    data_dir: Path | None = None

    @property
    def row(self) -> str:
        """The name of the row."""
        return self.name or self.method

    def config(self) -> dict[str, Any]:
        """All that the result depends on and that is known before anything is read."""
        method = entry_of(self.method).make()
        return {
            "kind": KIND,
            "method": self.method,
            "hyperparameters": asdict(method) if is_dataclass(method) else {},
            "settings": settings_of(self).model_dump(),
            "data": {"name": self.data, "options": options_of(self).model_dump()},
        }

    def run(self) -> dict[str, Any]:
        """See ``run``."""
        return run(self)


def entry_of(name: str) -> Entry:
    """A method by name; ``ConfigError`` with those that are like it."""
    return chosen("method", name, METHODS)


def settings_of(cell: TaskCell) -> Settings:
    """Checked; ``ConfigError`` names row and key."""
    model, problems = checked(Settings, dict(cell.settings), f"{cell.row}: settings")
    if model is None:
        raise ConfigError("\n".join(problems))
    return model


def options_of(cell: TaskCell) -> Options:
    """Checked; ``ConfigError`` names the key."""
    model, problems = checked(Options, dict(cell.options), f"{cell.data}: options")
    if model is None:
        raise ConfigError("\n".join(problems))
    return model


def run(cell: TaskCell, told: Told | None = None) -> dict[str, Any]:
    """Run one cell.

    Raises ``ConfigError`` and ``DataError`` for settings and data, ``TrainingDiverged`` if a model
    gets out of hand.
    """
    settings, options = settings_of(cell), options_of(cell)
    method: AnyMethod = entry_of(cell.method).make()
    began = time.perf_counter()
    with one_thread():
        clients = _clients(cell.data, cell.data_dir, options.model_dump_json(), cell.seed)
        state = method.init(clients, settings)
        most = method.rounds(clients, settings)
        stats: list[RoundStats] = []
        for t in range(1, most + 1):
            stats.append(method.round(clients, settings, state, t))
            if told is not None:
                told(t, most)
            length2 = stats[-1].stationarity
            if length2 is not None and length2 <= settings.stationarity:
                break
        before = assess(clients, settings, method, state)
        tuned = method.finish(clients, settings, state)
        after = assess(clients, settings, method, state) if tuned else before
    return {
        "name": cell.row,
        "method": cell.method,
        "seed": cell.seed,
        "config": {**cell.config(), "data": described(cell, clients, options)},
        "versions": versions(),
        "rounds_run": len(stats),
        **after,
        "before_stage2": before["tasks"] if tuned else None,
        "bytes": sum(each.bytes for each in stats),
        "mini_batches": {"federated": sum(each.batches for each in stats), "stage2": tuned},
        "history": history(clients, stats),
        "seconds": round(time.perf_counter() - began, 3),
    }


@lru_cache(maxsize=1)
def _clients(data: str, data_dir: Path | None, options: str, seed: int) -> Clients:
    """Of one seed, kept for the next row: no method changes them."""
    chosen = Options.model_validate_json(options)
    return clients_of(load(data, data_dir), chosen, seed, Training())


def described(cell: TaskCell, clients: Clients, options: Options) -> dict[str, Any]:
    """What stands in a result about its data."""
    private = {task.name: len(task.private) for task in clients.tasks}
    return {
        "name": cell.data,
        "options": options.model_dump(),
        "common": clients.common,
        "private": private,
        "clients": {
            each.id: {"tasks": [task.name for task in each.tasks], "train_rows": each.size}
            for each in clients.members
        },
        "notes": list(clients.notes),
    }


def assess(clients: Clients, settings: Settings, method: AnyMethod, state: Any) -> dict[str, Any]:
    """Test metrics: per task the mean over its clients, and over all test rows together."""
    outputs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for place, client in enumerate(clients.members):
        model = method.model(clients, settings, state, place)
        train, test = client.train[model.view], client.test[model.view]
        statistics = model.net.statistics(model.weights, train.x)
        found = model.net.outputs(model.weights, test.x, test.private, statistics)
        own = client.data.objectives
        if own is None:
            raise AssertionError("a client was prepared without its outcomes")
        for number, task in enumerate(client.tasks):
            y = own.test.y[:, number].astype(np.float64)
            known = ~np.isnan(y)
            values = found[number] if task.binary else durations(found[number])
            outputs.setdefault(task.name, []).append((values.numpy()[known], y[known]))
    tasks = {
        task.name: measured(task.binary, outputs[task.name])
        for task in clients.tasks
        if task.name in outputs
    }
    auroc = [each["mean"] for each in tasks.values() if each["metric"] == "auroc"]
    known_auroc = [value for value in auroc if value is not None]
    return {"mean_auroc": float(np.mean(known_auroc)) if known_auroc else None, "tasks": tasks}


def measured(binary: bool, parts: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """One task over its clients; None where no client's test split holds both classes."""
    from sklearn.metrics import roc_auc_score

    def one(values: np.ndarray, y: np.ndarray) -> float | None:
        if not binary:
            return float(np.abs(values - y).mean()) if y.size else None
        return float(roc_auc_score(y, values)) if 0 < y.sum() < y.size else None

    each = [one(values, y) for values, y in parts]
    scored = [value for value in each if value is not None]
    pooled = one(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return {
        "metric": "auroc" if binary else "mae",
        "mean": float(np.mean(scored)) if scored else None,
        "pooled": pooled,
        "per_client": each,
        "rows": int(sum(y.size for _, y in parts)),
        "events": int(sum((y > 0).sum() for _, y in parts)) if binary else None,
    }


def history(clients: Clients, stats: list[RoundStats]) -> dict[str, Any]:
    """One value per round of what is drawn: losses, and where a server solves for λ*, these, the
    lengths of the tasks' gradients, the cosines between them, and ‖d‖²."""
    names = [task.name for task in clients.tasks]
    found: dict[str, Any] = {
        "losses": {
            name: [_short(each.losses.get(name)) for each in stats]
            for name in names
            if name in stats[-1].losses
        }
    }
    weights = [each.weights for each in stats if each.weights is not None]
    grams = [each.gram for each in stats if each.gram is not None]
    if not grams:
        return found
    norms = [np.sqrt(np.maximum(gram.diagonal(), 0.0)) for gram in grams]
    pairs = [(b, a) for a in range(len(names)) for b in range(a)]
    return {
        **found,
        "weights": {name: [_short(each[n]) for each in weights] for n, name in enumerate(names)},
        "norms": {name: [_short(each[n]) for each in norms] for n, name in enumerate(names)},
        "cosines": {
            f"{names[a]} × {names[b]}": [_cosine(gram, a, b) for gram in grams] for a, b in pairs
        },
        "stationarity": [each.stationarity for each in stats],
    }


def _cosine(gram: Any, a: int, b: int) -> float | None:
    scale = float(np.sqrt(gram[a, a] * gram[b, b]))
    return _short(gram[a, b] / scale) if scale > 0 else None


def _short(value: Any) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), PLACES)
