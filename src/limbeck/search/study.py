"""The study of a search: its storage, the identity that it is held to, its trials by candidate, and its folder."""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from limbeck.core.files import atomic_text
from limbeck.core.folders import FolderKind, claim, writing
from limbeck.core.paths import SEARCH_RECORD
from limbeck.errors import OutputError, RecipeError, suggestion
from limbeck.search.requests import JOURNAL

DATABASES = ("sqlite", "postgresql", "mysql", "mariadb")
_JOURNAL_START = b'{"op_code":'
_SCHEME = re.compile(r"[a-z][a-z0-9+]+:", re.IGNORECASE)  # Two letters: one alone would be a drive.
_MALFORMED = "is malformed; write one like sqlite:///search.db or postgresql://user@host/database."
_DRIVERS = "psycopg2-binary for postgresql, mysqlclient for mysql and mariadb"
_SQLITE_SECONDS = 60
_LOCK_SECONDS = 30
# Workers that start together all make the tables, and all but one fail.
_DATABASE_TRIES = 5


def open_storage(place: str | Path) -> BaseStorage:
    """Open, or make, the storage of studies.

    Args:
        place: The path of a journal file, or a database URL such as `sqlite:///search.db` or
            `postgresql://user@host/database`. Many processes may have it open; over a network file system a journal
            file is safe where SQLite is not.

    Raises:
        RecipeError: for a URL of a kind that is not known, or that is malformed.
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
    # Absolute: the lock is a symbolic link to the file, and is waited for without end where that leads nowhere.
    try:
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        _release_foreign_lock(path)
        _check_journal(path)
        return JournalStorage(JournalFileBackend(str(path)))
    except OSError as problem:
        raise OutputError(f"The search journal {path} cannot be opened: {problem}; name another file.") from None
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as problem:
        raise OutputError(
            f"The search journal {path} is damaged, or from a newer Optuna ({problem}); it is left as it is, name "
            "another file."
        ) from None


def _check_journal(path: Path) -> None:
    """Refuse a file that is no journal, and take off a last line that a killed writer left unfinished."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        start = file.read(len(_JOURNAL_START))
    if start.startswith(b"SQLite"):
        raise OutputError(f"{path} is an SQLite database, not a search journal; write sqlite:///{path}.")
    if start != _JOURNAL_START:
        raise OutputError(f"{path} is not a search journal; it is left unchanged, name another file.")
    lock = JournalFileSymlinkLock(str(path))
    lock.acquire()
    try:
        content = path.read_bytes()
        # The next writer would go on in that line, and nobody could read the journal any more.
        if not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
    finally:
        lock.release()


def _open_database(url: str) -> BaseStorage:
    try:
        kind, database = make_url(url).get_backend_name(), make_url(url).database
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise RecipeError(f"The storage URL {_MALFORMED}") from None
    if kind not in DATABASES:
        raise RecipeError(f"Unknown storage '{kind}'.{suggestion(kind, DATABASES)} Or give the path of a journal file.")
    if kind == "sqlite" and database in (None, "", ":memory:"):
        raise RecipeError(f"Storage {shown(url)} names no file and would keep nothing; write sqlite:///search.db.")
    # Writers wait for each other; SQLite by itself gives up after five seconds.
    options: dict[str, Any] = {"connect_args": {"timeout": _SQLITE_SECONDS}} if kind == "sqlite" else {}
    if kind == "sqlite":
        options["poolclass"] = NullPool  # A pool would leave its connections open; opening a file costs nothing.
    for attempt in range(1, _DATABASE_TRIES + 1):
        try:
            return RDBStorage(url, engine_kwargs=options)
        except (ImportError, NoSuchModuleError) as problem:
            raise OutputError(
                f"Storage {shown(url)} needs a database driver that is not installed ({problem.__cause__ or problem}); "
                f"pip install it ({_DRIVERS}), or give the path of a journal file."
            ) from None
        except (DBAPIError, RuntimeError) as problem:
            if attempt == _DATABASE_TRIES:
                reason = str(getattr(problem, "orig", problem)).strip().splitlines()[0]
                way_out = "check the URL, or give the path of a journal file."
                raise OutputError(f"Storage {shown(url)} cannot be reached: {reason}; {way_out}") from None
            time.sleep(0.2 * attempt)
    raise AssertionError("the last try returns or raises")


def _release_foreign_lock(path: Path) -> None:
    """Remove the lock of a journal that was moved or copied while it was held.

    Optuna's lock is a link to the journal: one that leads to where the journal was is waited for without end. A machine
    that has the same folder by another name has such links too, so that it is given the time of any other lock.
    """
    link, seen, since = Path(f"{path}.lock"), None, time.monotonic()
    with suppress(FileNotFoundError):  # It was released.
        while link.readlink() != path:
            facts = link.lstat()
            if (found := (facts.st_ino, facts.st_mtime_ns)) != seen:
                seen, since = found, time.monotonic()
            if time.monotonic() - since > _LOCK_SECONDS:
                link.unlink()
            time.sleep(0.05)


IDENTITY = "identity"


