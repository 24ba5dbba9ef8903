"""A federation on disk: one directory that holds the contract, the cards and every center.

::

    DIR/SIMULATION                          says that several centers' secret keys lie together
    DIR/federation.toml                     contract, discovery, roster
    DIR/cards/                              directory discovery: where each center can be found
    DIR/centers/<id>/center.toml
    DIR/centers/<id>/patients.parquet
    DIR/centers/<id>/keys/<id>.secret       mode 0600, in a directory of mode 0700
    DIR/centers/<id>/keys/<id>.public
    DIR/centers/<id>/state/                 made by the daemon

Such a directory is for experiments on one machine. In a real federation every center holds its own
``center.toml``, data and secret key, and nothing but ``federation.toml`` is shared.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abps_node.config import CenterConfig, Federation, load_center_config, load_federation
from abps_node.config_text import checked
from abps_node.errors import ConfigError, NodeError, StoreError
from abps_node.scaffold import CENTER_FILE, FEDERATION_FILE
from abps_node.store.connection import present
from abps_node.visible import visible
from launch.toml import center_text, federation_text
from protocol.contract import CENTER_ID_PATTERN, Contract, Goal

if TYPE_CHECKING:
    import pyarrow

SIMULATION_FILE = "SIMULATION"
_NAMED = 12
"""Centers that an error names; the others are counted."""

_SIMULATION_TEXT = """\
This directory holds the secret keys of several centers, for an experiment on one machine.
In a real federation each center keeps its own key, and nobody else ever has it.
"""


class LayoutError(NodeError):
    """A federation directory cannot be written, or what is there is not one."""


@dataclass(frozen=True)
class FederationLayout:
    """A federation directory and its centers, in order of their ids."""

    directory: Path
    centers: tuple[CenterConfig, ...]
    broken: Mapping[str, str] = field(default_factory=dict)
    """Folders of other centers, to what is wrong with their file, in a line; see ``look_into``."""

    @property
    def federation(self) -> Path:
        """The file that all centers share."""
        return self.directory / FEDERATION_FILE

    @property
    def contract(self) -> Contract:
        """What the centers agreed on."""
        return self.centers[0].federation.contract

    def only(self, names: Collection[str]) -> FederationLayout:
        """The same with these centers; ``LayoutError`` if one is none of this directory's."""
        known = [center.id for center in self.centers]
        for name in names:
            if name in self.broken and name not in known:
                raise LayoutError(self.broken[name])
            if name not in known:
                more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
                raise LayoutError(
                    f"{self.directory}: found no center {name!r}, allowed: "
                    f"{', '.join(known[:_NAMED])}{more}"
                )
        return FederationLayout(self.directory, tuple(c for c in self.centers if c.id in names))

    def part(self, number: int, parts: int) -> FederationLayout:
        """The k-th (from 1) of so many parts, which differ in size by at most one center."""
        return FederationLayout(self.directory, self.centers[number - 1 :: parts])


def chosen(layout: FederationLayout, names: str, part: str) -> FederationLayout:
    """The centers that a command line asks for: ``a,b,…``, ``k/n``, or all. ``LayoutError``."""
    if names and part:
        raise LayoutError("--centers, --slice: found both, allowed: one of them")
    if names:
        layout = layout.only([name.strip() for name in names.split(",") if name.strip()])
    elif part:
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", part)
        number, parts = map(int, match.groups()) if match else (0, 0)
        if not 1 <= number <= parts:
            raise LayoutError(f"--slice: found {part!r}, allowed: k/n with 1 ≤ k ≤ n")
        layout = layout.part(number, parts)
    if not layout.centers:
        raise LayoutError("--centers, --slice: no center is left")
    return layout


def write_federation(
    directory: Path,
    contract: Contract | Mapping[str, Any],
    tables: Mapping[str, pyarrow.Table],
    *,
    goals: Mapping[str, Goal] | None = None,
    seed: int = 0,
    compare_alone: bool = True,
) -> FederationLayout:
    """Lay out a federation of the centers in ``tables`` (center id to patients), and read it back.

    ``goals`` gives single centers a goal of their own, ``seed`` shifts the seeds of all centers.
    The directory must not exist or be empty. ``federation.toml`` is written last: what was broken
    off halfway is no federation directory. Raises ``LayoutError``, and ``ConfigError`` for a
    mapping that is no contract.
    """
    _refuse_unusable(directory, tables, goals or {})
    agreed = _agreed(contract)
    (directory / "cards").mkdir(parents=True)
    (directory / SIMULATION_FILE).write_text(_SIMULATION_TEXT, encoding="utf-8")
    public_keys = {
        center: _write_center(directory, center, tables[center], place + seed, goals, compare_alone)
        for place, center in enumerate(sorted(tables), start=1)
    }
    text = federation_text(agreed, public_keys)
    (directory / FEDERATION_FILE).write_text(text, encoding="utf-8")
    layout = read_layout(directory)
    if layout.contract.digest() != agreed.digest():
        raise LayoutError(f"{layout.federation}: reads back as another contract than was written")
    return layout


