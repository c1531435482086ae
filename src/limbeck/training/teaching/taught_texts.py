"""Before a run trains: what its teachings hold, and the check that those which know texts by their keys know all."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from limbeck.core.blocks import counted
from limbeck.corpus.text.text_keys import TEXT_KEY
from limbeck.errors import CorpusError
from limbeck.recipe.plan import RunPlan
from limbeck.training.rows import AnyCorpus
from limbeck.training.run_tokenizers import RunTokenizers

_SHOWN_CHARACTERS = 60


def print_teachings(plan: RunPlan, console: Console) -> None:
    """Print what the teachings of a run hold, a line each, where they tell."""
    lines = []
    for stage in plan.stages:
        teaching = stage.teacher.teaching
        if teaching is not None and teaching.summary:
            lines.append(f"Teacher: {teaching.facts.title}, {teaching.summary}")
    # Stages may share a teaching.
    for line in dict.fromkeys(lines):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def check_texts_taught(plan: RunPlan, corpora: Sequence[AnyCorpus], tokenizers: RunTokenizers) -> None:
    """Refuse to train on texts that a stage's teaching lacks.

    Args:
        plan: The plan of the run.
        corpora: The text of each stage.
        tokenizers: Its tokenizers, to show a text that lacks.

    Raises:
        CorpusError: with the number of texts that lack, and one of them.
    """
    for stage, corpus in zip(plan.stages, corpora, strict=True):
        # A model reads any text, and so does a teaching that reads tokens. One that reads rows looks texts up by their
        # keys.
        teaching = stage.teacher.teaching
        if teaching is None or teaching.facts.reads != "rows":
            continue
        missing = 0
        total = 0
        example = ""
        for rows in splits_of(corpus):
            keys = np.asarray(rows.with_format("numpy")[TEXT_KEY][:], dtype=np.int64)
            is_missing = teaching.missing(keys)
            total += len(keys)
            missing += int(is_missing.sum())
            # The message shows the first text that lacks.
            if not example and is_missing.any():
                first_missing = rows[int(np.flatnonzero(is_missing)[0])]
                tokenizer = tokenizers.load(stage.tokenizer)
                example = tokenizer.decode(first_missing["input_ids"], skip_special_tokens=True)[:_SHOWN_CHARACTERS]
        if missing:
            raise CorpusError(
                f"Stage '{stage.spec.title}': {missing:,} of {counted(total, 'text')} are not in "
                f"{teaching.facts.title}, such as {example!r}; {teaching.remedy}."
            )


def splits_of(corpus: AnyCorpus) -> Iterator[Any]:
    """Iterate over the rows of a corpus: to train on at every length, and held out."""
    for view in corpus.views:
        for rows in (view.train, view.held_out):
            if len(rows):
                yield rows
