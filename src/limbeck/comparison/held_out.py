"""`HeldOutText`: measures of students beside their teacher on held-out text, which need no labels.

A corpus may *hold out* some of its documents: no run trains on them. The *blocks* are their tokens in rows of equal
length. `limbeck.comparison.held_out_measures` lists the measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.comparison.held_out_measures import MEASURES
from limbeck.comparison.last_layers import LastLayers, LayerFigures, common_relation_heads
from limbeck.comparison.pair_agreement import PairAgreement
from limbeck.comparison.taught_vectors import TaughtVectors
from limbeck.core import records
from limbeck.core.devices import choose_device
from limbeck.core.paths import STUDENT
from limbeck.core.studies import HeldOutFigures
from limbeck.corpus import Corpus, LabelledCorpus, PadCollator
from limbeck.corpus.text.text_keys import TEXT_KEY
from limbeck.corpus.tokens.reading import PROMPT, TEACHER_IDS
from limbeck.errors import CorpusError, LimbeckError, ModelError
from limbeck.evaluation import build_pairs, build_retrieval_pairs, measure_retrieval
from limbeck.evaluation.measures import HeldOutSpec
from limbeck.evaluation.sentence_pairs import text_of
from limbeck.methods.teaching import Teaching
from limbeck.models.families import Shape, shape_of
from limbeck.models.loading import load_config, load_model
from limbeck.models.sentence_heads import SentenceHead, describe_pooling
from limbeck.models.sentence_reader import sentence_pooling

_MOST_BLOCKS_IN_BATCH = 32
"""Most blocks that a model reads at once."""
_TRAINING_COLUMNS = (PROMPT, TEACHER_IDS, TEXT_KEY)
"""Columns of a block that are for training alone: its prompt, the teacher's tokens, and the key of its text."""


def check_held_out(corpus: Corpus, spec: HeldOutSpec) -> None:
    """Refuse a corpus that is too small to hold anything out, before anything is distilled.

    Args:
        corpus: The corpus. If its settings say that nothing is held out, it is not refused: then the tables lack the
            figures, with the reason.
        spec: Whether held-out text is to be measured.

    Raises:
        CorpusError: if a share was to be held out and none could be.
    """
    is_measured = spec.enabled and corpus.manifest["settings"]["held_out"] != 0
    if is_measured and not corpus.manifest["held_out_documents"]:
        raise CorpusError(
            f"Nothing can be held out: corpus.sources has too few documents ({corpus.manifest['documents']}). "
            "Blank lines separate documents in a text file; give more documents, or set "
            "evaluation.held_out.enabled to false."
        )


