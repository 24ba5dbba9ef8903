"""Many cells: the methods × seeds of an experiment file, on all cores, one JSON per cell.

A cell whose file is there is not run again, so a sweep that was stopped goes on where it stopped.
A file that stems from other settings is an error, never an old figure among new ones.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import tomllib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from abps_node.config_text import checked
from abps_node.errors import ConfigError, NodeError
from protocol.contract import Strict
from sim import results_files
from sim.results_files import Result

AnyExperiment = TypeVar("AnyExperiment", bound=Strict)

ROW: Final = r"^[a-z0-9][a-z0-9+._-]{0,62}$"

Told = Callable[[Result, int, int], None]
"""Told of a result, of the cells done so far and of all of them."""


def _distinct(seeds: list[int]) -> list[int]:
    if len(set(seeds)) != len(seeds) or min(seeds, default=0) < 0:
        raise ValueError("seeds: each once, none negative")
    return seeds


Seeds = Annotated[list[int], AfterValidator(_distinct)]


def refuse_doubtful(rows: Sequence[str], further: str) -> None:
    """``ValueError`` for a row that is there twice, and for none; ``further``: the other key."""
    for row in rows:
        if rows.count(row) > 1:
            raise ValueError(f"methods: row {row!r} stands there twice")
    if not rows:
        raise ValueError(f"methods: none, and no {further} either")


class Variant(Strict):
    """A row that is not simply a method by name."""

    name: str = Field(pattern=ROW, description="of the row")
    method: str = Field(description="as `abps sim methods` lists them")
    policy: dict[str, Any] = Field(default_factory=dict, description="keys that differ")
    early_stop: Literal["network", "center"] | None = Field(
        default=None, description="whose utility stops; default: the experiment's"
    )


class Experiment(Strict):
    """An experiment file."""

    data: str | None = Field(default=None, description="data set; --data wins")
    options: dict[str, Any] = Field(default_factory=dict, description="of the data set")
    seeds: Seeds = Field(min_length=1, description="each with its own splits and weights")
    methods: list[str] = Field(default_factory=list, description="rows that are methods by name")
    variant: list[Variant] = Field(default_factory=list, description="further rows")
    policy: dict[str, Any] = Field(default_factory=dict, description="keys changed in all rows")
    early_stop: Literal["network", "center"] = Field(default="network", description="whose utility")
    beliefs: list[str] = Field(
        default_factory=list, description="rows whose first seed keeps all posterior means"
    )

    @model_validator(mode="after")
    def _rows_are_distinct(self) -> Self:
        rows = [*self.methods, *(each.name for each in self.variant)]
        refuse_doubtful(rows, "variant")
        for row in self.beliefs:
            if row not in rows:
                raise ValueError(f"beliefs: {row!r} is no row of this experiment")
        return self


@dataclass(frozen=True)
class Plan:
    """The cells of a sweep."""

    cells: tuple[Any, ...]
    """Of ``sim.runner.Cell`` or ``sim.multi.runner.TaskCell``, seed by seed."""
    out: Path

    def open_cells(self) -> list[Any]:
        """Those without a result; ``ConfigError`` where a result stems from other settings."""
        return [cell for cell in self.cells if not self._is_there(cell)]

    def only(self, keys: Sequence[str]) -> Plan:
        """The cells with these keys; ``ConfigError`` names one that is not among them."""
        known = {key_of(cell): cell for cell in self.cells}
        for key in keys:
            if key not in known:
                raise ConfigError(
                    f"--cells: found {key!r}, allowed: ROW:SEED of this sweep, {', '.join(known)}"
                )
        return Plan(tuple(known[key] for key in keys), self.out)

    def _is_there(self, cell: Any) -> bool:
        path = results_files.file_of(self.out, cell.row, cell.seed)
        if not path.exists():
            return False
        found = results_files.read_file(path)[0]["config"]
        found["data"] = {key: found["data"][key] for key in ("name", "options")}
        wanted = json.loads(json.dumps(cell.config()))
        for key, value in wanted.items():
            if found.get(key) != value:
                raise ConfigError(
                    f"{path}: found a result with another {key}; remove it, or choose another --out"
                )
        return True


def key_of(cell: Any) -> str:
    """A cell as one word: ``fedavg:11``."""
    return f"{cell.row}:{cell.seed}"


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file; ``ConfigError`` names the file and the key."""
    return read_as(Experiment, path)


