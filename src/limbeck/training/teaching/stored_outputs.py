"""Stores of a stage's teacher: the facts of a store, its files of the teacher, and the teaching that fills it."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from transformers import PreTrainedModel

from limbeck.core import ranks
from limbeck.core.files import atomic_folder
from limbeck.core.folders import writing
from limbeck.core.paths import default_cache_dir
from limbeck.evaluation import costs
from limbeck.methods.teaching import Teaching
from limbeck.models.fingerprint import model_fingerprint
from limbeck.models.folder_files import read_json, read_modules
from limbeck.models.locating import is_local, resolve_model
from limbeck.models.sentence_reader import fetch_sentence_root
from limbeck.models.streams import OF_OUTPUT
from limbeck.models.weight_files import WEIGHTS_INDEX
from limbeck.recipe.model_plans import TeacherInfo
from limbeck.recipe.stage_plan import StagePlan
from limbeck.targets.facts import STORE_FACTS, TEACHER_FOLDER, StoreFacts
from limbeck.targets.stored_teaching import RememberingTeaching
from limbeck.targets.writer import check_same_store, hold_store, open_store
from limbeck.training.teaching.teacher_dtype import teacher_dtype

_CACHED_STORES = "stores"
"""Folder of limbeck's cache with a store for each teacher whose outputs are cached."""
_SMALL_FILES = (".json", ".txt", ".model", ".jinja", ".md")
"""Endings of configuration, tokenizer and card files."""


def streams_of_teacher(stages: Sequence[StagePlan]) -> dict[str, int]:
    """Return the streams that the terms of some stages read of their teacher, with the width of each.

    A store can hold those that are made of the model's whole output: `pooled`, `vector` and `logits`.
    """
    widths: dict[str, int] = {}
    for stage in stages:
        hidden = stage.teacher.shape.hidden
        for name in OF_OUTPUT:
            if name not in stage.teacher_streams:
                continue
            if name == "pooled":
                widths[name] = stage.teacher_vectors.pooled_width(hidden)
            elif name == "vector":
                widths[name] = stage.teacher_vectors.width(hidden)
            else:
                # `logits` are the scores of a classifier, one for each class.
                widths[name] = stage.teacher.config.num_labels
    return widths


def facts_of_store(
    stages: Sequence[StagePlan], number_format: str = "float32", model: PreTrainedModel | None = None
) -> StoreFacts:
    """Return the facts of a store for the terms of some stages of one teacher.

    Args:
        stages: The stages.
        number_format: How numbers are kept.
        model: The teacher, for its size in tables; None leaves that out.
    """
    teacher = stages[0].teacher
    figures = {}
    if model is not None:
        counts = costs.count_parameters(model)
        place = resolve_model(teacher.spec.model)
        model_folder = place if is_local(place) else None
        megabytes, source = costs.model_megabytes(model, model_folder)
        parameters = {**asdict(counts), "total": counts.total}
        figures = {"parameters": parameters, "megabytes": megabytes, "megabytes_of": source}
    return StoreFacts(
        teacher=teacher.title,
        weights=model_fingerprint(teacher.spec.model, teacher.spec.revision),
        streams=streams_of_teacher(stages),
        number_format=number_format,
        model=teacher.spec.model,
        hidden_width=teacher.shape.hidden,
        labels=teacher.labels,
        figures=figures,
        computed_in=teacher_dtype(stages[0]),
    )


def copy_teacher_files(teacher: TeacherInfo, store: Path) -> None:
    """Copy a teacher's configuration, tokenizer, card and modules into a store; its Transformer's weights stay out."""
    # The folder is written as a whole, so one that is there is complete.
    target = store / TEACHER_FOLDER
    if target.is_dir():
        return
    # Modules of a sentence-transformers model lie in the model's folder itself or in folders of their own.
    source = fetch_sentence_root(teacher.spec.model, teacher.spec.revision)
    folders = {module.folder(source) for module in read_modules(source)} - {source}
    with writing(store):
        store.mkdir(parents=True, exist_ok=True)
    with writing(store), atomic_folder(target) as folder:
        _copy_small_files(source, folder)
        for module_folder in sorted(folders):
            # A module without numbers, such as the scaling to length one, need not have a folder.
            if not module_folder.is_dir():
                continue
            # Sentence vectors need the weights of all modules but the first, which is the Transformer.
            is_transformer = "model_type" in read_json(module_folder / "config.json", {})
            _copy_small_files(module_folder, folder / module_folder.relative_to(source))
            if not is_transformer:
                for weights in module_folder.glob("*.safetensors"):
                    shutil.copyfile(weights, folder / module_folder.relative_to(source) / weights.name)
        if teacher.spec.classes:
            # The recipe gives the classes other names than the teacher's config.json does. Here the new ones replace
            # those in the copy of that file.
            teacher.config.save_pretrained(folder)


def _copy_small_files(source: Path, target: Path) -> None:
    """Copy the files of a model's folder that are not weights."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix in _SMALL_FILES and path.name != WEIGHTS_INDEX:
            shutil.copyfile(path, target / path.name)


def _hold_prepared_store(folder: Path, facts: StoreFacts, teacher: TeacherInfo) -> ExitStack | None:
    """Hold a store for this process, and make it ready for writing.

    Args:
        folder: The folder of the store.
        facts: The facts that it gets, or has already.
        teacher: The teacher, whose files are copied into it.

    Returns:
        The lock, which the caller closes; None where another run holds the store.
    """
    lock = hold_store(folder)
    if lock is None:
        return None
    try:
        copy_teacher_files(teacher, folder)
        open_store(folder, facts, "teacher.stored")
    except BaseException:
        lock.close()
        raise
    return lock


def remembering(live: Teaching, stage: StagePlan) -> Teaching:
    """Return a teaching that stores the outputs of a stage's teacher, and reads those that are stored already.

    The caller has checked that the recipe asks for this (`TeacherSpec.remembers`). All processes of a run call it
    together. While another run adds to the store, such as another worker of a search, this one only reads it.

    Args:
        live: The teaching that runs the model, for the texts that the store lacks.
        stage: The stage.
    """
    spec = stage.teacher.spec
    facts = facts_of_store([stage])
    # A recipe with `missing: compute` names the folder. With `cache: true` it is in limbeck's cache.
    if spec.stored is not None:
        folder = Path(spec.stored).expanduser()
    else:
        folder = default_cache_dir() / _CACHED_STORES / facts.identity

    # The main process holds the store for all, by a lock that cannot be sent to the others. The teaching releases it.
    lock: ExitStack | None = None

    def prepare() -> bool:
        nonlocal lock
        lock = _hold_prepared_store(folder, facts, stage.teacher)
        return lock is not None

    writes = ranks.on_main_rank(prepare)
    if not writes:
        # The other run may still be making the store. There is nothing to read then, so every text is computed.
        if not (folder / STORE_FACTS).is_file():
            return live
        ranks.on_main_rank(partial(check_same_store, folder, facts, "teacher.stored"))
    process = ranks.process_index()
    return ranks.on_all_ranks(partial(RememberingTeaching, live, folder, process, lock=lock, writes=writes))
