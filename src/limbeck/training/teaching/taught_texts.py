"""Before a run trains: what its teachings hold, and the check that those which know texts by their keys know all."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from limbeck.core.blocks import counted
from limbeck.corpus import StreamedCorpus, Tokenizers
from limbeck.corpus.text.text_keys import TEXT_KEY
from limbeck.errors import CorpusError
from limbeck.inspection.layer_cosines import spread_batches
from limbeck.methods.teaching import Teaching
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.training.rows import AnyCorpus
from limbeck.training.run_tokenizers import RunTokenizers
from limbeck.training.stage_rows import pad_collator

_SHOWN_CHARACTERS = 60
_SAMPLED_ROWS = 4096
"""Most rows of a sample: several times the width of usual vectors."""


def print_teachings(plan: RunPlan, console: Console) -> None:
    """Print what the teachings of a run hold, a line each, where they tell."""
    lines: list[str] = []
    for stage in plan.stages:
        lines += [_describe(teacher.teaching) for teacher in stage.teacher.members]
    # Stages may share a teaching.
    for line in dict.fromkeys(lines):
        if line:
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _describe(teaching: Teaching | None) -> str:
    """What a teaching holds, in a line; empty for a model, and for a teaching that does not tell."""
    if teaching is None or not teaching.summary:
        return ""
    return f"Teacher: {teaching.facts.title}, {teaching.summary}"


def check_texts_taught(plan: RunPlan, corpora: Sequence[AnyCorpus], tokenizers: RunTokenizers) -> None:
    """Refuse to train on texts that a stage's teaching does not know.

    Args:
        plan: The plan of the run.
        corpora: The text of each stage.
        tokenizers: Its tokenizers, to show a text that is missing.

    Raises:
        CorpusError: with the number of texts that are missing, and one of them.
    """
    for stage, corpus in zip(plan.stages, corpora, strict=True):
        # A stage may have several teachers.
        for member in stage.teacher.members:
            _check_taught(stage, member.teaching, corpus, tokenizers)


def _check_taught(stage: StagePlan, teaching: Teaching | None, corpus: AnyCorpus, tokenizers: RunTokenizers) -> None:
    """Refuse texts of a stage that one of its teachings does not know.

    Args:
        stage: The stage.
        teaching: The teaching; None stands for a model.
        corpus: The text of the stage.
        tokenizers: The tokenizers of the run, to show a text that is missing.

    Raises:
        CorpusError: with the number of texts that are missing, and one of them.
    """
    # A model reads any text, and so does a teaching that reads tokens. One that reads rows looks texts up by their
    # keys.
    if teaching is None or teaching.facts.reads != "rows":
        return
    missing = 0
    total = 0
    # The beginning of the first text that is missing, for the message.
    example = ""
    for rows in splits_of(corpus):
        keys = np.asarray(rows.with_format("numpy")[TEXT_KEY][:], dtype=np.int64)
        is_missing = teaching.missing(keys)
        total += len(keys)
        missing += int(is_missing.sum())
        if not example and is_missing.any():
            first_missing = rows[int(np.flatnonzero(is_missing)[0])]
            tokenizer = tokenizers.load(stage.tokenizer)
            example = tokenizer.decode(first_missing["input_ids"], skip_special_tokens=True)[:_SHOWN_CHARACTERS]
    if missing:
        verb = "is" if missing == 1 else "are"
        raise CorpusError(
            f"Stage '{stage.spec.title}': {missing:,} of {counted(total, 'text')} {verb} not in "
            f"{teaching.facts.title}, such as {example!r}; {teaching.remedy}."
        )


def sample_text(corpus: AnyCorpus, tokenizers: Tokenizers) -> Iterator[dict[str, Tensor]]:
    """Iterate over batches of rows that are spread over a corpus, for teachings that learn from the text."""
    # Plans of teachings that learn from text refuse streams, of which rows cannot be chosen.
    assert not isinstance(corpus, StreamedCorpus)
    return spread_batches(corpus, pad_collator(tokenizers), torch.device("cpu"), most_rows=_SAMPLED_ROWS)


def splits_of(corpus: AnyCorpus) -> Iterator[Any]:
    """Iterate over the rows of a corpus: to train on at every length, and held out."""
    for view in corpus.views:
        for rows in (view.train, view.held_out):
            if len(rows):
                yield rows
