"""The newest model that is whole: that of the last round, or of the round before it.

A damaged file costs what its round had learned, never the center. The round itself stays: its
credits, and the final words on its sessions, have been told to others.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from abps_node.errors import Damaged
from abps_node.store import models
from abps_node.store.store import Recovered, Store
from protocol.effects import Note
from protocol.events import ModelRef

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Salvaged:
    """What a center goes on from."""

    recovered: Recovered
    """``model`` and ``best_model`` are whole."""
    tensors: dict[str, torch.Tensor] | None
    """Of the model; None before the first round."""


def salvage(state_dir: Path, store: Store) -> Salvaged:
    """Recover the state and read its models.

    What stands in for a damaged file, and rounds that the database has lost, are told in the log
    and among the events. Raises ``Damaged`` if no committed model can be read.
    """
    recovered = store.recover()
    last = recovered.last_round
    _tell_lost_rounds(state_dir, store, last)
    if recovered.model is None:
        return Salvaged(recovered, None)
    number, ref, tensors = _newest_whole(state_dir, store)
    if number != last:
        value = store.record_of(number).validation.value
        text = (
            f"the model of round {last} is damaged or gone: going on with that of round {number} "
            f"(validation {value:.4f}), which is whole; what was learned since is lost, credits "
            "and beliefs stay"
        )
        _tell(store, last, text, "model-lost", "error")
    best = recovered.best_model
    if best is not None and best != ref and _read(state_dir, best) is None:
        text = (
            f"the model of the best round, {recovered.best_round}, is damaged or gone: round "
            f"{number} counts as the best"
        )
        _tell(store, last, text, "model-lost", "error")
        store.replace_best(number)
        recovered = store.recover()
    return Salvaged(replace(recovered, model=ref), tensors)


def _newest_whole(state_dir: Path, store: Store) -> tuple[int, ModelRef, dict[str, torch.Tensor]]:
    """Round, model and tensors; raises the error of the last round's model if there is none."""
    committed = store.committed_models()
    for number, ref in committed.items():
        tensors = _read(state_dir, ref)
        if tensors is not None:
            return number, ref, tensors
    newest = next(iter(committed.values()))
    models.read_model(state_dir, newest)
    raise AssertionError(f"{newest.name} was damaged a moment ago")


def _tell_lost_rounds(state_dir: Path, store: Store, last: int) -> None:
    """A damaged write-ahead log ends early without a word of SQLite; the models are witnesses."""
    newer = [number for number in models.rounds_of_files(state_dir) if number > last]
    if newer == [last + 1]:
        text = (
            f"round {last + 1} is done again: its model is there, but not the round; the center "
            "died while it committed it, or the end of the database was damaged"
        )
        _tell(store, last, text, "round-redone", "warning")
    elif newer:
        text = (
            f"the database ends with round {last}, but models are there up to round {newer[-1]}: "
            "the rounds since then are lost; state.sqlite or its write-ahead log was damaged, or "
            "came from an older backup"
        )
        _tell(store, last, text, "rounds-lost", "error")


def _read(state_dir: Path, ref: ModelRef) -> dict[str, torch.Tensor] | None:
    try:
        return models.read_model(state_dir, ref)
    except Damaged:
        return None


def _tell(store: Store, round_number: int, text: str, kind: str, level: str) -> None:
    store.note(Note(kind, level, None, text), round_number)
    _log.log(logging.getLevelName(level.upper()), "%s", text, extra={"event": kind})
