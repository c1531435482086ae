"""The storage of searches: a journal file, or a database, which workers share.

A *journal* is Optuna's own file format: a line for each change of a study. It is locked by a symbolic link beside it.
"""

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from limbeck.errors import OutputError, RecipeError, suggestion

DATABASES = ("sqlite", "postgresql", "mysql", "mariadb")
"""Databases that SQLAlchemy connects to by a URL, and that workers may share."""
_JOURNAL_START = b'{"op_code":'
"""How the first line of a journal of Optuna begins."""
# The scheme of a URL, such as `sqlite:`. It has two letters or more, since `c:` begins a path on Windows.
_SCHEME = re.compile(r"[a-z][a-z0-9+]+:", re.IGNORECASE)
_MALFORMED = "is malformed; write one like sqlite:///search.db or postgresql://user@host/database."
_DRIVERS = "psycopg2-binary for postgresql, mysqlclient for mysql and mariadb"
_SQLITE_SECONDS = 60
"""Longest wait of a writer for others; SQLite's own default is five seconds."""
_LOCK_SECONDS = 30
"""Age from which a lock counts as left behind by a killed process."""
_POLL_SECONDS = 0.05
_RETRY_SECONDS = 0.2
"""Wait after the first try to open a database; it grows by as much with every further one."""
_DATABASE_TRIES = 5
"""Tries to open a database: of workers that start together all but one fail to make its tables, and try again."""


def open_storage(place: str | Path) -> BaseStorage:
    """Open, or make, the storage of studies.

    Args:
        place: The path of a journal file, or a database URL such as `sqlite:///search.db` or
            `postgresql://user@host/database`. Many processes may have it open; over a network file system a journal
            file is safe where SQLite is not.

    Raises:
        RecipeError: for a URL that is malformed, or of an unknown database.
        OutputError: for a database that cannot be reached or a file that is no journal; it is left as it is.
    """
    if isinstance(place, str) and "://" in place:
        return _open_database(place)
    if isinstance(place, str) and _SCHEME.match(place):
        raise RecipeError(f"Storage '{place}' {_MALFORMED}")
    return _open_journal(Path(place))


def shown(place: str | Path) -> str:
    """Return the storage's place as messages show it, without a password."""
    if isinstance(place, str) and "://" in place:
        return make_url(place).render_as_string(hide_password=True)
    return str(place)


def _open_journal(path: Path) -> BaseStorage:
    """Open a journal file, or make it."""
    try:
        # The path is made absolute, because Optuna's lock is a symbolic link to it: one to a relative path may lead
        # nowhere, and would be waited for without end.
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        _release_foreign_lock(path)
        _check_journal(path)
        return JournalStorage(JournalFileBackend(str(path)))
    except OSError as error:
        raise OutputError(
            f"The search journal {path} cannot be opened: {error}; give another file as --storage."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        raise OutputError(
            f"The search journal {path} is damaged, or from a newer Optuna ({error})and is left as it is; give "
            "another file as --storage."
        ) from None


def _check_journal(path: Path) -> None:
    """Refuse a file that is no journal, and remove a last line that a killed writer left unfinished."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        start = file.read(len(_JOURNAL_START))
    if start.startswith(b"SQLite"):
        raise OutputError(f"{path} is an SQLite database, not a search journal; give its URL, sqlite:///{path}.")
    if start != _JOURNAL_START:
        raise OutputError(f"{path} is not a search journal and is left unchanged; give another file as --storage.")
    lock = JournalFileSymlinkLock(str(path))
    lock.acquire()
    try:
        content = path.read_bytes()
        # The next writer would append to an unfinished line, and the journal could not be read any more.
        if not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
    finally:
        lock.release()


def _open_database(url: str) -> BaseStorage:
    """Open a database, trying again while others make its tables."""
    try:
        url_parts = make_url(url)
    except (ArgumentError, ValueError):
        # SQLAlchemy raises a ValueError for a port that is no number.
        raise RecipeError(f"The storage URL {_MALFORMED}") from None
    database = url_parts.get_backend_name()
    if database not in DATABASES:
        hint = suggestion(database, DATABASES)
        raise RecipeError(
            f"'{database}' is not a kind of database that can store a search.{hint} Give a URL such as "
            "sqlite:///search.db, or the path of a journal file."
        )
    is_sqlite = database == "sqlite"
    if is_sqlite and url_parts.database in (None, "", ":memory:"):
        raise RecipeError(
            f"Storage {shown(url)} names no file, so the search would be lost at its end; give one, as in "
            "sqlite:///search.db."
        )
    options: dict[str, Any] = {}
    if is_sqlite:
        options["connect_args"] = {"timeout": _SQLITE_SECONDS}
        # A pool would leave its connections open; opening a file costs nothing.
        options["poolclass"] = NullPool
    for attempt in range(1, _DATABASE_TRIES + 1):
        try:
            return RDBStorage(url, engine_kwargs=options)
        except (ImportError, NoSuchModuleError) as error:
            raise OutputError(
                f"Storage {shown(url)} needs a database driver that is not installed ({error.__cause__ or error}); "
                f"install the driver with pip ({_DRIVERS}), or give the path of a journal file."
            ) from None
        except (DBAPIError, RuntimeError) as error:
            if attempt == _DATABASE_TRIES:
                # An error of SQLAlchemy's holds the driver's, whose message is shorter.
                driver_error = getattr(error, "orig", error)
                reason = str(driver_error).strip().splitlines()[0]
                raise OutputError(
                    f"Storage {shown(url)} cannot be reached: {reason}; check the URL, or give the path of a journal "
                    "file."
                ) from None
            time.sleep(_RETRY_SECONDS * attempt)
    raise AssertionError("the last try returns or raises")


def _release_foreign_lock(path: Path) -> None:
    """Remove the lock of a journal that was moved or copied while it was held.

    Optuna's lock is a symbolic link to the journal. A link to the place where the journal was is never released, so
    Optuna would wait for it without end. A live process of another machine, which has the same folder by another path,
    makes links to another place too. So a lock is removed only if it has stood unchanged for `_LOCK_SECONDS`.
    """
    link = Path(f"{path}.lock")
    last_lock = None
    first_seen = time.monotonic()
    # Reading the link raises when it is gone: when its holder has released the lock, or when it was removed below.
    with suppress(FileNotFoundError):
        while link.readlink() != path:
            facts = link.lstat()
            # Another process may release this lock and take the next. Inode and time tell two links apart.
            lock = (facts.st_ino, facts.st_mtime_ns)
            if lock != last_lock:
                last_lock = lock
                first_seen = time.monotonic()
            if time.monotonic() - first_seen > _LOCK_SECONDS:
                link.unlink()
            time.sleep(_POLL_SECONDS)
