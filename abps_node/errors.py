"""What can go wrong in a node, as one tree; the CLI turns each leaf into one line and an exit code.

``NodeError``
├── ``ConfigError``      federation.toml or center.toml
├── ``DataError``        the patient table does not fit the contract
├── ``KeyFileError``     a key file is missing, unreadable, too open, or not of this center
├── ``StoreError``       the state directory
│   ├── ``DiskFull``     no space left for it
│   └── ``Damaged``      a file in it is not what was written
├── ``TransportError``   sockets
│   └── ``BindError``    the own address cannot be bound
├── ``Superseded``       a newer copy of this center is running
├── ``BrokenRecord``     the record of what left the center is not whole
└── ``ReplayDiffers``    a recorded run replayed decides otherwise

The text of each is one clear message that names the file, the key or the peer, what was found and
what is allowed. Errors of the protocol itself are in ``protocol.errors``.
"""

from __future__ import annotations

import errno


class NodeError(Exception):
    """Base of every error that the node reports to people."""


class ConfigError(NodeError):
    """A configuration file is missing, malformed, or asks for something impossible."""


class DataError(NodeError):
    """The patient table cannot be read or does not fit the contract's schema.

    The text may quote the cell in question, for whoever mends the table. Logs get ``without_cell``.
    """

    def __init__(self, text: str, cell: str = "") -> None:
        """``cell``: the part of ``text`` that quotes a cell, from «found» to «allowed»."""
        super().__init__(text)
        self._cell = cell

    def with_words(self, more: str) -> DataError:
        """The same, with ``more`` behind it."""
        return DataError(f"{self}{more}", self._cell)

    @property
    def without_cell(self) -> str:
        """The same text without the value of a patient."""
        text = str(self)
        if not self._cell:
            return text
        return text.replace(
            self._cell, "found a value not logged here (`abps check` shows it), allowed"
        )


class KeyFileError(NodeError):
    """A key file is missing, unreadable, readable by others, or belongs to another center."""


class StoreError(NodeError):
    """The state directory cannot be used, or holds the state of another federation."""


class DiskFull(StoreError):
    """No space is left on the disk of the state directory, or its quota is used up."""


class Damaged(StoreError):
    """A file of the state directory is not what this program wrote, and nothing can replace it."""


def store_failure(text: str, error: OSError) -> StoreError:
    """The error for something in the state directory that cannot be written or read."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return (DiskFull if full else StoreError)(text)


class BrokenRecord(NodeError):
    """The record of what left this center is not whole: something in it was changed or is gone."""


class ReplayDiffers(NodeError):
    """A recorded run, replayed, gives other decisions than the recorded ones."""


class TransportError(NodeError):
    """The sockets cannot do what is asked of them."""


class BindError(TransportError):
    """The own address cannot be bound: in use, not of this machine, or not permitted."""


class Superseded(NodeError):
    """A newer copy of this center is running; this one has to end."""
