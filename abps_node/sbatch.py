"""Batch scripts for Slurm: their #SBATCH lines, and their submission."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from abps_node.errors import NodeError


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a person may ask Slurm for, whatever the job."""

    partition: str | None = None
    time: str | None = None
    """Limit of the job, or of each task of an array, in Slurm's notation."""
    account: str | None = None
    constraint: str | None = None
    memory: str | None = None
    """Per node, in Slurm's notation."""
    more: Sequence[str] = ()
    """Further options of sbatch, as ``more_options`` gives them."""

    def lines(self, first: Mapping[str, str]) -> str:
        """``#SBATCH`` lines: ``first``, then these."""
        asked = {
            "partition": self.partition,
            "time": self.time,
            "account": self.account,
            "constraint": self.constraint,
            "mem": self.memory,
        }
        all_of_it = {**first, **asked}.items()
        options = [f"--{name}={value}" for name, value in all_of_it if value is not None]
        return "".join(f"#SBATCH {_quoted(option)}\n" for option in [*options, *self.more])


def more_options(texts: Sequence[str]) -> list[str]:
    """``name=value`` or ``name``, with or without dashes, as options; else ``NodeError``."""
    for text in texts:
        if not re.fullmatch(r"(--)?[a-z][a-z-]+(=.*)?", text):
            raise NodeError(f"--option: found {text!r}, allowed: an option of sbatch, name=value")
    return ["--" + text.removeprefix("--") for text in texts]


def job_name(text: str) -> str:
    """A job's name after something of ours, without what a shell or a path would mind."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"abps-{text}").rstrip("-")


def program() -> str:
    """This installation of `abps`, as words of a shell."""
    return f"{shlex.quote(sys.executable)} -m abps_node"


def submit(path: Path, script: str, output: Path) -> str:
    """Write the script to ``path`` and hand it to Slurm; the job's number.

    ``output`` is the folder of what the job prints: Slurm does not make it. Raises ``NodeError``
    where there is no sbatch, or it refuses.
    """
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise NodeError(
            "sbatch: not found on the PATH; submit on a login node of a Slurm cluster "
            "(--dry-run prints the script)"
        )
    output.mkdir(parents=True, exist_ok=True)
    path.write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sbatch, "--parsable", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        words = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise NodeError(f"{path}: not submitted: {words}")
    return done.stdout.strip().partition(";")[0]


def _quoted(option: str) -> str:
    """As #SBATCH lines want it; quoting is only needed around spaces."""
    return f'"{option}"' if re.search(r"\s", option) else option
