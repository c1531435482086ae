"""The study of a search: opened or made for one identity.

A *study* is Optuna's record of a search's trials. Its *identity* holds the settings that their values depend on, such
as the teacher and the text; a study is continued only by a search of the same identity.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.samplers import BaseSampler
from optuna.study import Study
from sqlalchemy.exc import DBAPIError

from limbeck.errors import OutputError
from limbeck.search.storage import open_storage, shown

IDENTITY = "identity"
"""The name of the study's user attribute that holds its identity: settings by name."""
_LONGEST_VALUE = 197
"""Most characters of a value in a message."""


def open_study(
    place: str | Path,
    name: str,
    identity: Mapping[str, Any],
    sampler: BaseSampler,
    direction: Literal["maximize", "minimize"] = "maximize",
    earlier: Mapping[str, Any] | None = None,
) -> Study:
    """Open a search's study with the trials that it has, or make it.

    Args:
        place: The storage: the path of a journal file, or a database URL.
        name: The study's name; a storage holds many.
        identity: The settings that the trials' values depend on, by name, as JSON holds them: teacher, corpus, method,
            space and so on. They are kept in the study's user attributes.
        sampler: Proposes the next trials. A storage keeps no sampler, so every worker brings the same one.
        direction: Whether larger or smaller values are better.
        earlier: Values that earlier versions wrote for some settings, by name. A study that holds such a value instead
            of the one in `identity` is continued too.

    Raises:
        RecipeError: for a storage URL that is malformed, or of an unknown database.
        OutputError: for a storage that cannot be reached, or a study that was made for something else; it is left as
            it is.
    """
    storage = open_storage(place)
    # The storage turns tuples into lists, so they are compared in that form.
    expected = json.loads(json.dumps(dict(identity)))
    try:
        study = optuna.create_study(
            storage=storage, sampler=sampler, study_name=name, direction=direction, load_if_exists=True
        )
        # A study that has trials and no identity was made by another program.
        is_new = study.user_attrs.get(IDENTITY) is None and not study.get_trials(deepcopy=False)
        if is_new:
            study.set_user_attr(IDENTITY, expected)
        recorded = study.user_attrs.get(IDENTITY)
    except DBAPIError as problem:
        raise OutputError(f"Storage {shown(place)} cannot be used: {problem.orig}; check the URL.") from None
    where = f"Study '{name}' in {shown(place)}"
    way_out = (
        "repeat the command that began this study, or give another --output (in a shared storage, another --name)."
    )
    if recorded is None:
        raise OutputError(f"{where} has trials that no limbeck search made; {way_out}")
    if study.direction.name != direction.upper():
        raise OutputError(
            f"{where} was begun to {study.direction.name.lower()}, but this search has to {direction}; {way_out}"
        )
    # A setting may stand on one side alone; it is None on the other.
    for key in (*recorded, *expected):
        accepted_values = [expected.get(key)]
        if earlier is not None and key in earlier:
            accepted_values.append(earlier[key])
        if recorded.get(key) not in accepted_values:
            difference = f"{_brief(recorded.get(key))}, not {_brief(expected.get(key))}"
            raise OutputError(f"{where} was begun with another {key}: {difference}; {way_out}")
    return study


def _brief(value: object) -> str:
    """Return a value as JSON, cut to `_LONGEST_VALUE` characters."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE]}..."


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Let Optuna print nothing but errors inside the block; its previous level is restored at the end."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
