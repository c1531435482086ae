"""Measures of students beside their teacher on held-out text, without labels and alike for all methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.comparison.last_layers import LastLayers, common_relation_heads
from limbeck.core import records
from limbeck.core.paths import STUDENT
from limbeck.core.studies import HeldOutFigures, HeldOutMeasure
from limbeck.corpus import Corpus, LabelledCorpus, PadCollator
from limbeck.corpus.tokens.reading import PROMPT, TEACHER_IDS
from limbeck.errors import CorpusError, LimbeckError
from limbeck.evaluation import (
    SentencePair,
    build_pairs,
    measure_retrieval,
    pair_similarities,
    retrieval,
    spearman_agreement,
)
from limbeck.evaluation.measures import HeldOutSpec
from limbeck.models.families import Shape, shape_of
from limbeck.models.loading import load_config, load_model
from limbeck.models.sentence_heads import SentenceHead, describe_pooling
from limbeck.models.sentence_reader import sentence_pooling


def pair_agreement(
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    pairs: Sequence[SentencePair],
    pooling: str | SentenceHead,
) -> Callable[..., float]:
    """Return Spearman's correlation of students' similarities of sentence pairs with their teacher's, read once.

    The function takes a student, and what makes its vectors where that is not `pooling`.

    Args:
        teacher: Where students are compared.
        tokenizer: Of all models.
        corpus: Whose blocks are as long as the longest text.
        pairs: The sentence pairs.
        pooling: How sentence vectors are pooled.
    """
    similarities = partial(
        pair_similarities,
        tokenizer=tokenizer,
        pairs=[(pair.first, pair.second) for pair in pairs],
        max_length=int(corpus.manifest["settings"]["length"]),
    )
    teacher_similarities = similarities(teacher, pooling=pooling).numpy()

    def agreement(student: PreTrainedModel, student_pooling: str | SentenceHead | None = None) -> float:
        student_similarities = similarities(student, pooling=student_pooling or pooling).numpy()
        return spearman_agreement(student_similarities, teacher_similarities)

    return agreement


def own_head(folder: Path, pooling: str | SentenceHead) -> str | SentenceHead:
    """Return the pooling of a student's sentence vectors: as its files say, else the others', where that fits it.

    Args:
        folder: The student's.
        pooling: Of the other models.
    """
    student_sentence = sentence_pooling(folder)
    if student_sentence is not None:
        return SentenceHead(student_sentence)
    if isinstance(pooling, str):
        return pooling
    student_width = shape_of(load_config(folder)).hidden
    if pooling.sentence.fits(student_width):
        return pooling
    return pooling.sentence.pooling


_BATCH = 32
"""Most blocks in a batch."""

MEASURES = (
    HeldOutMeasure(key="agreement", title="agreement", digits=3, best="highest"),
    HeldOutMeasure(key="retrieval", title="retrieval", digits=3, best="highest"),
    HeldOutMeasure(key="explained", title="hidden states", digits=3, best="highest"),
    HeldOutMeasure(key="relations", title="relations", digits=4, best="lowest"),
)
"""In the order of the columns; the first ranks the students where there is no task.

