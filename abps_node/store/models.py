"""Model files: written whole or not at all, checked when read.

A file is named after its round and its content, ``round-000012-5f0c2a9be1d4.safetensors``: a copy
of the center that was superseded while it trained can therefore never overwrite the file that the
newer copy has committed for the same round. The name and hash that count are those in the store.

The only module of the store that knows torch. ``write_model`` may run in a worker thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import safetensors.torch
import torch

from abps_node.errors import Damaged, StoreError, store_failure
from abps_node.filesystem import sync_directory
from protocol.events import ModelRef

MODELS_DIR: Final = "models"
_PREPROCESSING: Final = "preprocessing"
_LENGTH_BYTES: Final = 8
"""A safetensors file begins with the length of its header, which is JSON."""
Preprocessing = Mapping[str, Any] | str | None
"""As plain JSON, or its text: it is the same in every round, and 60 features are 10 KB of it."""
_FILE = re.compile(r"^round-(\d{6,})-[0-9a-f]{12}\.safetensors(?:\.\d+-\d+\.tmp)?$")


def write_model(
    state_dir: Path,
    round_number: int,
    tensors: Mapping[str, torch.Tensor],
    preprocessing: Preprocessing = None,
) -> ModelRef:
    """Make the tensors durable and return the name and SHA-256 to commit.

    ``preprocessing`` goes into the same file, so that neither is ever without the other.

    Temporary file, fsync, atomic rename, fsync of the directory: a crash leaves the file whole or
    absent. The same tensors for the same round give the same file again. Raises ``StoreError``.
    """
    return _write(state_dir, f"round-{round_number:06d}", tensors, preprocessing)


def write_tuned(
    state_dir: Path, tensors: Mapping[str, torch.Tensor], preprocessing: Preprocessing
) -> ModelRef:
    """The same for the model after private fine-tuning, which belongs to no round and stays."""
    return _write(state_dir, "stage2", tensors, preprocessing)


def _write(
    state_dir: Path,
    stem: str,
    tensors: Mapping[str, torch.Tensor],
    preprocessing: Preprocessing,
) -> ModelRef:
    if preprocessing is not None and not isinstance(preprocessing, str):
        preprocessing = json.dumps(preprocessing)
    # One entry, since the order of several is not fixed, and the file must not depend on it.
    metadata = {} if preprocessing is None else {_PREPROCESSING: preprocessing}
    content = safetensors.torch.save(dict(tensors), metadata or None)
    sha256 = hashlib.sha256(content).hexdigest()
    directory = state_dir / MODELS_DIR
    path = directory / f"{stem}-{sha256[:12]}.safetensors"
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(directory)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise store_failure(f"{path}: the model cannot be written ({error})", error) from error
    return ModelRef(path.name, sha256)


def read_model(state_dir: Path, ref: ModelRef) -> dict[str, torch.Tensor]:
    """The tensors of a committed model; ``Damaged`` if the file is missing or was changed."""
    return safetensors.torch.load(_checked_content(state_dir, ref))


def read_preprocessing(state_dir: Path, ref: ModelRef) -> dict[str, Any]:
    """What the rows were made into before this model saw them; raises ``StoreError``."""
    content = _checked_content(state_dir, ref)
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    header = json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + length])
    text = header.get("__metadata__", {}).get(_PREPROCESSING)
    if text is None:
        raise StoreError(
            f"{state_dir / MODELS_DIR / ref.name}: found no preprocessing in the model's file; an "
            "older version of the program wrote it"
        )
    return dict(json.loads(text))


def _checked_content(state_dir: Path, ref: ModelRef) -> bytes:
    path = state_dir / MODELS_DIR / ref.name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Damaged(
            f"{path}: the model of a committed round cannot be read ({error}); restore the state "
            "directory from a backup"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != ref.sha256:
        raise Damaged(
            f"{path}: the model was changed or damaged: found sha256 {found}, "
            f"allowed: {ref.sha256}; restore the state directory from a backup"
        )
    return content


def prune(state_dir: Path, keep: Set[str]) -> list[str]:
    """Delete model files that are not in ``keep`` and not newer than the newest in it.

    Newer ones stay: they may be about to be committed, by this copy of the center or by the one
    that superseded it. Returns the deleted names. Raises ``StoreError``.
    """
    newest = max((round_of(name) or 0 for name in keep), default=0)
    deleted = []
    try:
        for path in sorted((state_dir / MODELS_DIR).iterdir()):
            round_number = round_of(path.name)
            if round_number is None or round_number > newest or path.name in keep:
                continue
            path.unlink(missing_ok=True)
            deleted.append(path.name)
    except OSError as error:
        raise StoreError(f"{state_dir / MODELS_DIR}: old models stay ({error})") from error
    return deleted


def rounds_of_files(state_dir: Path) -> list[int]:
    """The rounds of which there is a model file, committed or not, in ascending order."""
    try:
        names = [path.name for path in (state_dir / MODELS_DIR).iterdir()]
    except FileNotFoundError:
        return []
    return sorted({number for name in names if (number := round_of(name)) is not None})


def round_of(name: str) -> int | None:
    """The round in a model file's name; None for a name that is none."""
    match = _FILE.match(name)
    return None if match is None else int(match[1])
