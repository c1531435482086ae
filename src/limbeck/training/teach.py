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
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from limbeck.core import ranks
from limbeck.core.blocks import duration
from limbeck.core.devices import choose_device
from limbeck.core.progress import Count, no_progress
from limbeck.core.progress_bars import ProgressBar
from limbeck.core.seals import examine
from limbeck.corpus import Tokenizers
from limbeck.corpus.batches.batch import read_batch
from limbeck.corpus.batches.collating import PadCollator
from limbeck.corpus.text.text_keys import TEXT_KEY
from limbeck.errors import RecipeError
from limbeck.evaluation import Side
from limbeck.evaluation.stored_side import store_compared
from limbeck.methods.teaching import Teaching
from limbeck.models.packing import send_batch
from limbeck.models.quiet import quiet
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.vector_check import check_vectors
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_checks import check_text_level, check_text_unchanged
from limbeck.recipe.stage_plan import StagePlan
from limbeck.targets.facts import StoreFacts, read_facts
from limbeck.targets.store import Store
from limbeck.targets.stored_teaching import as_rows
from limbeck.targets.writer import StoreWriter, hold_store_alone, open_store
from limbeck.training.compared_text import amounts_of, held_out_texts
from limbeck.training.corpora import build_corpora
from limbeck.training.rows import AnyCorpus
from limbeck.training.run_tokenizers import load_tokenizers
from limbeck.training.store_check import SAMPLE_NOTE, write_sample
from limbeck.training.teaching.models import TeacherModels
from limbeck.training.teaching.stored_outputs import copy_teacher_files, facts_of_store
from limbeck.training.teaching.taught_texts import splits_of

_SAMPLE_ROWS = 64
"""Rows of the sample by which a store is compared with its teacher later."""
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
    """Rows of tokens for a teacher to read: their places in the data sets that hold them, their keys and lengths.

    Args:
        datasets: The data sets: one for each split of each corpus.
        dataset_of_row: Index of each row's data set in `datasets`, `[rows]`.
        row_in_dataset: Index of each row in its data set, `[rows]`.
        keys: The key of each row's text, `[rows]`.
        lengths: The length of each row in tokens, `[rows]`.
    """

    datasets: Sequence[Any]
    dataset_of_row: NDArray[np.int64]
    row_in_dataset: NDArray[np.int64]
    keys: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, indices: NDArray[np.int64]) -> "_Rows":
        """Return the rows of some indices, in their order."""
        return replace(
            self,
            dataset_of_row=self.dataset_of_row[indices],
            row_in_dataset=self.row_in_dataset[indices],
            keys=self.keys[indices],
            lengths=self.lengths[indices],
        )

    def read(self) -> list[dict[str, Any]]:
        """Read the rows themselves from their data sets."""
        rows = []
        for dataset, row in zip(self.dataset_of_row.tolist(), self.row_in_dataset.tolist(), strict=True):
            rows.append(self.datasets[dataset][row])
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
    # The processes of one launcher share the store, which the main one holds for them until the end of the block.
    held_by_main = ExitStack()

    def hold() -> None:
        held_by_main.enter_context(hold_store_alone(folder))

    ranks.on_main_rank(hold)
    with held_by_main:
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
    rows = _distinct_rows_of(corpora)
    is_new = ~store.has(rows.keys)
    new_rows = rows.take(np.flatnonzero(is_new))
    collate = PadCollator(tokenizer.pad_token_id)
    if ranks.is_main():
        _print_work(console, facts, folder, rows=len(rows), new_rows=len(new_rows))
        # A sample that is damaged, or of an earlier version without a note, is written anew.
        if examine(folder / SAMPLE_NOTE).listing is None:
            write_sample(folder, _sample_columns(rows, collate))

    start = time.perf_counter()
    rows_and_tokens = _store_outputs(teaching, new_rows, collate, folder, batch_size, console)
    seconds = time.perf_counter() - start
    teaching.close()

    # The sums over all processes.
    computed_rows, computed_tokens = np.sum(ranks.gather(rows_and_tokens), axis=0).tolist()
    compared = ranks.on_main_rank(partial(_store_compared, plan, folder, corpora, tokenizer, whole_model, console))
    stored_rows = ranks.on_main_rank(lambda: len(Store(folder)))
    return TaughtRows(
        rows=stored_rows, computed=computed_rows, seconds=seconds, tokens=computed_tokens, compared=compared
    )


