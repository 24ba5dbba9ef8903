"""Key files: written once, read only if nobody else can."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from abps_node.errors import KeyFileError
from abps_node.keys import KeyPair, generate, is_public_key, load_key_pair, write_key_pair


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "center" / "keys"
    pair = write_key_pair(folder, "north")
    assert load_key_pair(folder / "north.secret") == pair
    assert pair.public in (folder / "north.public").read_text()
    assert pair.secret not in (folder / "north.public").read_text()
    assert mode_of(folder) == 0o700
    assert mode_of(folder / "north.secret") == 0o600


def test_the_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_key_pair(tmp_path / "keys", "north")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "keys") == 0o700
    assert mode_of(tmp_path / "keys" / "north.secret") == 0o600


@pytest.mark.parametrize("existing", ["north.secret", "north.public"])
def test_nothing_is_ever_overwritten(tmp_path: Path, existing: str) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / existing).write_text("precious")
    with pytest.raises(KeyFileError, match=rf"{existing}: found an existing file"):
        write_key_pair(tmp_path, "north")
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "precious"


def test_a_dangling_link_is_not_followed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "north.secret").symlink_to(elsewhere)
    with pytest.raises(KeyFileError, match="found an existing file"):
        write_key_pair(tmp_path, "north")
    assert not elsewhere.exists()


def test_a_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(KeyFileError, match=rf"{tmp_path}: found mode 0755, allowed: 0700"):
        write_key_pair(tmp_path, "north")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_secrets_that_others_could_read_are_refused(tmp_path: Path, mode: int) -> None:
    write_key_pair(tmp_path / "keys", "north")
    path = tmp_path / "keys" / "north.secret"
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=rf"{path}: found mode {mode:04o}, allowed: 0600"):
        load_key_pair(path)


def test_a_stricter_mode_is_fine(tmp_path: Path) -> None:
    pair = write_key_pair(tmp_path / "keys", "north")
    (tmp_path / "keys" / "north.secret").chmod(0o400)
    assert load_key_pair(tmp_path / "keys" / "north.secret") == pair


def private(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "found 0 lines"),
        (b"# only a comment\n", "found 0 lines"),
        (b"0" * 40 + b"\n" + b"1" * 40, "found 2 lines"),
        (b"0" * 39, "39 characters"),
        (b"0" * 41, "41 characters"),
        (b"~" * 40, "40 characters that is no key"),
        (b"#" * 40, "40 characters that is no key"),
        (b"\xff" * 40, "40 characters that is no key"),
        (b"0" * 5000, "found more than"),
        (b"metadata\n    version = 1\ncurve\n    secret-key = 'x'\n", "found 4 lines"),
    ],
)
def test_malformed_files_are_named_without_quoting_them(
    tmp_path: Path, content: bytes, found: str
) -> None:
    path = private(tmp_path / "x.secret", content)
    with pytest.raises(KeyFileError, match=rf"{path}: .*{found}.*allowed") as caught:
        load_key_pair(path)
    assert len(str(caught.value)) < 300


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read: No such file"):
        load_key_pair(tmp_path / "missing.secret")
    with pytest.raises(KeyFileError, match="cannot be read: Is a directory"):
        load_key_pair(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyFileError, match="found no regular file"):
        load_key_pair(tmp_path / "pipe")


def test_the_secret_is_not_shown() -> None:
    pair = generate()
    assert pair.secret not in repr(pair) and pair.public in repr(pair)


def test_the_public_key_is_derived(tmp_path: Path) -> None:
    public, secret = zmq.curve_keypair()
    path = private(tmp_path / "x.secret", b"# comment\n\n  " + secret + b"  \r\n")
    assert load_key_pair(path) == KeyPair(public.decode(), secret.decode())


@given(st.binary(min_size=32, max_size=32))
def test_z85_of_32_bytes_is_a_key(content: bytes) -> None:
    assert is_public_key(z85.encode(content).decode())


@given(st.text(max_size=45))
def test_no_text_makes_the_check_fail(text: str) -> None:
    assert isinstance(is_public_key(text), bool)


@pytest.mark.parametrize("text", ["", "0" * 39, "~" * 40, "#" * 40, "é" * 40, "0" * 41])
def test_what_is_no_key(text: str) -> None:
    assert not is_public_key(text)
