"""mteb's own records of a score, kept beside limbeck's tables, and the file from which the Hub reads it.

mteb's records lie in `mteb/` of the evaluation's folder, in the layout of mteb's cache of results:
`results/MODEL/REVISION/TASK.json` with `model_meta.json`. mteb's tools read them with
`mteb.ResultCache(FOLDER / "mteb")`.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from limbeck.core.files import atomic_file, atomic_text, writing
from limbeck.core.paths import run_of_student

FOLDER = "mteb"
"""The folder of an evaluation with mteb's records."""
HUB_RESULTS = ".eval_results"
"""The folder beside a model's card from which the Hub reads scores."""
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_ADDRESS = "https://github.com/embeddings-benchmark/mteb/"
_PERCENT = 100


def keep_records(result: Any, metadata: Any, model_meta: Any, *, model: str, output: Path) -> None:
    """Write mteb's records of a model on a task, and the Hub's where the task's data set is on the Hub.

    Args:
        result: mteb's result of the task.
        metadata: mteb's metadata of the task.
        model_meta: mteb's metadata of the model.
        model: The model, as the user named it.
        output: The folder of the evaluation.

    Raises:
        OutputError: if they cannot be written.
    """
    from mteb import ResultCache

    path = ResultCache(output / FOLDER).get_task_result_path(result.task_name, model_meta)
    # Several cells, in processes of their own, may write beside each other.
    with writing(path):
        with atomic_file(path, shared=True) as partial:
            result.to_disk(partial)
        description = json.dumps(model_meta.to_dict(), default=str, indent=4)
        atomic_text(path.with_name("model_meta.json"), description, shared=True)

    # Rows of the user's own are no data set of the Hub.
    is_on_hub = _HUB_NAME.fullmatch(metadata.dataset["path"]) is not None
    if is_on_hub:
        hub_file = _folder_of_card(model, path.parent) / HUB_RESULTS / f"{result.task_name}.yaml"
        with writing(hub_file):
            atomic_text(hub_file, _hub_results(result, metadata), shared=True)


def _folder_of_card(model: str, otherwise: Path) -> Path:
    """Return the folder with the card of a student that limbeck made; another folder for any other model.

    Args:
        model: The model, as the user named it.
        otherwise: The folder for models that are not limbeck's to write to.
    """
    folder = Path(model).expanduser()
    if run_of_student(folder) is not None and os.access(folder, os.W_OK):
        return folder
    return otherwise


def _hub_results(result: Any, metadata: Any) -> str:
    """Return the scores of a task in the Hub's form, in percent: of each subset and split, then of all of them.

    Source: the Hub's page on evaluation results (huggingface.co/docs/hub/eval-results). Names of tasks are those under
    which mteb's data sets list them.
    """
    name = result.task_name
    score_of_task = {}
    for split, scores_of_subsets in result.scores.items():
        for scores in scores_of_subsets:
            score_of_task[f"{name}_{scores['hf_subset']}_{split}"] = scores["main_score"]
    score_of_task[name] = result.get_score()

    notes = f"Obtained using MTEB v{result.mteb_version}"
    entries = [
        EvalResultEntry(
            dataset_id=metadata.dataset["path"],
            task_id=task,
            value=round(_PERCENT * float(score), 5),
            dataset_revision=metadata.dataset["revision"],
            date=result.date.date().isoformat(),
            source_url=_ADDRESS,
            source_name=notes,
            notes=notes,
        )
        for task, score in score_of_task.items()
    ]
    return yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False)
