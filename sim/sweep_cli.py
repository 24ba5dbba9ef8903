"""`abps sim sweep` and `abps sim tasks sweep`: many cells, here or as a Slurm job array."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli_options import OPEN, DataDir
from sim.kinds import Asked, Kind

if TYPE_CHECKING:
    from sim.job_array import Job
    from sim.sweep import Plan


def register(app: typer.Typer, kind: Kind) -> None:
    """Add the command to ``app``."""

    @app.command(context_settings=OPEN)
    def sweep(
        context: typer.Context,
        file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="an experiment")],
        out: Annotated[
            Path, typer.Option(metavar="DIR", help="of the results; may hold some already")
        ],
        data: Annotated[
            str | None, typer.Option(metavar="NAME", help="default: the file's")
        ] = None,
        data_dir: DataDir = None,
        seeds: Annotated[
            str | None, typer.Option(metavar="11,22", help="default: the file's")
        ] = None,
        rows: Annotated[str | None, typer.Option(metavar="A,B", help="only these rows")] = None,
        cells: Annotated[
            str | None, typer.Option(metavar="A:11,B:22", help="only these, as ROW:SEED")
        ] = None,
        jobs: Annotated[
            int | None, typer.Option(min=1, help="processes; default: all cores")
        ] = None,
        as_json: Annotated[
            bool, typer.Option("--json", help="print all results, without curves, as the last line")
        ] = False,
        slurm: Annotated[
            bool, typer.Option("--slurm", help="submit what is missing as a Slurm job array")
        ] = False,
        cpus_per_task: Annotated[
            int | None, typer.Option(min=1, metavar="C", help="of the array; default: 1")
        ] = None,
        cells_per_task: Annotated[
            int | None, typer.Option(min=1, metavar="N", help="at most; default: one per processor")
        ] = None,
        array_limit: Annotated[
            int | None,
            typer.Option(min=1, metavar="N", help="most tasks at once; default: Slurm's"),
        ] = None,
        slurm_partition: Annotated[
            str | None, typer.Option(metavar="NAME", help="Slurm's; --partition is of the data set")
        ] = None,
        time: Annotated[
            str | None,
            typer.Option(metavar="LIMIT", help="of a task, as Slurm writes it, e.g. 2:00:00"),
        ] = None,
        account: Annotated[str | None, typer.Option(metavar="NAME", help="Slurm's")] = None,
        constraint: Annotated[str | None, typer.Option(metavar="FEATURES", help="Slurm's")] = None,
        memory: Annotated[
            str | None, typer.Option(metavar="SIZE", help="of a task, as Slurm writes it, e.g. 4G")
        ] = None,
        option: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME=VALUE", help="any other of sbatch, e.g. qos=low; repeatable"
            ),
        ] = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="print Slurm's script; write and submit nothing")
        ] = False,
    ) -> None:
        """Run all rows × seeds of an experiment that have no result in DIR yet.

        Further options are those of the data set, as in `run`. With --slurm the results
        come from a job array, each task with its share of the cells; the same command later submits
        only what is missing then.
        """
        asked = {
            "cpus_per_task": cpus_per_task,
            "cells_per_task": cells_per_task,
            "array_limit": array_limit,
            "partition": slurm_partition,
            "time": time,
            "account": account,
            "constraint": constraint,
            "memory": memory,
            "more": option,
        }
        given = {key: value for key, value in asked.items() if value is not None}
        _check_words(slurm, {**given, "dry_run": dry_run or None}, {"jobs": jobs, "json": as_json})
        found = Asked(
            file,
            out,
            data,
            data_dir,
            _numbers(seeds),
            rows.split(",") if rows else None,
            context.args,
        )
        planned = kind.plan(found)
        if cells is not None:
            planned = planned.only(cells.split(","))
        if not slurm:
            _run_here(kind, planned, jobs, as_json)
            return
        words = [str(file), "--out", str(out), *context.args]
        chosen = {"--data": data, "--data-dir": data_dir, "--seeds": seeds, "--rows": rows}
        for name, value in chosen.items():
            words += [] if value is None else [name, str(value)]
        _submit(kind, planned, _job(given), words, dry_run)


def _check_words(slurm: bool, for_slurm: dict[str, Any], for_here: dict[str, Any]) -> None:
    from abps_node.errors import ConfigError

    names = {"partition": "slurm-partition", "more": "option"}
    for key, value in (for_here if slurm else for_slurm).items():
        if value:
            where = "without" if slurm else "with"
            word = names.get(key, key).replace("_", "-")
            raise ConfigError(f"--{word}: found {value!r}, allowed: {where} --slurm only")


def _run_here(kind: Kind, planned: Plan, jobs: int | None, as_json: bool) -> None:
    from sim import results_files
    from sim.bars import bars_shown, cells_of
    from sim.sweep import sweep as run_all

    try:
        with bars_shown() as bars:
            results = run_all(planned, jobs, cells_of(bars))
    except KeyboardInterrupt:
        missing, cells = len(planned.open_cells()), len(planned.cells)
        typer.echo(
            f"interrupted: {cells - missing} of {cells} cells have a result; "
            "the same command runs the others",
            err=True,
        )
        raise
    if as_json:
        typer.echo(json.dumps(results_files.summary(results), ensure_ascii=False))
        return
    for line in kind.tables.text(kind.tables.table(results)):
        typer.echo(line)


def _job(given: dict[str, Any]) -> Job:
    from abps_node.sbatch import more_options
    from sim.job_array import Job

    return Job(**{**given, "more": more_options(given.get("more", ()))})


def _submit(kind: Kind, planned: Plan, job: Job, words: list[str], dry_run: bool) -> None:
    from sim.datasets.files import VARIABLE
    from sim.job_array import OUTPUT_FOLDER, render, shares, submit
    from sim.sweep import key_of

    missing = [key_of(cell) for cell in planned.open_cells()]
    if not missing:
        typer.echo(
            f"All {len(planned.cells)} cells have a result: abps {kind.command} table {planned.out}"
        )
        return
    folder = os.environ.get(VARIABLE)
    exports = {} if folder is None else {VARIABLE: str(Path(folder).resolve())}
    script = render(
        job, missing, planned.out, [*kind.command.split(), "sweep", *words], Path.cwd(), exports
    )
    if dry_run:
        typer.echo(script, nl=False)
        return
    number = submit(planned.out, script)
    tasks = shares(missing, job)
    typer.echo(
        f"Job {number}: {len(missing)} of {len(planned.cells)} cells in {len(tasks)} tasks, "
        f"up to {len(tasks[0])} each. "
        f"Output: {planned.out / OUTPUT_FOLDER / f'job-{number}-task-*.txt'}"
    )


def _numbers(text: str | None) -> list[int] | None:
    """``11,22`` as a list; ``ConfigError`` for anything else, as in an experiment file."""
    from abps_node.errors import ConfigError

    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if all(part.isdecimal() for part in parts) and len({*map(int, parts)}) == len(parts):
        return [int(part) for part in parts]
    raise ConfigError(f"--seeds: found {text!r}, allowed: numbers, each once, commas between")
