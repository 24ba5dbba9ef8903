"""Characters that act on a terminal, or hide and turn what stands beside them, made visible.

Texts may quote a peer. Control characters move the cursor, format characters (U+202E and its kin)
show a text in another order than it has, others are not seen at all or end a line for some
programs.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control, format, lone surrogates, line and paragraph separators."""


def visible(text: str) -> str:
    """The text with such characters written as ``\\x1b``, ``\\u202e`` or ``\\U000e0041``."""
    if text.isprintable():
        return text
    return "".join(_escaped(char) if _acts(char) else char for char in text)


def visible_json(text: str) -> str:
    """A JSON text with such characters in its strings escaped as JSON does; it says the same.

    JSON itself escapes those below a space and leaves the rest as they are.
    """
    if text.isprintable():
        return text
    return "".join(_json_escaped(char) if char > "~" and _acts(char) else char for char in text)


def _acts(char: str) -> bool:
    return unicodedata.category(char) in _CATEGORIES


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(char: str) -> str:
    units = char.encode("utf-16-be", errors="surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs)
