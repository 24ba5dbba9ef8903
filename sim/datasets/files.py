"""Where a data set's files are, and reading them by SQL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from abps_node.errors import ConfigError, DataError
from sim.datasets.base import Progress

VARIABLE: Final = "ABPS_DATA_DIR"
_POLL_S: Final = 0.2


def find_folder(name: str, data_dir: Path | None, files: Sequence[str], source: str) -> Path:
    """The folder with all ``files``: ``DATA_DIR/name`` or the data directory itself.

    ``data_dir`` None: what the environment variable says. ``source`` tells where to get the data.
    Raises ``ConfigError`` without a directory and ``DataError`` naming each file that is missing.
    """
    told = os.environ.get(VARIABLE)
    if data_dir is None and not told:
        raise ConfigError(f"{name}: needs --data-dir or {VARIABLE}; the data: {source}")
    root = Path(told or "") if data_dir is None else data_dir
    folders = (root / name, root)
    folder = next(
        (each for each in folders if any((each / file).is_file() for file in files)), None
    )
    if folder is None:
        looked = " and ".join(map(str, folders))
        raise DataError(f"{name}: {files[0]} is in neither of {looked}; the data: {source}")
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise DataError(f"{folder}: missing {', '.join(missing)}; the data: {source}")
    return folder


def query(
    sql: str, files: Mapping[str, Path], progress: Progress | None = None, what: str = ""
) -> pa.Table:
    """Run one query over CSV files, each of them a view of that name whose columns are all text.

    Empty cells are NULL. Files are streamed, compressed or not. With ``progress`` it is told of
    ``what`` several times a second. Raises ``DataError`` naming the files.
    """
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")
        try:
            for view, path in files.items():
                connection.execute(f"CREATE VIEW {view} AS SELECT * FROM {_csv(path)}")
            if progress is None:
                return connection.sql(sql).to_arrow_table()
            return _watched(connection, sql, progress, what)
        except duckdb.Error as error:
            named = ", ".join(map(str, files.values()))
            said, _, _ = " ".join(str(error).split()).partition(" Possible solutions:")
            raise DataError(f"{named}: {said}") from error


def _watched(
    connection: duckdb.DuckDBPyConnection, sql: str, progress: Progress, what: str
) -> pa.Table:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: connection.sql(sql).to_arrow_table())
        try:
            while not running.done():
                percent = connection.query_progress()
                progress(what, percent / 100 if percent >= 0 else None)
                wait([running], _POLL_S)
            progress(what, 1.0)
            return running.result()
        finally:
            # After Ctrl-C, say; in a loop, since the query may not have begun when it is told.
            while not running.done():
                connection.interrupt()
                wait([running], _POLL_S)


def _csv(path: Path) -> str:
    quoted = str(path).replace("'", "''")
    shape = "header = true, delim = ',', quote = '\"', escape = '\"'"
    return f"read_csv('{quoted}', all_varchar = true, {shape})"
