"""Many centers at once: stacked parameters, batched products, a backward pass by hand.

Every chunk of centers is computed by itself, on one thread and within the cache, and writes only
its own rows: the result does not depend on the number of threads. It draws the very batches and
dropout masks of ``SequentialEngine`` and differs from it by rounding alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.contract import Contract
from sim.engine import mixing, ranks
from sim.engine.chunks import Chunk, by_size, chunks
from sim.engine.engine import Engine, Mix
from sim.engine.network import Network, Workspace
from sim.engine.objective import Objective
from sim.engine.stack import Floats, Index, Scores, SplitName, Stack, Table, offsets
from sim.engine.training import Trainer
from sim.federation import SimCenter

_CACHE = 4_000_000
"""Bytes that parameters, moments and gradients of a chunk may take: about the level-2 cache.
Larger chunks spread the cost of a call over more centers, smaller ones stay closer to the core."""
_LARGEST = 32
_MEASURES = {
    "auroc": ranks.auroc,
    "brier": ranks.negative_brier,
    "logloss": ranks.negative_log_loss,
}
_Item = TypeVar("_Item")


class BatchedEngine(Engine):
    """The fast one; ``threads`` run chunks side by side."""

    def __init__(
        self,
        contract: Contract,
        centers: Sequence[SimCenter],
        seeds: Mapping[str, int],
        threads: int = 1,
    ) -> None:
        super().__init__(contract, centers, seeds)
        self._threads = threads
        self._network = Network(self.model)
        self._local = threading.local()
        # Also with one thread: only there may torch be told to use one, not where the caller lives.
        self._pool = ThreadPoolExecutor(threads, "chunks", lambda: torch.set_num_threads(1))
        self._trainer = Trainer(contract, self._network, self.tables["train"], self.seeds, self.ids)
        size = contract.training.batch_size
        self._chunks = chunks(
            self.sizes,
            lambda rows: self._most(min(rows, size), copies=4),
            lambda rows: -(-rows // size),
        )

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def train(
        self,
        stack: Stack,
        t: int,
        who: Index | None = None,
        objective: Objective | None = None,
    ) -> Floats:
        """See ``Engine.train``."""
        losses = np.full(len(self.centers), np.nan)
        chosen = np.zeros(len(self.centers), dtype=bool)
        chosen[slice(None) if who is None else who] = True

        def train(chunk: Chunk) -> None:
            members = chunk.first + np.flatnonzero(chosen[chunk.places])
            if members.size:
                losses[members] = self._trainer.train(stack, t, members, objective, self._space())

        self._each(train, self._chunks)
        return losses

    def merge(self, stack: Stack, sent: torch.Tensor, mixes: Sequence[Mix]) -> list[Floats]:
        """See ``Engine.merge``."""
        counts = [len(mix.coalitions) for mix in mixes]
        owners = np.repeat([mix.center for mix in mixes], counts)
        models = _Models(self.tables["validation"], owners)
        first, size = offsets(counts), self.model.trunk.size

        def run(places: Index) -> None:
            chosen = [mixes[place] for place in places]
            if chosen[0].coalitions:
                weights = mixing.coalitions(stack.weights, sent, chosen, size, self._space())
                here = np.concatenate([np.arange(first[p], first[p + 1]) for p in places])
                models.put(here, *self._logits(weights, models.table, owners[here]))
            for mix in chosen:
                mixing.move(stack.weights, sent, mix, size)

        self._each(run, self._alike(mixes))
        return np.split(self._utilities(models), first[1:-1])

    def _alike(self, mixes: Sequence[Mix]) -> list[Index]:
        """Places of mixes that can be computed together, chunk by chunk."""
        rows = np.array([self.tables["validation"].sizes[mix.center] for mix in mixes])
        shapes = [(len(mix.partners), len(mix.coalitions)) for mix in mixes]
        found: list[Index] = []
        for shape in sorted(set(shapes)):
            same = np.array([place for place, other in enumerate(shapes) if other == shape])
            same = same[by_size(rows[same])]
            most = partial(self._most, copies=1, each=max(shape[1], 1))
            parts = chunks(rows[same], most)
            found += [same[part.places] for part in parts]
        return found

    def measure(self, weights: torch.Tensor, who: Index | None = None) -> Floats:
        """See ``Engine.measure``."""
        chosen = np.arange(len(self.centers)) if who is None else who
        models = _Models(self.tables["validation"], chosen)
        self._evaluate(weights, models, chosen)
        values = np.full(len(self.centers), np.nan)
        values[chosen] = self._utilities(models)
        return values

    def predict(
        self, weights: torch.Tensor, split: SplitName, pairs: tuple[Index, Index] | None = None
    ) -> Scores:
        """See ``Engine.predict``."""
        everybody = np.arange(len(self.centers))
        owners, rows = (everybody, everybody) if pairs is None else pairs
        models = _Models(self.tables[split], owners)
        self._evaluate(weights, models, rows)
        return Scores(models.logits, models.labels(), models.start)

    def represent(self, weights: torch.Tensor, split: SplitName = "train") -> torch.Tensor:
        """See ``Engine.represent``."""
        table = self.tables[split]
        hidden = torch.empty(len(table.y), self.model.hidden[-1])

        def run(owners: Index) -> None:
            index, real = _padded(table, owners)
            x = table.x[torch.from_numpy(index)]
            _, last = self._network.evaluate(_rows(weights, owners), x, self._space())
            hidden[torch.from_numpy(index[real])] = last[torch.from_numpy(real)]

        self._each(run, self._parts(table, np.arange(len(self.centers))))
        return hidden

    def pooled(self) -> BatchedEngine:
        """See ``Engine.pooled``."""
        center, seeds = self._pooled_center()
        return BatchedEngine(self.contract, [center], seeds, self._threads)

    def _evaluate(self, weights: torch.Tensor, models: _Models, rows: Index) -> None:
        """Fill in the logits of these rows of ``weights`` ``(C, P)``, or of ``(P,)``."""

        def run(places: Index) -> None:
            chosen = _rows(weights, rows[places])
            models.put(places, *self._logits(chosen, models.table, models.owners[places]))

        self._each(run, self._parts(models.table, models.owners))

    def _parts(self, table: Table, owners: Index) -> list[Index]:
        """Places of models that are evaluated together, chunk by chunk."""
        order = by_size(table.sizes[owners])
        parts = chunks(table.sizes[owners][order], partial(self._most, copies=1))
        return [order[part.places] for part in parts]

    def _logits(
        self, weights: torch.Tensor, table: Table, owners: Index
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Logits ``(M, n)`` of models ``(M, P)`` on their owners' rows, and which are real."""
        index, real = _padded(table, owners)
        x = table.x[torch.from_numpy(index)]
        out, _ = self._network.evaluate(weights, x, self._space())
        return out.numpy(), real

    def _utilities(self, models: _Models) -> Floats:
        """Utility of each model on the rows of its owner, ``(M,)``."""
        wanted = np.array([self.metrics[owner] for owner in models.owners])
        values = np.empty(models.owners.size)
        for metric in set(wanted.tolist()):
            found = _MEASURES[metric](models.logits, models.labels(), models.start)
            values = np.where(wanted == metric, found, values)
        return values

    def _most(self, rows: int, copies: int, each: int = 1) -> int:
        """How many times ``each`` models that see ``rows`` rows fit into the cache, at least once.

        A model takes ``copies`` times its parameters, or its activations if these are more.
        """
        wide = self.model.widths[0] + sum(self.model.hidden)
        size = 4 * max(copies * self.model.size, rows * wide)
        return max(1, min(_LARGEST, _CACHE // size) // each)

    def _space(self) -> Workspace:
        space: Workspace | None = getattr(self._local, "space", None)
        if space is None:
            space = self._local.space = Workspace()
        return space

    def _each(self, work: Callable[[_Item], None], items: Iterable[_Item]) -> None:
        for _ in self._pool.map(work, items):
            pass


class _Models:
    """Predictions of M models, each on the rows of its owner, model after model."""

    def __init__(self, table: Table, owners: Index) -> None:
        self.table = table
        self.owners = owners
        self.start = offsets(table.sizes[owners])
        self.logits = np.empty(int(self.start[-1]), dtype=np.float32)

    def put(self, places: Index, logits: NDArray[np.float32], real: NDArray[np.bool_]) -> None:
        """Take over the padded logits ``(m, n)`` of the models at these places."""
        for place, row, mask in zip(places, logits, real, strict=True):
            self.logits[self.start[place] : self.start[place + 1]] = row[mask]

    def labels(self) -> NDArray[np.float32]:
        """0/1 outcomes, as long as ``logits``."""
        return self.table.of(self.owners)[0]


def _rows(weights: torch.Tensor, owners: Index) -> torch.Tensor:
    """The models of these centers, without copying where they lie together."""
    if weights.dim() == 1:
        return weights.expand(owners.size, -1)
    if bool((np.diff(owners) == 1).all()):
        return weights[int(owners[0]) : int(owners[-1]) + 1]
    return weights[torch.from_numpy(owners)]


def _padded(table: Table, owners: Index) -> tuple[Index, NDArray[np.bool_]]:
    """Row numbers ``(M, n)`` of each owner's rows, and which are real: padding repeats rows."""
    sizes = table.sizes[owners][:, None]
    columns = np.arange(int(sizes.max()))
    return table.start[owners][:, None] + np.minimum(columns, sizes - 1), columns < sizes