def read_as(model: type[AnyExperiment], path: Path) -> AnyExperiment:
    """Read an experiment file of this kind; ``ConfigError`` names the file and the key."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    experiment, problems = checked(model, raw, path)
    if experiment is None:
        raise ConfigError("\n".join(problems))
    return experiment


def plan(
    experiment: Experiment,
    out: Path,
    data: str | None = None,
    options: dict[str, Any] | None = None,
    data_dir: Path | None = None,
    seeds: Sequence[int] | None = None,
    rows: Sequence[str] | None = None,
) -> Plan:
    """All cells; ``options`` add to the experiment's, if it is of the same data set.

    Raises ``ConfigError`` for an unknown method, row, data set or policy key.
    """
    from sim.datasets import find_entry
    from sim.runner import Cell, policy_of
    from sim.sources import Source

    name = data or experiment.data
    if name is None:
        raise ConfigError("sweep: the experiment names no data set; give --data")
    find_entry(name)
    theirs = experiment.options if name == experiment.data else {}
    source = Source.of(name, {**theirs, **(options or {})}, data_dir)
    known = {
        row.name: row
        for row in (
            *(Variant(name=method, method=method) for method in experiment.methods),
            *experiment.variant,
        )
    }
    for row in rows or ():
        if row not in known:
            raise ConfigError(f"--rows: found {row!r}, allowed: {', '.join(known)}")
    chosen = tuple(seeds or experiment.seeds)
    cells = tuple(
        Cell(
            row.method,
            seed,
            source,
            name=row.name,
            policy={**experiment.policy, **row.policy},
            early_stop=row.early_stop or experiment.early_stop,
            beliefs=row.name in experiment.beliefs and seed == chosen[0],
        )
        for seed in chosen
        for row in known.values()
        if not rows or row.name in rows
    )
    for cell in cells:
        policy_of(cell)
    return Plan(cells, out)


def sweep(planned: Plan, jobs: int | None = None, told: Told | None = None) -> list[Result]:
    """Run what is missing on ``jobs`` processes (all cores); returns all results.

    Raises ``NodeError`` naming every cell that failed, after the others are done; at once where a
    process was killed.
    """
    missing = planned.open_cells()
    failed: list[str] = []
    done = len(planned.cells) - len(missing)
    results_files.make_folder(planned.out)
    try:
        with closing(_finished(missing, planned.out, jobs)) as finished:
            for future, cell in finished:
                try:
                    result = future.result()
                except ConfigError:
                    raise
                except NodeError as error:
                    failed.append(f"{cell.row}, seed {cell.seed}: {error}")
                    continue
                done += 1
                if told is not None:
                    told(result, done, len(planned.cells))
    except BrokenProcessPool as error:
        raise NodeError(
            f"a process was killed, perhaps for memory; {done} of {len(planned.cells)} cells have "
            "a result: run it again, with fewer --jobs if memory was short"
        ) from error
    if failed:
        raise NodeError("\n".join(failed))
    paths = [results_files.file_of(planned.out, cell.row, cell.seed) for cell in planned.cells]
    return results_files.read(paths)


def _finished(
    cells: Sequence[Any], out: Path, jobs: int | None
) -> Generator[tuple[Future[Result], Any], None, None]:
    """The cells as they end. Left early (an error, Ctrl-C), it ends the cells under way, too."""
    if not cells:
        return
    count = min(jobs or len(os.sched_getaffinity(0)), len(cells))
    # Spawned and not forked: a copy of a process in which torch has threads may hang.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    # Not «with»: its end shuts down a second time, which may take back that nothing else starts.
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent)
    whole = False
    try:
        with _deaf_children():
            futures = {pool.submit(_work, cell, out): cell for cell in cells}
        for future in as_completed(futures):
            yield future, futures[future]
        whole = True
    finally:
        if not whole:
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes begun meanwhile never hear of Ctrl-C, which a terminal sends to all of them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """A worker whose sweep was killed does not compute on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent,), name="parent", daemon=True).start()


def _outlive(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _work(cell: Any, out: Path) -> Result:
    """One cell in a process of its own; its file is written before anybody is told."""
    result: Result = cell.run()
    results_files.write(results_files.file_of(out, cell.row, cell.seed), result)
    return results_files.summary([result])[0]
