"""`abps replay`: a recorded run through the same decisions again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("replay")(replay)


def replay(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="a state directory, a center.toml, or a folder that holds one"
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document")] = False,
) -> None:
    """Feed the recorded stimuli of a center through its decisions again.

    Ends with 0 if every effect is the same; else with 20, and the first difference. Stimuli are
    recorded if center.toml says so (`record_stimuli`).
    """
    from abps_node.audit.replay import replay as run
    from abps_node.audit.stimuli import recordings
    from abps_node.cli.human import count, size, to_json
    from abps_node.cli.state_path import state_dir_of
    from abps_node.errors import StoreError

    state_dir = state_dir_of(path)
    if not recordings(state_dir):
        raise StoreError(
            f"{state_dir}: found no recorded stimuli; `record_stimuli` in center.toml asks for them"
        )
    done = run(state_dir)
    if as_json:
        typer.echo(to_json(vars(done)))
        return
    for note in done.notes:
        typer.echo(f"note: {note}")
    rounds = "no round" if done.rounds is None else f"rounds {done.rounds[0]} to {done.rounds[1]}"
    files, starts = count(done.files, "file"), count(done.starts, "start")
    typer.echo(f"{files} of {starts}, {size(done.bytes)}, {rounds}")
    stimuli, effects = count(done.stimuli, "stimulus", "stimuli"), count(done.effects, "effect")
    typer.echo(f"the same decisions: {stimuli} gave the same {effects}, field for field")
