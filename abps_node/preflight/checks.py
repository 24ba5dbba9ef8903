"""The checks of ``abps check`` in their order; each is guarded, so that all of them are heard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from abps_node.config import CenterConfig, load_center_config
from abps_node.errors import ConfigError
from abps_node.preflight.agreement import check_agreement, check_keys, check_members
from abps_node.preflight.finding import Finding, guarded, ok, problem, warning
from abps_node.preflight.machine import check_disk, check_port, check_state
from abps_node.preflight.patients import check_patients
from abps_node.preflight.peers import check_peers

Check = Callable[[CenterConfig], Iterable[Finding]]

CHECKS: Final[dict[str, tuple[Check, str]]] = {
    "contract": (check_agreement, "change federation.toml, in all centers alike"),
    "keys": (
        check_keys,
        "chmod 600 the secret file; a missing pair is made by `abps init`, and its public key "
        "belongs on the roster",
    ),
    "members": (check_members, "correct members.json, or put its last good copy back"),
    "data": (
        check_patients,
        "put the table there or correct `data` in center.toml; change the table, or agree on "
        "another schema",
    ),
    "port": (check_port, "end what holds the port (this center's daemon?), or change bind"),
    "peers": (check_peers, "mount the shared folder, correct [mqtt], or change [discovery]"),
    "disk": (check_disk, "make the folder writable, or set another state_dir"),
    "state": (check_state, "set another state_dir, or move the old state away"),
}
"""Name of each check, what it does, and how to fix it when it cannot be done at all."""


def _fix(path: Path, line: str) -> str:
    if not path.exists():
        return "name the center.toml of this center; `abps init DIR` makes one"
    if "allowed: an id on the roster" in line:
        return "add the entry that `abps init` has printed to this file, or correct the id"
    return "change the key that is named"


def check_center(path: Path) -> list[Finding]:
    """All findings about a center.toml; never raises for anything that is wrong with it."""
    try:
        config = load_center_config(path)
    except ConfigError as error:
        lines = str(error).splitlines()
        findings = [problem("config", line, _fix(path, line)) for line in lines]
        rest = f"not looked at yet: {', '.join(CHECKS)}"
        return [*findings, warning("config", rest, "first correct the files")]
    findings = [ok("config", f"{config.path.name} and {config.federation.path.name} are valid")]
    for name, (check, fix) in CHECKS.items():
        findings += guarded(name, fix, partial(check, config))
    return findings
