"""Results by task: mean ± standard deviation over seeds, beside FedCARE's Tables III to V."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sim.results_files import require_kind
from sim.tables import Result, Spread

PAPER: Final[Mapping[str, Mapping[str, tuple[float, ...]]]] = {
    "diabetes130": {
        "fedavg": (0.712, 0.681, 2.91),
        "fedprox": (0.724, 0.694, 2.82),
        "fmgda": (0.773, 0.748, 2.33),
        "fsmgda": (0.779, 0.754, 2.26),
        "pafnet": (0.775, 0.751, 2.25),
        "fedcare": (0.801, 0.771, 1.98),
    },
    "mimic-iii": {
        "fedavg": (0.831, 0.795, 2.10),
        "fedprox": (0.829, 0.793, 2.07),
        "fmgda": (0.801, 0.761, 2.79),
        "fsmgda": (0.851, 0.815, 1.84),
        "pafnet": (0.855, 0.814, 1.78),
        "fedcare": (0.870, 0.824, 1.47),
    },
}
"""AUROC, AUROC and MAE in days of the three tasks, in their order in the data set (IV, V)."""


ORDER: Final = (
    "fedavg",
    "fedprox",
    "fmgda",
    "fsmgda",
    "pafnet",
    "fedcare-b",
    "fedcare",
    "abps+pareto",
    "abps+weighted",
    "local-only",
)
"""Methods as the paper lists them, then the daemons' form and the controls; others follow."""
_VARIED: Final = re.compile(r"(?P<row>.+)\.(?P<option>[a-z_]+)-(?P<value>[0-9.]+)")


@dataclass(frozen=True)
class TaskRow:
    """One row over its seeds."""

    data: str
    name: str
    seeds: tuple[int, ...]
    tasks: Mapping[str, Spread | None]
    """Task to AUROC or MAE, each the mean over the clients with that task."""
    days: tuple[str, ...]
    """The tasks that are measured in days."""
    auroc: Spread | None
    """Mean over the tasks measured by it."""
    kilobatches: float
    """Mini-batches of all clients, both stages, in thousands."""
    megabytes: float
    paper: tuple[float, ...] | None


def table(results: Sequence[Result]) -> list[TaskRow]:
    """One row per data set and name: the paper's, ours, the controls; a varied option upwards.

    Raises ``NodeError`` for results of other commands.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    require_kind(results, tasks=True)
    for each in (*results, *without_stage2(results)):
        groups.setdefault((each["config"]["data"]["name"], each["name"]), []).append(each)
    found = [(_place(rows[0]), _row(data, name, rows)) for (data, name), rows in groups.items()]
    return [row for _, row in sorted(found, key=lambda each: (each[1].data, each[0]))]


def without_stage2(results: Sequence[Result]) -> Iterator[Result]:
    """FedCARE-B of every cell of FedCARE whose own one is not there: what it was before stage 2."""
    there = {(each["config"]["data"]["name"], each["name"], each["seed"]) for each in results}
    for each in results:
        name = each["name"].replace("fedcare", "fedcare-b", 1)
        tasks = each.get("before_stage2")
        if each["method"] != "fedcare" or tasks is None:
            continue
        if (each["config"]["data"]["name"], name, each["seed"]) not in there:
            aurocs = [t["mean"] for t in tasks.values() if t["metric"] == "auroc"]
            known = [value for value in aurocs if value is not None]
            yield {
                **each,
                "name": name,
                "method": "fedcare-b",
                "tasks": tasks,
                "mean_auroc": statistics.fmean(known) if known else None,
                "mini_batches": {**each["mini_batches"], "stage2": 0},
            }


def varied(name: str) -> tuple[str, str, float] | None:
    """Row, option and value of a row's name such as ``fedavg.clients-3``; else None."""
    found = _VARIED.fullmatch(name)
    return None if found is None else (found["row"], found["option"], float(found["value"]))


def _place(result: Result) -> tuple[bool, int, str, float]:
    """Rows that are methods by name come first."""
    method, name = result["method"], result["name"]
    row, _, value = varied(name) or (name, "", 0.0)
    place = ORDER.index(method) if method in ORDER else len(ORDER)
    return row != method or place == len(ORDER), place, row, value