def open_study(
    place: str | Path,
    name: str,
    identity: Mapping[str, Any],
    sampler: BaseSampler,
    direction: Literal["maximize", "minimize"] = "maximize",
    earlier: Mapping[str, Any] | None = None,
) -> Study:
    """Open a search's study, or make it, with all that was evaluated before.

    Args:
        place: The storage: the path of a journal file, or a database URL.
        name: The study's name; a storage holds many.
        identity: What values are comparable for, by name: teacher, corpus, method, space and so on, as JSON holds it.
            It is kept in the study's user attributes.
        sampler: What proposes the next trials. A storage keeps no sampler, so every worker brings the same one.
        direction: Whether more is better.
        earlier: Other values of the identity that earlier versions wrote for the same, by name.

    Raises:
        RecipeError: for a storage URL of a kind that is not known, or that is malformed.
        OutputError: for a storage that cannot be reached, or a study that was made for something else; it is left as
            it is.
    """
    storage = open_storage(place)
    # As the storage gives it back, so that a tuple equals the list that it became.
    wanted = json.loads(json.dumps(dict(identity)))
    try:
        study = optuna.create_study(
            storage=storage, sampler=sampler, study_name=name, direction=direction, load_if_exists=True
        )
        if study.user_attrs.get(IDENTITY) is None and not study.get_trials(deepcopy=False):
            study.set_user_attr(IDENTITY, wanted)
        found = study.user_attrs.get(IDENTITY)
    except DBAPIError as problem:
        raise OutputError(f"Storage {shown(place)} cannot be used: {problem.orig}; check the URL.") from None
    where = f"Study '{name}' in {shown(place)}"
    way_out = "continue it as it was made, or search into another output (in a shared storage: under another name)."
    if found is None:
        raise OutputError(f"{where} has trials that are not of a limbeck search; {way_out}")
    if study.direction.name != direction.upper():
        raise OutputError(f"{where} was made to {study.direction.name.lower()}, not to {direction}; {way_out}")
    for key in {**found, **wanted}:
        if found.get(key) not in (wanted.get(key), (earlier or {}).get(key, wanted.get(key))):
            difference = f"{_brief(found.get(key))}, not {_brief(wanted.get(key))}"
            raise OutputError(f"{where} was made for another {key}: {difference}; {way_out}")
    return study


def _brief(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:197]}..."


DIVERGED = "diverged"
"""User attribute of a failed trial whose candidate diverged: its worker is fine, so it is not retried without limit."""

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class TrialLog(Generic[Item]):
    """The trials of a study by candidate.

    Args:
        done: The first trial that settled each candidate.
        running: The first trial of each candidate that a worker has, or that waits.
        diverged: How often each candidate ended without a finite value.
    """

    done: Mapping[Item, FrozenTrial]
    running: Mapping[Item, int]
    diverged: Counter[Item]

    @property
    def values(self) -> dict[Item, float]:
        """The value of each candidate that has one."""
        return {candidate: trial.value for candidate, trial in self.done.items() if trial.value is not None}


def read_trials(
    trials: Iterable[FrozenTrial],
    candidate_of: Callable[[FrozenTrial], Item | None],
    settles: Callable[[FrozenTrial], bool],
) -> TrialLog[Item]:
    """Gather a study's trials by candidate.

    Args:
        trials: In the order of their numbers.
        candidate_of: Returns a trial's candidate; None where it has no whole one.
        settles: Whether nothing more is to be learned of a finished trial's candidate.
    """
    done: dict[Item, FrozenTrial] = {}
    running: dict[Item, int] = {}
    diverged: Counter[Item] = Counter()
    for trial in trials:
        candidate = candidate_of(trial)
        if candidate is None:
            continue
        if trial.state in (TrialState.RUNNING, TrialState.WAITING):
            running.setdefault(candidate, trial.number)
        elif settles(trial):
            done.setdefault(candidate, trial)
        elif trial.state == TrialState.COMPLETE or trial.user_attrs.get(DIVERGED):
            diverged[candidate] += 1
    return TrialLog(done, running, diverged)


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Let Optuna print nothing but errors inside the block; the level of before is put back at the end."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


def prepare_search_folder(folder: Path, *, kind: str, name: str) -> None:
    """Make or take up the folder of a search.

    Args:
        folder: The folder.
        kind: Of the search.
        name: Of its study.

    Raises:
        OutputError: if it is a file, holds anything but this search, or cannot be written.
    """
    folder = folder.expanduser()
    identity = {"kind": kind, "name": name}
    if not claim(folder, _SEARCH, identity):
        with writing(folder):
            atomic_text(folder / SEARCH_RECORD, json.dumps({**identity, "status": "running"}) + "\n")


def _check_same(folder: Path, saved: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    found = {key: saved.get(key) for key in asked}
    if found != asked:
        raise OutputError(
            f"Output folder '{folder}' holds the search {found['kind']} '{found['name']}', not {asked['kind']} "
            f"'{asked['name']}'; choose another folder."
        )


_SEARCH = FolderKind("search", SEARCH_RECORD, _check_same, beside=frozenset({JOURNAL}))