def _store_outputs(
    teaching: Teaching, rows: _Rows, collate: PadCollator, folder: Path, batch_size: int, console: Console
) -> tuple[int, int]:
    """Run the teacher on this process' share of the rows, and store its outputs batch by batch.

    Args:
        teaching: Runs the teacher.
        rows: The rows that all processes divide among them.
        collate: Makes batches of rows.
        folder: The folder of the store.
        batch_size: Rows that the teacher reads at once.
        console: Where progress goes.

    Returns:
        The rows and the tokens that this process has done.
    """
    device = choose_device("auto")
    teaching.move(device)
    rows_done = 0
    tokens_done = 0
    batches = list(_batches_of_process(rows, batch_size))
    start = time.perf_counter()
    with ProgressBar(console) as bar, StoreWriter(folder, ranks.process_index()) as writer:
        report = bar if ranks.is_main() else no_progress
        for number, batch_rows in enumerate(batches, start=1):
            columns = send_batch(_padded_columns(batch_rows, collate), device)
            batch = read_batch(columns)
            with torch.inference_mode():
                values = as_rows(teaching.read(batch))
            writer.add(batch_rows.keys, values)
            rows_done += len(batch_rows)
            tokens_done += int(batch_rows.lengths.sum())
            if number == _TIMED_BATCHES and ranks.is_main():
                _print_estimate(console, tokens_done, rows, seconds=time.perf_counter() - start)
            report(number / len(batches), "targets", Count(tokens_done, "tokens"))
    return rows_done, tokens_done