def _row(data: str, name: str, results: list[Result]) -> TaskRow:
    tasks = list(dict.fromkeys(task for each in results for task in each["tasks"]))
    batches = [sum(each["mini_batches"].values()) for each in results]
    return TaskRow(
        data,
        name,
        tuple(sorted(each["seed"] for each in results)),
        {
            task: _spread([each["tasks"].get(task, {}).get("mean") for each in results])
            for task in tasks
        },
        tuple(t for t in tasks if any(_metric(each, t) == "mae" for each in results)),
        _spread([each["mean_auroc"] for each in results]),
        statistics.fmean(batches) / 1000,
        statistics.fmean(each["bytes"] for each in results) / 1e6,
        PAPER.get(data, {}).get(name),
    )


def _metric(result: Result, task: str) -> str | None:
    found: str | None = result["tasks"].get(task, {}).get("metric")
    return found


def _spread(values: Sequence[Any]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread.of(known) if known else None


def _lines(rows: Sequence[TaskRow]) -> list[tuple[str, ...]]:
    tasks = list(dict.fromkeys(task for row in rows for task in row.tasks))
    head = ["row"]
    for task in tasks:
        head += [task, "paper"]
    lines = [(*head, "mean AUROC", "1000 batches", "MB", "seeds")]
    for row in rows:
        cells = [row.name]
        for number, task in enumerate(tasks):
            found = row.tasks.get(task)
            cells.append("–" if found is None else str(found))
            cells.append("" if row.paper is None else f"{row.paper[number]:g}")
        mean = "–" if row.auroc is None else str(row.auroc)
        tail = (f"{row.kilobatches:.1f}", f"{row.megabytes:.1f}", f"{len(row.seeds)}")
        lines.append((*cells, mean, *tail))
    return lines


def text(rows: Sequence[TaskRow]) -> Iterator[str]:
    """Aligned columns, one block per data set."""
    for data in dict.fromkeys(row.data for row in rows):
        yield data
        yield from aligned(_lines([row for row in rows if row.data == data]))


def markdown(rows: Sequence[TaskRow]) -> Iterator[str]:
    """A table for a page, one per data set."""
    for data in dict.fromkeys(row.data for row in rows):
        yield f"**{data}**"
        yield ""
        yield from piped(_lines([row for row in rows if row.data == data]))
        yield ""


def aligned(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Columns for a terminal, names to the left."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        padded = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *padded]).rstrip()


def piped(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The same for a page; the first line is the head."""
    head, *rows = lines
    yield "| " + " | ".join(head) + " |"
    yield "| --- |" + " ---: |" * (len(head) - 1)
    for first, *rest in rows:
        yield "| " + " | ".join([f"`{first}`", *rest]) + " |"


def told_of(result: Result) -> Iterator[str]:
    """One result in words."""
    data = result["config"]["data"]
    auroc = "undefined" if result["mean_auroc"] is None else f"{result['mean_auroc']:.4f}"
    yield (
        f"{result['name']} on {data['name']}, {len(data['clients'])} clients, "
        f"seed {result['seed']}: mean AUROC {auroc}"
    )
    for task, found in result["tasks"].items():
        before = (result["before_stage2"] or {}).get(task)
        stage1 = "" if before is None else f", {_value(before)} before stage 2"
        clients = len(found["per_client"])
        yield (
            f"{task}: {found['metric'].upper()} {_value(found)}{stage1}; "
            f"{clients} {'client' if clients == 1 else 'clients'}, {found['rows']} test rows"
        )
    batches, rounds = result["mini_batches"], result["rounds_run"]
    yield (
        f"{rounds} {'round' if rounds == 1 else 'rounds'}, {result['bytes'] / 1e6:.1f} MB, "
        f"{batches['federated']} mini-batches and {batches['stage2']} of stage 2, "
        f"{result['seconds']:.1f} s"
    )


def _value(found: Mapping[str, Any]) -> str:
    return "undefined" if found["mean"] is None else f"{found['mean']:.4f}"
