"""Values of ``protocol`` as plain lists that msgpack can hold, and back: events, effects, states.

General, so that a new message or a new field needs nothing here: dataclasses, enums and pydantic
models of ``protocol`` are taken field by field and made again without running any code of theirs;
no other class can be made. What is equal gives equal bytes: sets are sorted, dictionaries keep
their order. An object that stands in several places (a session in the ledger and in a round) is
one object again afterwards.

Long bytes and arrays, which are trunks, go through ``blob``, so that each is kept once.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import random
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Final

import msgpack
import numpy as np
from pydantic import BaseModel

import protocol

BLOB_BYTES: Final = 512
"""What is at least so long is a blob."""

_TEXT: Final = "surrogatepass"

ToBlob = Callable[[bytes], bytes]
"""Bytes to the name under which they are kept."""
FromBlob = Callable[[bytes], bytes]


class UnknownValue(Exception):
    """A value that is no part of ``protocol``, or bytes that this module has not written."""


@cache
def _classes() -> dict[str, type]:
    """All that may be made, by name: ``messages.Hello``."""
    found: dict[str, type] = {}
    for module in pkgutil.iter_modules(protocol.__path__, "protocol."):
        for item in vars(importlib.import_module(module.name)).values():
            if isinstance(item, type) and item.__module__ == module.name and _is_value(item):
                found[_name(item)] = item
    return found


def _is_value(kind: type[Any]) -> bool:
    return dataclasses.is_dataclass(kind) or issubclass(kind, Enum | BaseModel)


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__.removeprefix('protocol.')}.{kind.__qualname__}"


@cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    return tuple(field.name for field in dataclasses.fields(kind))


@cache
def _is_shared(kind: type[Any]) -> bool:
    """Whether it matters that it is the same object: it can change."""
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and not parameters.frozen


class Packer:
    """Turns values into bytes. One for each text in which objects may be shared."""

    def __init__(self, blob: ToBlob) -> None:
        self._blob = blob
        self._known: dict[int, int] = {}
        self._by_type: dict[type, Callable[[Any], Any]] = {
            **dict.fromkeys((type(None), bool, float, str), lambda value: value),
            int: lambda value: value if abs(value) < 2**63 else ["n", str(value)],
            bytes: self._bytes,
            tuple: lambda value: ["t", *map(self.plain, value)],
            list: lambda value: ["l", *map(self.plain, value)],
            deque: lambda value: ["q", value.maxlen, *map(self.plain, value)],
            dict: lambda value: ["d", *self._pairs(value)],
            Counter: lambda value: ["c", *self._pairs(value)],
            set: lambda value: ["s", *self._sorted(value)],
            frozenset: lambda value: ["f", *self._sorted(value)],
            np.ndarray: self._array,
            random.Random: lambda value: ["r", self.plain(value.getstate())],
        }

    def pack(self, value: object) -> bytes:
        """The bytes of a value; ``UnknownValue`` if a part of it is foreign."""
        self._known.clear()
        # Surrogates may stand in texts about file names, and are no reason to stop a center.
        packed: bytes = msgpack.packb(self.plain(value), unicode_errors=_TEXT)
        return packed

    def plain(self, value: Any) -> Any:
        """A value as msgpack knows them; lists begin with a word that says what they are."""
        kind = type(value)
        known = self._by_type.get(kind)
        if known is None:
            known = self._by_type[kind] = self._learn(kind)
        return known(value)

    def _learn(self, kind: Any) -> Callable[[Any], Any]:
        name = _name(kind)
        found: Any = _classes().get(name)
        if found is not kind:
            raise UnknownValue(f"{kind.__module__}.{kind.__qualname__} is no value of protocol")
        if issubclass(kind, Enum):
            return lambda value: ["e", name, value.value]
        fields, plain = _fields(kind), self.plain
        if not _is_shared(kind):
            return lambda value: ["o", name, *[plain(getattr(value, field)) for field in fields]]

        def shared(value: Any) -> Any:
            number = self._known.get(id(value))
            if number is not None:
                return ["x", number]
            self._known[id(value)] = len(self._known)
            return ["o", name, *[plain(getattr(value, field)) for field in fields]]

        return shared

    def _pairs(self, value: dict[Any, Any]) -> list[Any]:
        return [self.plain(part) for pair in value.items() for part in pair]

    def _sorted(self, value: set[Any] | frozenset[Any]) -> list[Any]:
        return sorted(
            map(self.plain, value), key=lambda item: msgpack.packb(item, unicode_errors=_TEXT)
        )

    def _bytes(self, value: bytes) -> Any:
        return value if len(value) < BLOB_BYTES else ["b", self._blob(value)]

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        return ["a", value.dtype.str, list(value.shape), self._bytes(value.tobytes())]


class Unpacker:
    """The other way."""

    def __init__(self, blob: FromBlob) -> None:
        self._blob = blob
        self._known: list[Any] = []

    def unpack(self, packed: bytes) -> Any:
        """The value again; ``UnknownValue`` for bytes that no ``Packer`` has made."""
        self._known.clear()
        try:
            return self.value(msgpack.unpackb(packed, strict_map_key=False, unicode_errors=_TEXT))
        except (ValueError, TypeError, KeyError, IndexError, msgpack.UnpackException) as error:
            raise UnknownValue(f"{type(error).__name__}: {error}") from error

    def value(self, plain: Any) -> Any:
        """One value from its plain form."""
        if not isinstance(plain, list):
            return plain
        word, *rest = plain
        if word == "o":
            return self._object(*rest)
        if word == "e":
            return _class(rest[0])(rest[1])
        if word == "x":
            return self._known[rest[0]]
        if word == "b":
            return self._blob(rest[0])
        if word == "a":
            return np.frombuffer(self.value(rest[2]), dtype=rest[0]).reshape(rest[1]).copy()
        if word == "n":
            return int(rest[0])
        return self._container(word, rest)

    def _container(self, word: str, rest: list[Any]) -> Any:
        parts = [self.value(part) for part in rest]
        if word in ("d", "c"):
            pairs = dict(zip(parts[::2], parts[1::2], strict=True))
            return Counter(pairs) if word == "c" else pairs
        if word == "r":
            made = random.Random()
            made.setstate(parts[0])
            return made
        if word == "q":
            return deque(parts[1:], maxlen=parts[0])
        kinds = {"t": tuple, "l": list, "s": set, "f": frozenset}
        return kinds[word](parts)

    def _object(self, name: str, *parts: Any) -> Any:
        kind = _class(name)
        fields = _fields(kind)
        if len(fields) != len(parts):
            raise UnknownValue(f"{name}: found {len(parts)} fields, allowed: {len(fields)}")
        made: Any
        if issubclass(kind, BaseModel):
            values = [self.value(part) for part in parts]
            return kind.model_construct(**dict(zip(fields, values, strict=True)))
        made = object.__new__(kind)
        if _is_shared(kind):
            self._known.append(made)
        for field, part in zip(fields, parts, strict=True):
            object.__setattr__(made, field, self.value(part))
        return made


def _class(name: str) -> Any:
    found = _classes().get(name)
    if found is None:
        raise UnknownValue(f"{name!r} is no class of protocol")
    return found