def _print_work(console: Console, facts: StoreFacts, folder: Path, *, rows: int, new_rows: int) -> None:
    """Print what will be stored of how many texts, and its size.

    Args:
        console: Where the line goes.
        facts: The facts of the store.
        folder: The folder of the store.
        rows: All rows of the store once it is filled.
        new_rows: Those of them that are not stored yet.
    """
    of_texts = f"of {rows:,} texts"
    if new_rows < rows:
        of_texts += f", {rows - new_rows:,} of them stored before"
    size = _megabytes(rows * facts.row_bytes)
    outputs = _describe_streams(facts.streams)
    console.print(
        f"Teacher: {facts.teacher}, {outputs} {of_texts}: {size} as {facts.number_format} in {folder}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _stages_to_teach(plan: RunPlan) -> list[StagePlan]:
    """Return the stages that the recipe's teacher teaches, whose corpora get a column with the key of each text.

    Raises:
        RecipeError: for a teacher that is no model, for a recipe no stage of which reads the teacher's outputs, and for
            stages that read different outputs.
    """
    # The outputs of a recipe's teacher may be stored already, in a folder without its weights. They may also come from
    # a teaching that stands in place of a model, such as vectors in a file.
    is_model = plan.teacher_info.has_weights and plan.teacher_info.teaching is None
    if not is_model:
        raise RecipeError(
            "The teacher of this recipe is a store or a file, not a model that can be run; give the teacher's own "
            "model as teacher.model."
        )
    stages = []
    for index, stage in enumerate(plan.stages):
        # A stage may name a teacher of its own: another model, or the student of an earlier stage. A stage without
        # streams of its teacher, such as one that learns from labels alone, needs no outputs.
        is_taught_by_recipe = stage.spec.teacher is None
        if not is_taught_by_recipe or not stage.teacher_streams:
            continue
        place = f"stages.{index}"
        check_text_level(stage.terms, stage.pairing, place)
        check_text_unchanged(stage.spec, place, stage.corpus, stage.teacher.facts.title)
        # The store has the outputs by the key of the text, so the rows need a column with it.
        corpus_with_keys = stage.corpus.model_copy(update={"text_keys": True})
        stages.append(replace(stage, corpus=corpus_with_keys))
    if not stages:
        raise RecipeError(
            "No stage of this recipe learns from the outputs of its teacher, so there is nothing to store; choose "
            "a method that reads the teacher's outputs."
        )
    first = stages[0]
    for stage in stages:
        has_same_streams = stage.teacher_streams == first.teacher_streams
        if not has_same_streams or stage.teacher_head != first.teacher_head:
            raise RecipeError(
                f"Stages '{first.spec.title}' and '{stage.spec.title}' read different outputs of the teacher, but "
                "a store holds one kind; make a store for each stage, with a recipe that has only this stage."
            )
    return stages


def _distinct_rows_of(corpora: Sequence[AnyCorpus]) -> _Rows:
    """Return the rows of some corpora, one for each distinct text, the longest first."""
    datasets: list[Any] = []
    for corpus in corpora:
        datasets += splits_of(corpus)

    # One array of each kind for each data set, joined below.
    datasets_of_rows = []
    rows_in_datasets = []
    keys = []
    lengths = []
    for number, dataset in enumerate(datasets):
        datasets_of_rows.append(np.full(len(dataset), number))
        rows_in_datasets.append(np.arange(len(dataset)))
        columns = dataset.with_format("numpy")
        keys.append(np.asarray(columns[TEXT_KEY][:], dtype=np.int64))
        lengths.append(np.asarray(columns["length"][:], dtype=np.int64))
    every_row = _Rows(
        datasets,
        dataset_of_row=np.concatenate(datasets_of_rows),
        row_in_dataset=np.concatenate(rows_in_datasets),
        keys=np.concatenate(keys),
        lengths=np.concatenate(lengths),
    )

    # Rows with the same text have the same key and the same outputs, so the first row of each key stands for all.
    _, first_rows = np.unique(every_row.keys, return_index=True)
    distinct_rows = every_row.take(first_rows)
    longest_first = np.argsort(-distinct_rows.lengths, kind="stable")
    return distinct_rows.take(longest_first)


def _batches_of_process(rows: _Rows, batch_size: int) -> Iterator[_Rows]:
    """Iterate over the batches of this process: rows of similar length, dealt to the processes in turn."""
    # Of two processes one has the batches 0, 2, 4, ... and the other the batches 1, 3, 5, ...
    begin_of_first = ranks.process_index() * batch_size
    for begin in range(begin_of_first, len(rows), ranks.process_count() * batch_size):
        yield rows.take(np.arange(begin, min(begin + batch_size, len(rows))))


def _padded_columns(rows: _Rows, collate: PadCollator) -> dict[str, Tensor]:
    """Read rows, and return their columns as a padded batch; the collator leaves labels out."""
    return collate(rows.read())


def _print_estimate(console: Console, tokens: int, rows: _Rows, seconds: float) -> None:
    """Print how long this process will take, by its first batches.

    Args:
        console: Where the line goes.
        tokens: Tokens of the batches that this process has done.
        rows: All rows to compute, of which each process has about an equal part.
        seconds: Time that the batches took.
    """
    tokens_of_process = int(rows.lengths.sum()) / ranks.process_count()
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
    """Store the teacher's vectors of the texts by which a run compares its student with its teacher.

    Returns:
        The number of these texts. Nothing is stored where the recipe has no evaluation, or its stages teach no sentence
        vectors.
    """
    makes_vectors = any(stage.teacher_streams & {"pooled", "vector"} for stage in plan.stages)
    if not plan.recipe.evaluation.enabled or not makes_vectors:
        return 0
    # With `auto` the teacher makes its vectors as its own files say, or else as it made them for the stage.
    # `plan.vectors` would refuse modules behind the pooling that do not fit the student, which is not needed here.
    if plan.recipe.evaluation.pooling == "auto":
        vectors: str | SentenceHead = SentenceHead(plan.sentence or plan.stages[-1].teacher_vectors)
    else:
        vectors = plan.vectors()
    side = Side(model, tokenizer, vectors, max_length=plan.recipe.evaluation.length)
    with ProgressBar(console, in_parts=True) as bar:
        return store_compared(
            side,
            folder,
            read_facts(folder),
            held_out_texts(plan, corpora, tokenizer, console),
            amounts_of(plan, corpora),
            seed=plan.recipe.seed,
            report=bar,
        )


def _sample_columns(rows: _Rows, collate: PadCollator) -> dict[str, Tensor]:
    """Return the columns of a batch of rows of all lengths, for later checks of the store."""
    count = min(_SAMPLE_ROWS, len(rows))
    # The rows are in the order of their lengths, so rows at equal distances have all lengths.
    spread_rows = rows.take(np.linspace(0, len(rows) - 1, count).astype(np.int64))
    return _padded_columns(spread_rows, collate)


def _describe_streams(streams: Any) -> str:
    return " and ".join(f"{name} ({width} numbers)" for name, width in streams.items())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
