"""`teach`: a teacher is run once over the text of a recipe, and what it says is stored for students to learn from."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from limbeck.core import ranks
from limbeck.core.blocks import duration
from limbeck.core.devices import choose_device
from limbeck.core.files import atomic_file, atomic_text
from limbeck.core.progress import Count, no_progress
from limbeck.core.progress_bars import ProgressBar
from limbeck.core.seals import examine, file_facts, sealed_text
from limbeck.corpus import Tokenizers
from limbeck.corpus.batches.batch import Batch, read_batch
from limbeck.corpus.batches.collating import PadCollator
from limbeck.corpus.text.text_keys import TEXT_KEY
from limbeck.errors import ModelError, RecipeError, shorten_error
from limbeck.evaluation import Side
from limbeck.evaluation.stored_side import COMPARED, store_compared
from limbeck.models.families import shape_of
from limbeck.models.heads import head_of
from limbeck.models.loading import load_config, load_model
from limbeck.models.packing import send_batch
from limbeck.models.quiet import quiet
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import finished_pooling
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from limbeck.models.vector_check import check_vectors
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_checks import check_text_level, check_text_unchanged
from limbeck.recipe.stage_plan import StagePlan
from limbeck.targets.drift import Drift, describe_drift, measure_drift
from limbeck.targets.facts import StoreFacts, read_facts
from limbeck.targets.store import Store, unfinished_files
from limbeck.targets.stored_teaching import as_rows
from limbeck.targets.writer import StoreWriter, hold_store_alone, merge_files, open_store
from limbeck.training.corpora import build_corpora
from limbeck.training.evaluation import amounts_of, held_out_texts
from limbeck.training.rows import AnyCorpus
from limbeck.training.run_tokenizers import load_tokenizers
from limbeck.training.teaching.models import TeacherModels
from limbeck.training.teaching.stored_outputs import copy_teacher_files, facts_of_store
from limbeck.training.teaching.taught_texts import splits_of

SAMPLE = "sample.safetensors"
"""File of a store with some rows as the teacher read them, to compare the store with the live teacher."""
SAMPLE_NOTE = "sample.note.json"
"""File beside it with its hash."""
_SAMPLE_ROWS = 64
"""Rows of that sample."""
_TIMED_BATCHES = 3
"""Batches after which the time of all of them is estimated."""


@dataclass(frozen=True)
class TaughtRows:
    """What a call of `teach` did.

    Args:
        rows: Rows of the store.
        computed: Rows that this call computed, in all processes.
        seconds: Time in which they were computed.
        tokens: Tokens that the teacher read in it.
        compared: Texts whose vectors were stored for the comparison of student and teacher.
    """

    rows: int
    computed: int
    seconds: float
    tokens: int
    compared: int


@dataclass(frozen=True)
class _Rows:
    """The rows that a process computes: each text once.

    Args:
        datasets: Token rows of all splits.
        dataset: Index of each row's data set, `[rows]`.
        index: Its index there, `[rows]`.
        key: The key of its text, `[rows]`.
        length: Its length in tokens, `[rows]`.
    """

    datasets: Sequence[Any]
    dataset: NDArray[np.int64]
    index: NDArray[np.int64]
    key: NDArray[np.int64]
    length: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: NDArray[np.int64]) -> "_Rows":
        """Return some of the rows, in that order."""
        return replace(
            self, dataset=self.dataset[rows], index=self.index[rows], key=self.key[rows], length=self.length[rows]
        )

    def read(self) -> list[dict[str, Any]]:
        """Return the rows themselves, without their labels."""
        rows = []
        for dataset, index in zip(self.dataset.tolist(), self.index.tolist(), strict=True):
            rows.append(self.datasets[dataset][index])
        return rows


def teach(plan: RunPlan, folder: Path, *, number_format: str, batch_size: int, console: Console) -> TaughtRows:
    """Store what a recipe's teacher says of all its texts; every process of a launcher calls this.

    A call that was stopped goes on where it was. Rows that the store has already are not computed again.

    Args:
        plan: The checked recipe.
        folder: The folder of the store.
        number_format: How numbers are kept, see `limbeck.targets.row_files.NUMBER_FORMATS`.
        batch_size: Rows that the teacher reads at once.
        console: Where progress goes.

    Raises:
        LimbeckError: for terms on tokens or layers, text that changes, a folder with other outputs, and one that
            another call writes to.
    """
    # The processes of one launcher share the store, which the main one holds for them.
    lock = ExitStack()

    def hold() -> None:
        lock.enter_context(hold_store_alone(folder))

    ranks.on_main_rank(hold)
    with lock:
        return _teach(plan, folder, number_format=number_format, batch_size=batch_size, console=console)


def _teach(plan: RunPlan, folder: Path, *, number_format: str, batch_size: int, console: Console) -> TaughtRows:
    """Fill a store that this call holds; see `teach`."""
    stages = _stages_to_teach(plan)
    plan = replace(plan, stages=stages)
    tokenizer = ranks.on_all_ranks(lambda: load_tokenizers(plan).teacher)
    ranks.on_main_rank(partial(check_vectors, plan.vector_teachers))
    # The text is read by the teacher alone.
    teacher_alone = Tokenizers(tokenizer)
    corpora = ranks.main_rank_first(partial(build_corpora, plan, lambda _: teacher_alone, console))
    # All stages read the same streams, so the teaching of the first serves all of them. It may drop parts of its model
    # that these streams do not need; the whole model is for sizes and for the comparison at the end.
    with quiet():
        teachers = TeacherModels(plan.teacher_info)
        teaching = ranks.on_all_ranks(partial(teachers.open, stages[0], stages[0].terms))
        whole_model = ranks.on_all_ranks(teachers.load)
    facts = facts_of_store(stages, number_format, whole_model)

    def prepare() -> None:
        copy_teacher_files(plan.teacher_info, folder)
        open_store(folder, facts)

    ranks.on_main_rank(prepare)
    store = ranks.on_all_ranks(partial(Store, folder))
    rows = _rows_of(corpora)
    is_new = ~store.has(rows.key)
    new_rows = rows.take(np.flatnonzero(is_new))
    collate = PadCollator(tokenizer.pad_token_id)
    if ranks.is_main():
        size = len(rows) * facts.row_bytes
        of_texts = f"of {len(rows):,} texts"
        if len(new_rows) < len(rows):
            of_texts += f", {len(rows) - len(new_rows):,} of them stored before"
        console.print(
            f"Teacher: {facts.teacher}, {_words(facts.streams)} {of_texts}: {_megabytes(size)} as {number_format} in "
            f"{folder}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        # A sample that is damaged, or of an earlier version without a note, is written anew.
        if examine(folder / SAMPLE_NOTE).listing is None:
            _write_sample(folder, rows, collate)

    device = choose_device("auto")
    teaching.move(device)
    start = time.perf_counter()
    with ProgressBar(console) as bar, StoreWriter(folder, ranks.process_index()) as writer:
        report = bar if ranks.is_main() else no_progress
        tokens_done = 0
        batches = list(_batches_of(new_rows, batch_size))
        for number, batch_rows in enumerate(batches):
            batch = read_batch(send_batch(_inputs(collate, batch_rows), device))
            with torch.inference_mode():
                values = as_rows(teaching.read(batch))
            writer.add(batch_rows.key, values)
            tokens_done += int(batch_rows.length.sum())
            seconds = time.perf_counter() - start
            if number + 1 == _TIMED_BATCHES and ranks.is_main():
                _print_estimate(console, tokens_done, new_rows, seconds)
            report((number + 1) / len(batches), "targets", Count(tokens_done, "tokens"))
    seconds = time.perf_counter() - start
    teaching.close()

    # The rows and tokens of all processes.
    rows_done = sum(len(batch_rows) for batch_rows in batches)
    computed_rows, computed_tokens = np.sum(ranks.gather((rows_done, tokens_done)), axis=0).tolist()
    compared = ranks.on_main_rank(partial(_store_compared, plan, folder, corpora, tokenizer, whole_model, console))
    stored_rows = ranks.on_main_rank(lambda: len(Store(folder)))
    return TaughtRows(
        rows=stored_rows, computed=computed_rows, seconds=seconds, tokens=computed_tokens, compared=compared
    )


def _stages_to_teach(plan: RunPlan) -> list[StagePlan]:
    """Return the stages that the recipe's teacher teaches, with keys of texts among the columns of their corpora.

    Raises:
        RecipeError: for a teacher that is no model, where no stage reads its outputs, and where stages read different
            ones.
    """
    # A recipe may learn from outputs that are stored already (whose folder has no weights of the teacher), or from a
    # teaching that gives outputs in place of a model, such as vectors in a file.
    is_model = plan.teacher_info.has_weights and plan.teacher_info.teaching is None
    if not is_model:
        raise RecipeError("The teacher of this recipe is no model that could be asked; give its own model as teacher.")
    stages = []
    for index, stage in enumerate(plan.stages):
        # Stages may name a teacher of their own: another model, or the student of an earlier stage. A stage without
        # streams of its teacher does not need its outputs.
        is_taught_by_recipe = stage.spec.teacher is None
        if not is_taught_by_recipe or not stage.teacher_streams:
            continue
        place = f"stages.{index}"
        check_text_level(stage.terms, stage.pairing, place)
        check_text_unchanged(stage.spec, place, stage.corpus, stage.teacher.facts.title)
        # Its rows get a column with the key of their text, by which the store has the outputs.
        stages.append(replace(stage, corpus=stage.corpus.model_copy(update={"text_keys": True})))
    if not stages:
        raise RecipeError("No stage of this recipe learns from the outputs of its teacher, so nothing is to be stored.")
    for stage in stages:
        if stage.teacher_streams != stages[0].teacher_streams or stage.teacher_head != stages[0].teacher_head:
            raise RecipeError(
                f"Stages '{stages[0].spec.title}' and '{stage.spec.title}' read different outputs of the teacher; make "
                "a store for each, by recipes of one of them."
            )
    return stages


def _rows_of(corpora: Sequence[AnyCorpus]) -> _Rows:
    """Return all rows of some corpora, each text once, the longest first."""
    datasets = [rows for corpus in corpora for rows in splits_of(corpus)]
    keys = []
    lengths = []
    for rows in datasets:
        columns = rows.with_format("numpy")
        keys.append(np.asarray(columns[TEXT_KEY][:], dtype=np.int64))
        lengths.append(np.asarray(columns["length"][:], dtype=np.int64))
    sizes = [len(part) for part in keys]
    every_row = _Rows(
        datasets,
        dataset=np.repeat(np.arange(len(sizes)), sizes),
        index=np.concatenate([np.arange(size) for size in sizes]),
        key=np.concatenate(keys),
        length=np.concatenate(lengths),
    )
    # The first row of each key: rows with the same text have the same key, and the same outputs.
    _, first = np.unique(every_row.key, return_index=True)
    once = every_row.take(first)
    return once.take(np.argsort(-once.length, kind="stable"))


def _batches_of(rows: _Rows, batch_size: int) -> Iterator[_Rows]:
    """Iterate over the batches of this process: rows of similar length, dealt to the processes in turn."""
    # Of two processes one has the batches 0, 2, 4, ... and the other the batches 1, 3, 5, ...
    begin_of_first = ranks.process_index() * batch_size
    for begin in range(begin_of_first, len(rows), ranks.process_count() * batch_size):
        yield rows.take(np.arange(begin, min(begin + batch_size, len(rows))))


def _inputs(collate: PadCollator, rows: _Rows) -> dict[str, Tensor]:
    """Return the columns of a batch of rows, padded."""
    return collate(rows.read())


def _print_estimate(console: Console, tokens: int, rows: _Rows, seconds: float) -> None:
    """Print how long this process will take, by its first batches."""
    tokens_of_process = int(rows.length.sum()) / ranks.process_count()
    rate = tokens / seconds
    time_left = duration(tokens_of_process / rate)
    console.print(
        f"  about {time_left} at {rate:,.0f} tokens a second; the longest texts come first",
        style="dim",
        highlight=False,
    )


def _store_compared(
    plan: RunPlan,
    folder: Path,
    corpora: Sequence[AnyCorpus],
    tokenizer: PreTrainedTokenizerBase,
    model: Any,
    console: Console,
) -> int:
    """Store the vectors of the texts on which a student's run compares it with its teacher, and return their number.

    Nothing is stored where the recipe has no evaluation, or its stages teach no sentence vectors.
    """
    makes_vectors = any(stage.teacher_streams & {"pooled", "vector"} for stage in plan.stages)
    if not plan.recipe.evaluation.enabled or not makes_vectors:
        return 0
    # With `auto` the teacher's vectors are compared as its own files say that they are made, or else as it made them
    # for the stage. Here its modules need not fit a student, unlike in `plan.vectors`.
    if plan.recipe.evaluation.pooling == "auto":
        vectors: str | SentenceHead = SentenceHead(plan.sentence or plan.stages[-1].teacher_vectors)
    else:
        vectors = plan.vectors()
    side = Side(model, tokenizer, vectors, max_length=plan.recipe.evaluation.length)
    with ProgressBar(console) as bar:
        return store_compared(
            side,
            folder,
            read_facts(folder),
            held_out_texts(plan, corpora, tokenizer, console),
            amounts_of(plan, corpora),
            seed=plan.recipe.seed,
            report=bar,
        )


def _write_sample(folder: Path, rows: _Rows, collate: PadCollator) -> None:
    """Write some rows as the teacher reads them, spread over all lengths."""
    count = min(_SAMPLE_ROWS, len(rows))
    # Rows are in the order of their lengths, so rows at equal distances have all lengths.
    chosen = rows.take(np.linspace(0, len(rows) - 1, count).astype(np.int64))
    with atomic_file(folder / SAMPLE) as partial_file:
        save_file(_inputs(collate, chosen), partial_file)
    atomic_text(folder / SAMPLE_NOTE, sealed_text({"files": {SAMPLE: file_facts(folder / SAMPLE)}}))


@dataclass(frozen=True)
class CheckedStore:
    """What a check of a store found.

    Args:
        store: The store, with its files merged.
        merged: Files that were merged.
        drift: How far some rows are from what the live teacher says of their texts; None where it was not asked.
        notes: Sentences on parts of the store that could not be checked, and on the size of the drift.
    """

    store: Store
    merged: int
    drift: Drift | None = None
    notes: tuple[str, ...] = ()


def check_store(folder: Path, model: str | None = None) -> CheckedStore:
    """Compare the files of a store with their hashes, merge small ones, and compare a sample with the live teacher.

    Args:
        folder: The folder of the store.
        model: The teacher; None compares nothing.

    Raises:
        ModelError: for a store that is damaged, and for a teacher of other streams.
        OutputError: for a store that another process writes to.
    """
    with hold_store_alone(folder):
        merged = merge_files(folder)
    store = Store(folder)
    # The vectors of compared texts are a store of their own. Opening it compares its files with their hashes.
    if (folder / COMPARED).is_dir():
        Store(folder / COMPARED)
    notes = [
        f"'{path}' has no note, so its rows do not count; run `limbeck teach` again for them."
        for path in unfinished_files(folder)
    ]
    if model is None:
        return CheckedStore(store, merged, notes=tuple(notes))

    sample = _read_sample(folder)
    if sample is None:
        notes.append("Not compared with its teacher: the store has no sample; run `limbeck teach` again to add one.")
        return CheckedStore(store, merged, notes=tuple(notes))
    assert sample.text_keys is not None
    keys = sample.text_keys.numpy()
    is_stored = store.has(keys)
    if not is_stored.any():
        notes.append("Not compared with its teacher: no row of its sample is stored yet; run `limbeck teach` again.")
        return CheckedStore(store, merged, notes=tuple(notes))
    stored = store.read(keys[is_stored])
    live = _ask(model, sample, store.facts)
    drift = measure_drift(stored, {name: values[is_stored] for name, values in live.items()})
    notes.append(describe_drift(drift, store.facts))
    return CheckedStore(store, merged, drift, tuple(notes))


def _read_sample(folder: Path) -> Batch | None:
    """Read the rows that `_write_sample` wrote; None where there are none.

    Raises:
        ModelError: for a damaged file.
    """
    path = folder / SAMPLE
    if not path.is_file():
        return None
    examined = examine(folder / SAMPLE_NOTE)
    damage = examined.damage
    if damage is None:
        try:
            return read_batch(load_file(path))
        except (SafetensorError, OSError) as error:
            # The samples of earlier versions have no note, by which damage would be known before.
            damage = shorten_error(error)
    raise ModelError(
        f"The sample '{path}' is damaged ({damage}), so the store cannot be compared with its teacher; run `limbeck "
        "teach` with its recipe again, which writes a new one."
    )


def _ask(name: str, batch: Batch, facts: StoreFacts) -> dict[str, NDArray[np.float32]]:
    """Return what a model says of a batch, in the streams of a store.

    Raises:
        ModelError: for a model whose outputs have other widths.
    """
    config = load_config(name)
    head = head_of(config) if "logits" in facts.streams else None
    # An earlier store does not know what its teacher computed in.
    model = load_model(name, head=head, dtype=facts.computed_in or None)
    # The streams of a store are made of a model's whole output, which counts as that of its last layer.
    layer = shape_of(config).layers
    pooling = SentenceHead(finished_pooling(sentence_pooling(name)))
    keys = {StreamKey(stream, layer) for stream in facts.streams}
    with torch.no_grad(), StreamTap(model, keys, pooling=pooling) as tap:
        answers = as_rows(tap(**batch.teacher))
    for stream, width in facts.streams.items():
        if answers[stream].shape[-1] != width:
            raise ModelError(
                f"'{name}' gives a {stream} of {answers[stream].shape[-1]} numbers, but the store has {width}: it is "
                "another teacher."
            )
    return answers


def _words(streams: Any) -> str:
    return " and ".join(f"{name} ({width} numbers)" for name, width in streams.items())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