@dataclass(frozen=True, kw_only=True)
class HeldOutText:
    """Measures models of one comparison on its held-out text.

    Args:
        teacher: The teacher with all of its layers, in eval mode, on the device that measures; None where a teaching
            takes its place.
        tokenizer: The tokenizer of all models.
        corpus: The corpus, with its held-out blocks and documents.
        spec: What to measure, and on how much.
        pooling: What makes the teacher's sentence vectors, and those of students whose files say nothing.
        students: The students' shapes.
        teaching: What gives the teacher's sentence vectors where no teacher is loaded, such as stored outputs. The
            agreement is then one on held-out rows as training reads them, and layers are not compared.
    """

    teacher: PreTrainedModel | None
    tokenizer: PreTrainedTokenizerBase
    corpus: Corpus
    spec: HeldOutSpec
    pooling: str | SentenceHead
    students: Sequence[Shape]
    teaching: Teaching | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the figures depend on besides the model: figures with equal settings are comparable."""
        settings = self.spec.model_dump(exclude={"enabled"})
        settings["pooling"] = describe_pooling(self.pooling)
        if self.teacher is not None:
            settings["relation_heads"] = common_relation_heads(shape_of(self.teacher.config), self.students)
        # A teacher without a model has stored outputs, which are known by a hash.
        if self.teaching is not None:
            settings["taught"] = self.teaching.facts.identity
        settings["text"] = self.corpus.identity
        return settings

    def measure_once(self, folder: Path, load: Callable[[], PreTrainedModel] | None = None) -> HeldOutFigures:
        """Measure a model, unless its folder has figures with the same settings; new figures are saved there.

        Args:
            folder: The folder of a run, which has the student in a subfolder; or the folder of the teacher's figures.
            load: Function that loads the model, in place of the run's student. For the teacher it has to load a second
                copy, since the measured model is not `self.teacher`.
        """
        settings = self.settings
        # Figures of earlier versions name the text by its folder in the cache rather than by its content.
        settings_of_earlier_version = {**settings, "text": self.corpus.path.name}
        recorded_figures = records.load(HeldOutFigures, folder)
        have_same_settings = recorded_figures.settings in (settings, settings_of_earlier_version)
        if have_same_settings and not recorded_figures.is_empty:
            return recorded_figures

        if load is not None:
            figures = self.measure(load())
        else:
            student = folder / STUDENT
            figures = self.measure(load_model(student), pooling_of_student(student, self.pooling))
        figures.settings = settings
        records.save(figures, folder)
        return figures

    def measure(self, model: PreTrainedModel, pooling: str | SentenceHead | None = None) -> HeldOutFigures:
        """Measure a model; a figure that cannot be measured is None, and `unavailable` has the reason.

        Args:
            model: The model.
            pooling: How the model makes sentence vectors; None takes the teacher's way.
        """
        model = model.to(self._device).eval()
        pooling = pooling or self.pooling
        figures: dict[str, float | None] = {measure.key: None for measure in MEASURES}
        unavailable: dict[str, str] = {}
        with _noting_failure(unavailable, "agreement"):
            figures["agreement"] = self._agreement(model, pooling)
        # The retrieval needs documents with summaries and bodies, which labelled rows are not.
        if not isinstance(self.corpus, LabelledCorpus):
            with _noting_failure(unavailable, "retrieval"):
                figures["retrieval"] = self._retrieval(model, pooling)
        with _noting_failure(unavailable, "layers"):
            layers = self._compare_layers(model)
            figures["relations"] = layers.divergence
            figures["explained"] = layers.explained
        # Vectors that are all alike have neither ranks nor variance: such figures are None in a record, not NaN.
        return HeldOutFigures(figures=records.plain(figures), unavailable=unavailable)

    def _agreement(self, model: PreTrainedModel, pooling: str | SentenceHead) -> float:
        """Return the agreement of a model with the teacher in the similarities of pairs of texts."""
        if self.teaching is not None:
            return self._taught_vectors.agreement(model, pooling, self.spec.pairs)
        return self._pair_agreement.of_student(model, pooling)

    def _compare_layers(self, model: PreTrainedModel) -> LayerFigures:
        """Compare the last layer of a model with the teacher's.

        Raises:
            ModelError: where no teacher is loaded.
        """
        if self.teacher is None:
            assert self.teaching is not None
            raise ModelError(f"{self.teaching.facts.title} have no layers, so hidden states cannot be compared.")
        return LastLayers(self.teacher, self._batches, self.students).compare(model)

    def _retrieval(self, model: PreTrainedModel, pooling: str | SentenceHead) -> float | None:
        """Return the mean reciprocal rank at 10 of summaries that look for their bodies."""
        length = int(self.corpus.manifest["settings"]["length"])
        scores = measure_retrieval(model, self.tokenizer, self._retrieval_pairs, pooling=pooling, max_length=length)
        return scores.mrr_at_10

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

    @property
    def _device(self) -> torch.device:
        """The device that measures."""
        if self.teacher is not None:
            return self.teacher.device
        return choose_device("auto")

    @cached_property
    def _taught_vectors(self) -> TaughtVectors:
        """The teacher's vectors of held-out rows, where they are stored."""
        assert self.teaching is not None
        return TaughtVectors(self.teaching, self.corpus, self.tokenizer, device=self._device)

    @cached_property
    def _pair_agreement(self) -> PairAgreement:
        """The agreement with the teacher, whose similarities are taken once for all students."""
        assert self.teacher is not None
        texts = [text_of(document) for document in self._documents]
        return PairAgreement(
            self.teacher,
            self.tokenizer,
            self.corpus,
            pairs=build_pairs(texts, self.spec.pairs),
            pooling=self.pooling,
        )

    @cached_property
    def _retrieval_pairs(self) -> list[tuple[str, str]]:
        """Summaries and their bodies."""
        return build_retrieval_pairs(self._documents, self.spec.retrieval_pairs)

    @cached_property
    def _batches(self) -> list[dict[str, Tensor]]:
        """The held-out blocks in batches.

        Raises:
            CorpusError: if there are none.
        """
        if not len(self.corpus.held_out):
            raise CorpusError("No text is held out; give corpus.held_out a share above 0.")
        return held_out_batches(self.corpus, self.tokenizer, self.spec.blocks)


@contextmanager
def _noting_failure(unavailable: dict[str, str], name: str) -> Iterator[None]:
    """Note the reason for which a measure cannot be had, under its name, and go on."""
    try:
        yield
    except LimbeckError as error:
        unavailable[name] = str(error)


def pooling_of_student(folder: Path, pooling: str | SentenceHead) -> str | SentenceHead:
    """Return how a student makes sentence vectors: as its files describe, else as the teacher does.

    Args:
        folder: The folder of the student.
        pooling: How the teacher makes them: the name of a pooling, or a pooling with further modules.
    """
    described = sentence_pooling(folder)
    if described is not None:
        return SentenceHead(described)
    if isinstance(pooling, str):
        return pooling
    student_width = shape_of(load_config(folder)).hidden
    if pooling.sentence.fits(student_width):
        return pooling
    # The teacher's modules take vectors of another width, so the student uses only its pooling.
    return pooling.sentence.pooling


def held_out_batches(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, blocks: int, *, fewest_batches: int = 3
) -> list[dict[str, Tensor]]:
    """Return the first held-out blocks in batches, in the order of the sources.

    Args:
        corpus: A corpus with held-out text.
        tokenizer: The tokenizer of all models.
        blocks: Largest number of blocks.
        fewest_batches: Smallest number of batches, if there are enough blocks; a regression needs three parts of the
            text.

    Returns:
        `input_ids` and `attention_mask`, `[B, L]`, of each batch.
    """
    rows = [_without_training_columns(block) for block in islice(corpus.held_out, blocks)]
    collate = PadCollator(tokenizer.pad_token_id)
    size_for_fewest_batches = max(1, len(rows) // fewest_batches)
    size = min(_MOST_BLOCKS_IN_BATCH, size_for_fewest_batches)
    return [collate(rows[start : start + size]) for start in range(0, len(rows), size)]


def _without_training_columns(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a block that a model reads."""
    return {name: value for name, value in block.items() if name not in _TRAINING_COLUMNS}
