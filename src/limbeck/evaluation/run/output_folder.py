"""The output folder of an evaluation, which a later evaluation can continue if it has the same preset and settings."""

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
    """Make the folder of an evaluation, or continue an evaluation that is in it.

    A later evaluation in the same folder may have further models, tasks and seeds. Once the folder has results, it must
    have the same preset and settings, and fine-tune models or score them as they are like the first.

    Args:
        folder: The folder.
        preset: Name of the protocol.
        overrides: Settings that replace the protocol's, `setting=value` each.
        as_is: Whether models are scored as they are, without fine-tuning.

    Returns:
        The folder, with `~` replaced by the home directory.

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


def _check_same(folder: Path, saved_request: dict[str, Any], request: Mapping[str, Any]) -> None:
    """Refuse a request with other settings than those of the results in a folder.

    Args:
        folder: The folder of the evaluation.
        saved_request: The request that the results in the folder were made for.
        request: The new request.

    Raises:
        OutputError: naming the setting.
    """
    # Without results, nothing would be mixed: an earlier request may have been refused for its settings.
    if not ResultsFile(folder).read():
        return
    was_as_is = bool(saved_request.get("as_is"))
    is_as_is = bool(request.get("as_is"))
    if was_as_is and not is_as_is:
        raise OutputError(
            f"The evaluation in '{folder}' was begun with --as-is, so it cannot go on without; give --as-is again, "
            "or another --output."
        )
    if is_as_is and not was_as_is:
        raise OutputError(
            f"The evaluation in '{folder}' was begun without --as-is, so it cannot go on with it; leave --as-is "
            "out, or give another --output."
        )
    for key, option in _OPTIONS.items():
        saved_value = saved_request.get(key)
        value = request[key]
        if value != saved_value:
            raise OutputError(
                f"The evaluation in '{folder}' was begun with {option} {_in_words(saved_value)}, but now it is "
                f"{_in_words(value)}; give the earlier value again, or another --output."
            )


def _in_words(value: Any) -> str:
    """Return the value of an option as on the command line: lists are joined, and an empty value is "nothing"."""
    values = value if isinstance(value, list) else [value]
    return " ".join(map(str, values)) or "nothing"
