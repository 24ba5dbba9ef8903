"""A small made-up data set with three tasks whose truth is known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from protocol.contract import Feature, Training
from sim.multi.clients import Clients, Options, clients_of
from sim.multi.tasks import PATIENT, Task, TaskData


def made_up_tasks(rows: int = 900, seed: int = 0) -> TaskData:
    """Two stays for each patient; outcomes follow common and private features."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 5))
    private = rng.normal(size=(rows, 3, 3))
    columns: dict[str, object] = {PATIENT: [f"p{row // 2:04d}" for row in range(rows)]}
    columns |= {f"c{n}": common[:, n] for n in range(5)}
    tasks = []
    for number, (name, kind) in enumerate(
        (("early", "bce"), ("back", "bce"), ("stay", "huber-log"))
    ):
        score = common[:, number] + common[:, 4] + 2 * private[:, number, 0]
        names = [f"{name}{n}" for n in range(3 if number < 2 else 2)]
        columns |= {each: private[:, number, n] for n, each in enumerate(names)}
        columns[f"y_{name}"] = (
            (score > 0.5).astype(int) if kind == "bce" else np.exp(1 + 0.3 * score)
        )
        features = tuple(Feature(name=each, kind="continuous") for each in names)
        tasks.append(Task(name, kind, f"y_{name}", features))  # type: ignore[arg-type]
    features = tuple(Feature(name=f"c{n}", kind="continuous") for n in range(5))
    return TaskData("made-up", "made up", pa.table(columns), features, tuple(tasks))


def made_up_clients(
    clients: int = 4, tasks_per_client: int = 1, seed: int = 3, **options: object
) -> Clients:
    """A federation of them."""
    chosen = Options.model_validate(
        {"clients": clients, "tasks_per_client": tasks_per_client, **options}
    )
    return clients_of(made_up_tasks(), chosen, seed, Training())
