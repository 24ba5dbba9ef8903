"""The numbered exit codes of `abps`, each with its meaning; `docs/exit-codes.md` is made from them.

A supervisor (systemd, Slurm, the launcher) can decide by number: see ``WORTH_A_RESTART``,
``AFTER_A_CHANGE`` and ``NEVER_AGAIN``, from which the page and the launcher take it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from abps_node import errors


class ExitCode(IntEnum):
    """How a command of `abps` ended."""

    meaning: str
    """One line for people: what happened."""
    remedy: str
    """One line for people: what to do about it."""

    def __new__(cls, value: int, meaning: str, remedy: str) -> ExitCode:
        """Make a member that carries its explanation."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        member.remedy = remedy
        return member

    OK = 0, "finished: all rounds done, or the command did what it was asked", "nothing"
    FAILED = 1, "a check failed, or an error without a number of its own", "read the message"
    USAGE = 2, "the command line was not understood", "see `abps COMMAND --help`"
    STOPPED = (
        3,
        "stopped on request (SIGTERM, Ctrl-C) before the last round; the state is complete",
        "the same command goes on where it stopped",
    )
    CONFIG = 10, "federation.toml or center.toml is wrong", "change the key that the message names"
    DATA = 11, "the patient table does not fit the contract", "`abps check` says what does not fit"
    KEYS = (
        12,
        "a key file is missing, readable by others, or not the one on the roster",
        "`abps check` says which",
    )
    BIND = 13, "the own address cannot be bound", "end what holds the port, or change `bind`"
    STORE = (
        14,
        "the state directory cannot be used, or belongs to another contract",
        "make it writable, or name another `state_dir`",
    )
    SUPERSEDED = (
        15,
        "a newer copy of this center runs; this one ended itself",
        "do not restart this one; if no other copy runs, `abps repair`",
    )
    REFUSED = (
        16,
        "every peer that answered refused this center (other contract or other initial trunk)",
        "compare federation.toml with the others' copies",
    )
    DISK_FULL = (
        17,
        "no space is left on the disk of the state directory; the last finished round is safe",
        "free some space, then start the center again",
    )
    DAMAGED = (
        18,
        "a file of the state directory is damaged and no older one can stand in for it",
        "restore the state directory from a backup, see docs/operations.md",
    )
    BROKEN_RECORD = (
        19,
        "`abps outbound --verify`: the record of what left this center was changed or is not whole",
        "the message names the first line; see docs/audit.md",
    )
    REPLAY_DIFFERS = (
        20,
        "`abps replay`: the recorded run, replayed, decides otherwise, or its recording is damaged",
        "the message names the first difference; see docs/audit.md",
    )
    INTERNAL = 70, "a bug in the program; the traceback is on stderr", "report it"


WORTH_A_RESTART: Final = (ExitCode.STOPPED, ExitCode.BIND, ExitCode.INTERNAL)
NEVER_AGAIN: Final = (ExitCode.SUPERSEDED,)
AFTER_A_CHANGE: Final = (
    ExitCode.CONFIG,
    ExitCode.DATA,
    ExitCode.KEYS,
    ExitCode.STORE,
    ExitCode.REFUSED,
    ExitCode.DISK_FULL,
    ExitCode.DAMAGED,
)
"""The same start would end the same way until somebody has changed what the message names."""

_BY_ERROR: Final[dict[type[errors.NodeError], ExitCode]] = {
    errors.ConfigError: ExitCode.CONFIG,
    errors.DataError: ExitCode.DATA,
    errors.KeyFileError: ExitCode.KEYS,
    errors.BindError: ExitCode.BIND,
    errors.StoreError: ExitCode.STORE,
    errors.DiskFull: ExitCode.DISK_FULL,
    errors.Damaged: ExitCode.DAMAGED,
    errors.BrokenRecord: ExitCode.BROKEN_RECORD,
    errors.ReplayDiffers: ExitCode.REPLAY_DIFFERS,
    errors.Superseded: ExitCode.SUPERSEDED,
    errors.NodeError: ExitCode.FAILED,
}


def exit_code_for(error: errors.NodeError) -> ExitCode:
    """The code of the most specific documented class of ``error``."""
    return next(_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _BY_ERROR)
