"""A contestant of public_simulators.py: Flower's simulation runtime, on Ray.

One processor per client, so that as many clients run side by side as there are cores, each with one
thread; patients are read once per actor and stay in memory; clients do not evaluate.
"""

from __future__ import annotations

import logging

import flwr
import public_flower_client
import ray
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from public_work import Clock, Work, folder_told


def main() -> None:
    """FedAvg, everybody in every round, weighted by training rows."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    work = Work.read(folder_told())
    clock, server = Clock(), ServerApp()

    def ended(_round: int, _arrays: ArrayRecord) -> MetricRecord | None:
        clock.lap()  # of round 0, too: before the first
        return None

    @server.main()
    def serve(grid: Grid, _context: Context) -> None:
        everybody = {"min_train_nodes": work.centers, "min_available_nodes": work.centers}
        strategy = FedAvg(fraction_evaluate=0.0, **everybody)
        network = work.network()
        rounds = work.settings["rounds"]
        start = ArrayRecord(network.state_dict())
        result = strategy.start(grid, start, num_rounds=rounds, evaluate_fn=ended)
        network.load_state_dict(result.arrays.to_torch_state_dict())
        versions = {"flower": flwr.__version__, "ray": ray.__version__}
        work.leave(clock, work.score(network), **versions)

    resources = {"num_cpus": 1, "num_gpus": 0.0}
    client = public_flower_client.app(str(work.folder))
    run_simulation(server, client, work.centers, backend_config={"client_resources": resources})


if __name__ == "__main__":
    main()