`agreement`: Spearman of the student's sentence similarities with the teacher's. `retrieval`: mean reciprocal rank at 10
of summaries finding their bodies. `explained` and `relations`: see `LastLayers`.
"""


def check_held_out(corpus: Corpus, spec: HeldOutSpec) -> None:
    """Refuse text of which nothing could be held out, before anything is distilled.

    Args:
        corpus: The corpus; one that was to hold nothing out is let pass, and its figures are missing with a reason.
        spec: Whether held-out text is to be measured.

    Raises:
        CorpusError: if a share was to be held out and none could be.
    """
    is_measured = spec.enabled and corpus.manifest["settings"]["held_out"] != 0
    if is_measured and not corpus.manifest["held_out_documents"]:
        raise CorpusError(
            f"Nothing can be held out: corpus.sources has too few documents ({corpus.manifest['documents']}). Blank "
            "lines separate documents in a text file; give more, or set evaluation.held_out.enabled to false."
        )


@dataclass(frozen=True, kw_only=True)
class HeldOutText:
    """Measures models of one comparison on its held-out text.

    Args:
        teacher: The teacher, whole, in eval mode, on the device that measures.
        tokenizer: The tokenizer of all.
        corpus: The corpus, with its held-out blocks and documents.
        spec: What to measure, and on how much.
        pooling: What makes the teacher's sentence vectors, and those of students whose files say nothing.
        students: The students' shapes.
    """

    teacher: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    corpus: Corpus
    spec: HeldOutSpec
    pooling: str | SentenceHead
    students: Sequence[Shape]

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the figures besides the model: equal settings make figures comparable."""
        return {
            **self.spec.model_dump(exclude={"enabled"}),
            "pooling": describe_pooling(self.pooling),
            "relation_heads": common_relation_heads(shape_of(self.teacher.config), self.students),
            "text": self.corpus.identity,
        }

    def measure_once(self, folder: Path, load: Callable[[], PreTrainedModel] | None = None) -> HeldOutFigures:
        """Measure a run's student, unless its folder has the figures by the same settings.

        Args:
            folder: The run's folder, with the student's below it, and room for the figures.
            load: Loads the model, a second copy if it is the teacher; by default the run's student.
        """
        saved = records.load(HeldOutFigures, folder)
        # Older versions knew the text by its folder in the cache.
        earlier_settings = {**self.settings, "text": self.corpus.path.name}
        if not saved.is_empty and saved.settings in (self.settings, earlier_settings):
            return saved

        if load is not None:
            figures = self.measure(load())
        else:
            student = folder / STUDENT
            figures = self.measure(load_model(student), own_head(student, self.pooling))
        figures.settings = self.settings
        records.save(figures, folder)
        return figures

    def measure(self, model: PreTrainedModel, own: str | SentenceHead | None = None) -> HeldOutFigures:
        """Measure a model; a figure that the held-out text is too small for is None, with the reason.

        Of labelled rows there is no retrieval: they have no summaries.

        Args:
            model: The model.
            own: Makes its sentence vectors in place of `pooling`.
        """
        model = model.to(self.teacher.device).eval()
        pooling = own or self.pooling
        takes: dict[str, Callable[[], dict[str, float | None]]] = {
            "agreement": lambda: {"agreement": self._pair_agreement(model, pooling)},
            "retrieval": lambda: {"retrieval": self._retrieval(model, pooling)},
            "layers": lambda: self._layers(model),
        }
        if isinstance(self.corpus, LabelledCorpus):
            del takes["retrieval"]

        figures: dict[str, float | None] = {measure.key: None for measure in MEASURES}
        unavailable: dict[str, str] = {}
        for name, take in takes.items():
            try:
                figures |= take()
            except LimbeckError as error:
                unavailable[name] = str(error)
        # Vectors that are all alike have neither ranks nor variance.
        return HeldOutFigures(figures=records.plain(figures), unavailable=unavailable)

    def _retrieval(self, model: PreTrainedModel, pooling: str | SentenceHead) -> float | None:
        length = int(self.corpus.manifest["settings"]["length"])
        scores = measure_retrieval(model, self.tokenizer, self._retrieval_pairs, pooling=pooling, max_length=length)
        return scores.mrr_at_10

    def _layers(self, model: PreTrainedModel) -> dict[str, float | None]:
        relations, explained = LastLayers(self.teacher, self._batches, self.students).compare(model)
        return {"relations": relations, "explained": explained}

    @cached_property
    def _documents(self) -> list[tuple[str, str] | str]:
        """The held-out documents: title and body, or the text alone where there is no title."""
        texts: list[tuple[str, str] | str] = []
        for document in self.corpus.held_out_documents():
            if document.title:
                texts.append((document.title, document.body))
            else:
                texts.append(document.text)
        return texts

    @cached_property
    def _pair_agreement(self) -> Callable[..., float]:
        texts = [text if isinstance(text, str) else "\n".join(text) for text in self._documents]
        pairs = build_pairs(texts, self.spec.pairs)
        return pair_agreement(self.teacher, self.tokenizer, self.corpus, pairs, self.pooling)

    @cached_property
    def _retrieval_pairs(self) -> list[tuple[str, str]]:
        return retrieval.build_retrieval_pairs(self._documents, self.spec.retrieval_pairs)

    @cached_property
    def _batches(self) -> list[dict[str, Tensor]]:
        if not len(self.corpus.held_out):
            raise CorpusError("No text is held out; give corpus.held_out a share above 0.")
        return held_out_batches(self.corpus, self.tokenizer, self.spec.blocks)


def held_out_batches(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, blocks: int, fewest: int = 3
) -> list[dict[str, Tensor]]:
    """Return the first held-out blocks in batches, in the order of the sources.

    Args:
        corpus: With held-out text.
        tokenizer: Of all models.
        blocks: At most so many.
        fewest: At least so many batches, where there are as many blocks.

    Returns:
        `input_ids` and `attention_mask`, `[B, L]`, of each batch.
    """
    rows = [_columns_to_measure(row) for row in islice(corpus.held_out, blocks)]
    collate = PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side)
    size = min(_BATCH, max(1, len(rows) // fewest))
    return [collate(rows[start : start + size]) for start in range(0, len(rows), size)]


def _columns_to_measure(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block without its prompt and the teacher's tokens, which are for training alone."""
    return {name: value for name, value in row.items() if name not in (PROMPT, TEACHER_IDS)}
