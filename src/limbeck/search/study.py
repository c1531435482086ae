"""Opening the study of a search, and holding it to what it was made for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.samplers import BaseSampler
from optuna.study import Study
from sqlalchemy.exc import DBAPIError

from limbeck.errors import OutputError
from limbeck.search.storage import open_storage, shown

IDENTITY = "identity"


def open_study(
    place: str | Path,
    name: str,
    identity: Mapping[str, Any],
    sampler: BaseSampler,
    direction: Literal["maximize", "minimize"] = "maximize",
) -> Study:
    """Open a search's study, or make it, with all that was evaluated before.

    Args:
        place: The storage: the path of a journal file, or a database URL.
        name: The study's name; a storage holds many.
        identity: What values are comparable for, by name: teacher, corpus, method, space and so on, as JSON holds it.
            It is kept in the study's user attributes.
        sampler: What proposes the next trials. A storage keeps no sampler, so every worker brings the same one.
        direction: Whether more is better.

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
        raise OutputError(f"{where} has trials of something else than a limbeck search; {way_out}")
    if study.direction.name != direction.upper():
        raise OutputError(f"{where} was made to {study.direction.name.lower()}, not to {direction}; {way_out}")
    for key in {**found, **wanted}:
        if found.get(key) != wanted.get(key):
            difference = f"{_brief(found.get(key))}, not {_brief(wanted.get(key))}"
            raise OutputError(f"{where} was made for another {key}: {difference}; {way_out}")
    return study


def _brief(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:197]}..."
