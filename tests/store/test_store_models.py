"""Model files are whole or absent, and what is read is what was committed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from abps_node.errors import StoreError
from abps_node.store.models import (
    MODELS_DIR,
    prune,
    read_model,
    read_preprocessing,
    round_of,
    write_model,
)
from protocol.events import ModelRef


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"model.0.weight": torch.full((3, 2), value), "step": torch.tensor(7)}


def names(state_dir: Path) -> list[str]:
    return sorted(path.name for path in (state_dir / MODELS_DIR).iterdir())


def test_what_was_written_is_read(tmp_path: Path) -> None:
    ref = write_model(tmp_path, 12, tensors(0.5))
    assert ref.name == f"round-000012-{ref.sha256[:12]}.safetensors"
    found = read_model(tmp_path, ref)
    assert found.keys() == tensors(0.5).keys()
    for key, tensor in tensors(0.5).items():
        assert torch.equal(found[key], tensor) and found[key].dtype == tensor.dtype
    assert names(tmp_path) == [ref.name]


def test_a_redo_that_repeats_itself_gives_the_same_file(tmp_path: Path) -> None:
    assert write_model(tmp_path, 1, tensors(1.0)) == write_model(tmp_path, 1, tensors(1.0))
    assert len(names(tmp_path)) == 1


def test_a_superseded_copy_cannot_overwrite_a_committed_model(tmp_path: Path) -> None:
    committed = write_model(tmp_path, 1, tensors(1.0))
    write_model(tmp_path, 1, tensors(2.0))
    assert torch.equal(read_model(tmp_path, committed)["model.0.weight"], torch.ones(3, 2))


def test_the_file_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def spied_fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append("sync directory" if target.is_dir() else f"sync {target.suffix}")
        fsync(descriptor)

    def spied_replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", spied_fsync)
    monkeypatch.setattr(Path, "replace", spied_replace)
    write_model(tmp_path, 1, tensors(1.0))
    assert steps == ["sync .tmp", "rename", "sync directory"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"round-000001.*No space left"):
        write_model(tmp_path, 1, tensors(1.0))
    assert names(tmp_path) == []


def test_a_changed_file_is_refused_by_name_and_both_hashes(tmp_path: Path) -> None:
    ref = write_model(tmp_path, 3, tensors(1.0))
    path = tmp_path / MODELS_DIR / ref.name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        read_model(tmp_path, ref)
    assert str(path) in str(caught.value)
    assert f"allowed: {ref.sha256}" in str(caught.value)
    assert "found sha256" in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"models/gone\.safetensors"):
        read_model(tmp_path, ModelRef("gone.safetensors", "0" * 64))


def test_pruning_keeps_what_is_named_and_what_is_newer(tmp_path: Path) -> None:
    refs = [write_model(tmp_path, number, tensors(number)) for number in range(1, 6)]
    rival = write_model(tmp_path, 4, tensors(99.0))
    directory = tmp_path / MODELS_DIR
    torn = directory / f"{refs[0].name}.123-456.tmp"
    torn.touch()
    foreign = directory / "notes.txt"
    foreign.touch()

    deleted = prune(tmp_path, {refs[1].name, refs[3].name})
    assert set(deleted) == {refs[0].name, refs[2].name, rival.name, torn.name}
    assert names(tmp_path) == sorted([refs[1].name, refs[3].name, refs[4].name, foreign.name])
    assert prune(tmp_path, set()) == []


def test_rounds_beyond_six_digits_keep_their_order(tmp_path: Path) -> None:
    ref = write_model(tmp_path, 1_000_000, tensors(0.0))
    assert round_of(ref.name) == 1_000_000
    assert round_of("round-12.safetensors") is None


def test_preprocessing_travels_in_the_models_file(tmp_path: Path) -> None:
    fitted = {"version": 2, "features": [{"name": "âge \u2028", "fill": 0.1}]}
    ref = write_model(tmp_path, 1, tensors(1.0), fitted)
    assert write_model(tmp_path, 1, tensors(1.0), fitted) == ref
    assert read_preprocessing(tmp_path, ref) == fitted
    assert read_model(tmp_path, ref).keys() == tensors(1.0).keys()
    bare = write_model(tmp_path, 2, tensors(1.0))
    with pytest.raises(StoreError, match="found no preprocessing"):
        read_preprocessing(tmp_path, bare)
    path = tmp_path / MODELS_DIR / ref.name
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(StoreError, match="changed or damaged"):
        read_preprocessing(tmp_path, ref)
