"""The output folder of an evaluation: made, or taken up again by an evaluation with the same preset and settings."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.core import folders, records, studies
from limbeck.errors import OutputError
from limbeck.evaluation.plan.request import EVALUATION
from limbeck.evaluation.run.results_file import ResultsFile

_OPTIONS = {"preset": "--preset", "set": "--set"}
"""Keys of a saved request that must stay the same, and the options that give them."""


def prepare_folder(folder: Path, *, preset: str, overrides: list[str], as_is: bool = False) -> Path:
    """Make or take up the folder of an evaluation. Models, tasks and seeds may be added to it.

    The first cell binds it to its preset and settings, and to fine-tuning or models as they are; a request that was
    refused before does not.

    Args:
        folder: The folder.
        preset: Name of the protocol.
        overrides: Settings in place of those of the protocol.
        as_is: Whether models are scored as they are.

    Returns:
        The folder.

    Raises:
        OutputError: if it is a file, holds something else or an evaluation by other settings, or cannot be written.
    """
    folder = folder.expanduser()
    request = studies.EvaluationRequest(preset=preset, set=overrides)
    if as_is:
        request.as_is = True
    evaluation_folder = replace(EVALUATION, check=_check_same)
    folders.claim(folder, evaluation_folder, request.to_dict())
    with folders.writing(folder):
        records.save(request, folder)
    return folder


def _check_same(folder: Path, saved: dict[str, Any], requested: Mapping[str, Any]) -> None:
    """Refuse other settings than those of the cells that are in a folder.

    Args:
        folder: Of the evaluation.
        saved: The request that is saved in it.
        requested: The new request.

    Raises:
        OutputError: naming the setting.
    """
    if not ResultsFile(folder).read():
        return
    was_as_is = bool(saved.get("as_is"))
    is_as_is = bool(requested.get("as_is"))
    if was_as_is and not is_as_is:
        raise OutputError(f"The evaluation in '{folder}' scores models as they are; give --as-is, or another --output.")
    if is_as_is and not was_as_is:
        raise OutputError(f"The evaluation in '{folder}' fine-tunes its models; give no --as-is, or another --output.")
    for key, option in _OPTIONS.items():
        old = saved.get(key)
        new = requested[key]
        if old != new:
            raise OutputError(
                f"The evaluation in '{folder}' has {option} {_in_words(old)}, not {_in_words(new)}; "
                "use the same, or another --output."
            )


def _in_words(value: Any) -> str:
    """Return the value of an option, or the values of one that is given many times; `nothing` of an empty one."""
    values = value if isinstance(value, list) else [value]
    return " ".join(map(str, values)) or "nothing"
