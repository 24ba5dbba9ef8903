"""Structured logging: lines for people on a terminal, JSON lines everywhere else.

``<state_dir>/log.jsonl`` always gets JSON lines and is rotated, so that it stays bounded. Callers
use the standard library and hand structure over in ``extra``::

    log.info("trunk of %s merged", peer, extra={"event": "merged", "fields": {"round": 3}})

Never log a value of a patient: only counts, names of columns, and what a message header says.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, TextIO

from abps_node.errors import store_failure
from abps_node.visible import visible, visible_json

LOG_NAME: Final = "log.jsonl"
LOG_BYTES: Final = 10 * 1024 * 1024
LOG_FILES: Final = 5
"""Rotated copies beside the present one."""

RESERVED_KEYS: Final = ("time", "level", "center", "event", "text", "exception")
_OWN_LOGGERS: Final = ("abps_node", "launch")
_HANDLER_PREFIX: Final = "abps-"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, center, event, text, then the fields."""

    def __init__(self, center_id: str) -> None:
        super().__init__()
        self._center = center_id

    def format(self, record: logging.LogRecord) -> str:
        """Render a record; a field whose name is reserved gets a trailing underscore."""
        line: dict[str, Any] = {
            "time": _utc(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "center": self._center,
            "event": _event(record),
            "text": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        for key, value in _fields(record).items():
            line[f"{key}_" if key in RESERVED_KEYS else key] = _plain(value)
        return visible_json(json.dumps(line, ensure_ascii=False, allow_nan=False))


class HumanFormatter(logging.Formatter):
    """Local time, level, center, text, then ``key=value``."""

    def __init__(self, center_id: str) -> None:
        super().__init__()
        self._center = center_id

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        time = _utc(record).astimezone().strftime("%H:%M:%S")
        text = record.getMessage()
        line = f"{time}  {record.levelname.lower():7}  {self._center}  {text}"
        line = visible(line + fields_text(text, _fields(record)))
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def setup(
    center_id: str,
    state_dir: Path,
    level: str,
    stream: TextIO | None = None,
    console_level: str = "debug",
) -> None:
    """Send all logging of this process to ``stream`` (default stderr) and to the state directory.

    ``stream`` hears of nothing below ``console_level``, the file of everything; other libraries are
    heard from ``warning`` on. A second call replaces the first, so that a forked child can set up
    its own. Raises ``StoreError`` if the file cannot be opened.
    """
    stream = sys.stderr if stream is None else stream
    console = logging.StreamHandler(stream)
    human = stream.isatty()
    console.setLevel(console_level.upper())
    console.setFormatter(HumanFormatter(center_id) if human else JsonFormatter(center_id))
    file = _open_file(state_dir / LOG_NAME)
    file.setFormatter(JsonFormatter(center_id))
    root = logging.getLogger()
    _remove_own_handlers(root)
    for handler in (console, file):
        handler.set_name(f"{_HANDLER_PREFIX}{type(handler).__name__}")
        root.addHandler(handler)
    set_levels(level)
    logging.captureWarnings(True)


def set_levels(level: str) -> None:
    """From which level on the program's own loggers speak; all others from ``warning`` on.

    What is so already is left alone: each setting empties a cache in every logger there is, and a
    forked center would copy the pages of all of them.
    """
    own = dict.fromkeys(_OWN_LOGGERS, level.upper())
    for name, wanted in {"": "WARNING", **own}.items():
        logger = logging.getLogger(name)
        if logging.getLevelName(logger.level) != wanted:
            logger.setLevel(wanted)


def _remove_own_handlers(root: logging.Logger) -> None:
    for handler in list(root.handlers):
        if (handler.get_name() or "").startswith(_HANDLER_PREFIX):
            root.removeHandler(handler)
            handler.close()


class _LogFile(RotatingFileHandler):
    """A file that says once, beside it, that it cannot be written; the center goes on without."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self._failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Instead of a traceback for every line."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._failed:
            self._failed = True
            print(f"{self.baseFilename}: the log cannot be written: {error}", file=sys.stderr)


def _open_file(path: Path) -> RotatingFileHandler:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _LogFile(
            path,
            maxBytes=LOG_BYTES,
            backupCount=LOG_FILES,
            encoding="utf-8",
            # Names of files need not be UTF-8, and their lines must not be lost for that.
            errors="backslashreplace",
        )
    except OSError as error:
        text = f"{path}: the log cannot be written: {error.strerror}"
        raise store_failure(text, error) from error


def _utc(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _event(record: logging.LogRecord) -> str:
    return str(getattr(record, "event", record.name.rsplit(".", 1)[-1]))


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


def _plain(value: Any) -> Any:
    """``value`` in the types of JSON; what JSON cannot say (NaN, paths, enums) as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry) for entry in value]
    return str(value)


def fields_text(text: str, fields: Mapping[str, Any]) -> str:
    """`` key=value`` of the fields, without those whose value the text says already.

    The peer always stands there, since people search for ``peer=…``.
    """
    told = {k: value for k, value in fields.items() if k == "peer" or not _says(text, value)}
    return "".join(f" {key}={_short(value)}" for key, value in told.items())


def _says(text: str, value: Any) -> bool:
    """Whether the value is a word of the text; numbers are not, for they may be any number."""
    if not isinstance(value, str) or not value:
        return False
    return re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", text) is not None


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str) and value and not re.search(r"\s", value):
        return value
    return json.dumps(_plain(value), ensure_ascii=False)