def read_layout(directory: Path) -> FederationLayout:
    """Find the centers of a federation directory.

    Raises ``LayoutError`` if it is none, and ``ConfigError`` for a faulty file in it.
    """
    centers: dict[str, CenterConfig] = {}
    known = None
    for path in _center_files(directory):
        center = _read_center(path, directory, known, centers)
        known, centers[center.id] = center.federation, center
    return FederationLayout(directory, _in_order(centers))


def look_into(directory: Path) -> FederationLayout:
    """The same for who only looks: a center with a faulty file is ``broken`` and hides nobody.

    Raises what ``read_layout`` does for a faulty ``federation.toml``, and where no center is left.
    """
    files = _center_files(directory)
    known = load_federation((directory / FEDERATION_FILE).resolve())
    centers: dict[str, CenterConfig] = {}
    faults: dict[str, NodeError] = {}
    for path in files:
        try:
            center = _read_center(path, directory, known, centers)
        except (ConfigError, LayoutError) as error:
            faults[path.parent.name] = error
        else:
            centers[center.id] = center
    if not centers:
        raise next(iter(faults.values()))
    broken = {name: visible("; ".join(str(fault).splitlines())) for name, fault in faults.items()}
    return FederationLayout(directory, _in_order(centers), broken)


def _center_files(directory: Path) -> list[Path]:
    if not (directory / FEDERATION_FILE).is_file():
        raise LayoutError(
            f"{directory}: not a federation directory, for it has no {FEDERATION_FILE}; "
            "abps data prepare writes one"
        )
    home = directory / "centers"
    try:
        folders = sorted(home.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        folders = []
    except OSError as error:
        raise LayoutError(f"{home}: cannot be read: {error.strerror}") from error
    files = [path for folder in folders if _may_be(path := folder / CENTER_FILE)]
    if not files:
        raise LayoutError(f"{directory}: no center found, looked for centers/<id>/{CENTER_FILE}")
    return files


def _may_be(path: Path) -> bool:
    """Whether there is such a file, also if it is hidden: who reads it then says why."""
    try:
        return present(path)
    except StoreError:
        return True


def _read_center(
    path: Path, directory: Path, known: Federation | None, others: Mapping[str, CenterConfig]
) -> CenterConfig:
    """One center of the directory, which is none of the ``others``."""
    center = load_center_config(path, known)
    federation = directory / FEDERATION_FILE
    if center.federation.path.resolve() != federation.resolve():
        raise LayoutError(
            f"{path}: federation: found {center.federation.path}, "
            f"allowed in this directory: {federation}"
        )
    if center.id in others:
        other = others[center.id].path
        raise LayoutError(f"{path}: id: found {center.id!r}, which {other} has too")
    return center


def _in_order(centers: Mapping[str, CenterConfig]) -> tuple[CenterConfig, ...]:
    return tuple(centers[name] for name in sorted(centers))


def _agreed(contract: Contract | Mapping[str, Any]) -> Contract:
    if isinstance(contract, Contract):
        return contract
    model, problems = checked(Contract, dict(contract), "contract")
    if model is None:
        raise ConfigError("\n".join(problems))
    return model


def require_unused(directory: Path) -> None:
    """Raise ``LayoutError`` if a federation cannot be written there: it is no empty directory."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise LayoutError(f"{directory}: exists and is not an empty directory; nothing was written")


def _refuse_unusable(
    directory: Path, tables: Mapping[str, pyarrow.Table], goals: Mapping[str, Goal]
) -> None:
    require_unused(directory)
    if not tables:
        raise LayoutError("tables: found none, a federation has at least one center")
    for center in tables:
        if not re.fullmatch(CENTER_ID_PATTERN, center):
            raise LayoutError(f"center id: found {center!r}, allowed: {CENTER_ID_PATTERN}")
    for center in goals:
        if center not in tables:
            raise LayoutError(f"goals: {center!r} is none of the centers {', '.join(tables)}")


def _write_center(
    directory: Path,
    center: str,
    table: pyarrow.Table,
    seed: int,
    goals: Mapping[str, Goal] | None,
    compare_alone: bool,
) -> str:
    """Write one center's files and return its public key (z85)."""
    from pyarrow import parquet

    from abps_node.keys import write_key_pair

    home = directory / "centers" / center
    home.mkdir(parents=True)
    home.chmod(0o700)
    parquet.write_table(table, home / "patients.parquet")
    public = write_key_pair(home / "keys", center).public
    goal = (goals or {}).get(center)
    text = center_text(center, seed=seed, goal=goal, compare_alone=compare_alone)
    (home / CENTER_FILE).write_text(text, encoding="utf-8")
    return public
