"""`compare_models`, a teacher and its student side by side: size, speed and two figures of quality on held-out text.

A figure that cannot be had (too little held-out text, a model without blocks) is None and `unavailable` says
why: a long run never ends without its table for want of one figure.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from limbeck.core import progress, records
from limbeck.core.blocks import duration
from limbeck.core.records.run_evaluation import FEWEST_DOCUMENTS
from limbeck.core.timing import FEWEST_ROUNDS
from limbeck.errors import LimbeckError
from limbeck.evaluation import agreement, costs, passages, retrieval, similarity_strata
from limbeck.evaluation.best_figures import best_agreement, best_retrieval, name_of_start
from limbeck.evaluation.latency import least_setting, longest_rounds, measure_latency
from limbeck.evaluation.sentence_pairs import text_of
from limbeck.models import families, inference
from limbeck.models.sentence_heads import SentenceHead, describe_pooling

Text = str | tuple[str, str]
"""A held-out text, plain or as (title, body) where the corpus knows its title."""


@dataclass(frozen=True)
class Side:
    """One model of a comparison, and how it reads texts.

    Attributes:
        model: The loaded model; None where its outputs are stored.
        tokenizer: The tokenizer of the model.
        vectors: How it makes sentence vectors: a pooling, or the pooling, modules and prompts of its folder.
        max_length: Most tokens of a text.
        dtype: Type of weights and activations; None takes the model's own for quality, and float32 for latency.
        folder: Folder of its weights, for its megabytes on disk; None takes those in memory.
    """

    model: nn.Module | None
    tokenizer: PreTrainedTokenizerBase
    vectors: str | SentenceHead = "mean"
    max_length: int = 128
    dtype: torch.dtype | None = None
    folder: Path | str | None = None

    def encode(
        self,
        texts: Sequence[tuple[str, str]],
        report: progress.Report,
        roles: tuple[str, str] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the sentence vectors of the first and of the second of each pair, `[pairs, width]` each.

        Args:
            texts: The pairs.
            report: Receives the progress.
            roles: Role of the first and of the second text, such as "query", which decide the prompts before them.
        """
        # A side without a model overrides this method.
        assert self.model is not None
        first_texts = [first for first, _ in texts]
        second_texts = [second for _, second in texts]
        return inference.encode_both(
            self.model,
            self.tokenizer,
            first_texts,
            second_texts,
            roles,
            pooling=self.vectors,
            max_length=self.max_length,
            dtype=self.dtype,
            report=report,
        )

    def choose_sentences(
        self, texts: Sequence[Text], pairs: int, *, seed: int
    ) -> list[similarity_strata.HeldOutSentence]:
        """Choose the sentences of held-out texts whose similarities are compared.

        Args:
            texts: The texts.
            pairs: Number of pairs that are wanted.
            seed: Seed of the choice.

        Raises:
            CorpusError: for too few sentences.
        """
        return similarity_strata.choose_sentences([text_of(text) for text in texts], pairs, seed=seed)

    def timed_model(self) -> nn.Module:
        """Return the model whose latency is measured.

        Raises:
            ModelError: where there is none, with the reason.
        """
        assert self.model is not None
        return self.model

    def figures(self) -> records.ModelFigures:
        """Return the sizes of the model."""
        assert self.model is not None
        counts = costs.count_parameters(self.model)
        megabytes, source = costs.model_megabytes(self.model, self.folder)
        return records.ModelFigures(
            parameters=records.Parameters(**asdict(counts), total=counts.total),
            megabytes=megabytes,
            megabytes_of=source,
            retrieval=None,
        )


@dataclass(frozen=True)
class Amounts:
    """How much is measured.

    Attributes:
        pairs: Sentence pairs for the agreement; 0 leaves it out.
        retrieval_pairs: Largest pool of the retrieval; 0 leaves it out.
        latency_batch_sizes: Texts per pass.
        latency_length: Tokens per text for the latency.
        latency_seconds: For all latency measurements together; 0 leaves them out.
    """

    pairs: int = 1500
    retrieval_pairs: int = 2000
    latency_batch_sizes: tuple[int, ...] = (1, 32)
    latency_length: int = 128
    latency_seconds: float = 12.0


@dataclass(frozen=True)
class Start:
    """Untrained models of the student's shape, whose figures show what training added.

    Attributes:
        sides: The models; each figure is that of the better one.
        record: Where their weights are from; it has no figures yet.
    """

    sides: Sequence[Side]
    record: records.UntrainedStart


def compare_models(
    teacher: Side,
    student: Side,
    texts: Sequence[Text] | None,
    amounts: Amounts = Amounts(),
    *,
    start: Start | None = None,
    asymmetric: bool = False,
    widths: Sequence[int] = (),
    seed: int = 0,
    report: progress.Report = progress.no_progress,
) -> records.RunEvaluation:
    """Measure a teacher and its student side by side.

    Args:
        teacher: The teacher.
        student: The student, on the same device.
        texts: Texts that the student was not trained on; None of a run without text, which has neither agreement nor
            retrieval.
        amounts: How much is measured.
        start: Untrained students of the same shape, which are measured on the same texts and take as long as the
            student each; None leaves them out.
        asymmetric: Whether the retrieval is also measured with the student's vectors of queries and the teacher's of
            passages, which needs vectors of the same width.
        widths: Numbers of components that vectors are cut to for further figures; a width that is not smaller than that
            of both models is skipped.
        seed: Seed of the choice of pairs, the resampling and the token ids.
        report: Receives the progress of each part of the work.

    Returns:
        All figures; one that could not be had is None, with a reason in `unavailable`.

    Example:
        >>> compare_models(Side(teacher, tokenizer), Side(student, tokenizer), texts)  # doctest: +SKIP
    """
    evaluation = records.RunEvaluation(
        teacher=teacher.figures(),
        student=student.figures(),
        latency=None,
        agreement=None,
        unavailable={},
        settings=_settings(teacher, student, texts, amounts, seed),
        seconds={},
    )
    if start is not None:
        evaluation.start = start.record.model_copy()
    # Figures of cut vectors, by their width; they are filled in by both measures.
    cuts: dict[int, records.CutVectors] = {}
    sides = _Sides(teacher, student, () if start is None else start.sides)
    if texts is not None and amounts.pairs > 0:
        with _measuring(evaluation, "agreement"):
            _measure_agreement(evaluation, cuts, sides, texts, amounts.pairs, widths, report)
    if texts is not None and amounts.retrieval_pairs > 0:
        with _measuring(evaluation, "retrieval"):
            search = passages.build_search_pairs(texts, amounts.retrieval_pairs, seed=seed)
            _measure_retrieval(evaluation, cuts, sides, search, widths, report, asymmetric=asymmetric)
    if amounts.latency_seconds > 0:
        left_out: dict[int, float] = {}
        with _measuring(evaluation, "latency"):
            evaluation.latency = measure_latency(
                teacher.timed_model(),
                student.timed_model(),
                batch_sizes=amounts.latency_batch_sizes,
                length=amounts.latency_length,
                seconds=amounts.latency_seconds,
                dtype=teacher.dtype or torch.float32,
                seed=seed,
                left_out=left_out,
                report=report,
            )
        for batch_size, seconds in left_out.items():
            evaluation.unavailable[f"latency with a batch of {batch_size}"] = _why_left_out(
                seconds, amounts.latency_seconds
            )
    if cuts:
        evaluation.cut = list(cuts.values())
    return evaluation


def _why_left_out(seconds: float, latency_seconds: float) -> str:
    """Return why a batch size has no latency, and the setting by which it has one.

    Args:
        seconds: The time that its fewest rounds would have taken.
        latency_seconds: The setting as it was.
    """
    new_setting = least_setting(seconds)
    return (
        f"{FEWEST_ROUNDS} passes of each model would have taken about {duration(seconds)} here, and no more than "
        f"{duration(longest_rounds(latency_seconds))} is allowed with evaluation.latency_seconds {latency_seconds:g}; "
        f"to measure it, raise evaluation.latency_seconds to {new_setting} or more, which allows "
        f"{duration(longest_rounds(new_setting))}."
    )


def _settings(
    teacher: Side, student: Side, texts: Sequence[Text] | None, amounts: Amounts, seed: int
) -> records.MeasuredWith:
    """Return what the figures depend on beside the models."""
    dtype = None
    if teacher.dtype is not None:
        dtype = str(teacher.dtype).removeprefix("torch.")
    settings = records.MeasuredWith(
        pooling=describe_pooling(teacher.vectors),
        max_length=teacher.max_length,
        pairs=amounts.pairs,
        retrieval_pairs=amounts.retrieval_pairs,
        held_out_documents=len(texts or ()),
        dtype=dtype,
        seed=seed,
    )
    student_pooling = describe_pooling(student.vectors)
    if student_pooling != settings.pooling:
        settings.student_pooling = student_pooling
    return settings


@contextmanager
def _measuring(evaluation: records.RunEvaluation, name: str) -> Iterator[None]:
    """Note the seconds that a measure takes, and the reason if it fails with one of our errors, which is not raised."""
    start = time.perf_counter()
    try:
        yield
    except LimbeckError as error:
        evaluation.unavailable[name] = str(error)
    finally:
        evaluation.seconds[name] = round(time.perf_counter() - start, 3)


@dataclass(frozen=True)
class _Sides:
    """The models whose sentence vectors are compared; `starts` are the untrained students."""

    teacher: Side
    student: Side
    starts: Sequence[Side]


def _measure_agreement(
    evaluation: records.RunEvaluation,
    cuts: dict[int, records.CutVectors],
    sides: _Sides,
    texts: Sequence[Text],
    count: int,
    widths: Sequence[int],
    report: progress.Report,
) -> None:
    """Fill in the agreement of the student's similarities with those of the teacher's whole vectors.

    Args:
        evaluation: Receives the figures of whole vectors, in place.
        cuts: Receives the figures of cut vectors by width, in place.
        sides: The models.
        texts: Held-out texts.
        count: Number of sentence pairs.
        widths: Numbers of components that the student's vectors are cut to.
        report: Receives the progress.
    """
    seed = evaluation.settings.seed or 0
    sentences = sides.teacher.choose_sentences(texts, count, seed=seed)
    teacher_vectors = encode_sentences(
        sides.teacher, sentences, progress.named(report, "agreement, vectors of the teacher")
    )
    report_student = progress.named(report, "agreement, vectors of the student")
    student_vectors = encode_sentences(sides.student, sentences, report_student)
    _note_vector_width(evaluation, sides, teacher_vectors, student_vectors)
    chosen = similarity_strata.stratify_pairs(sentences, teacher_vectors, count, seed=seed)
    teacher_cosines = chosen.cosines(teacher_vectors)
    documents = len({sentence.document for sentence in sentences})

    def measure(vectors: Tensor) -> records.Agreement:
        """Return the agreement of a model with the teacher, by its vectors of the sentences."""
        cosines = chosen.cosines(vectors)
        figures = agreement.measure_agreement(chosen.pairs, cosines, teacher_cosines, strata=chosen.strata, seed=seed)
        figures.measure = similarity_strata.STRATIFIED_SIMILARITIES
        figures.sentences = len(sentences)
        # The agreement itself counts the documents of the first sentences of pairs, which it resamples. That number
        # stays where these alone are too few for an interval, so that it says why there is none.
        are_too_few = documents < FEWEST_DOCUMENTS
        if figures.interval is not None or are_too_few:
            figures.documents = documents
        return figures

    evaluation.agreement = measure(student_vectors)
    student_cosines = chosen.cosines(student_vectors)
    evaluation.agreement.examples = agreement.furthest_pairs(chosen.pairs, student_cosines, teacher_cosines)
    # Cut vectors of the student are compared with the teacher's whole ones.
    for width in _usable_widths(widths, student_vectors, teacher_vectors):
        cut = cuts.setdefault(width, records.CutVectors(width=width))
        cut.agreement = measure(inference.cut_vectors(student_vectors, width))
    if sides.starts and evaluation.start is not None:
        agreements = []
        for number, side in enumerate(sides.starts, start=1):
            name = name_of_start(number, len(sides.starts))
            report_start = progress.named(report, f"agreement, vectors of {name}")
            agreements.append(measure(encode_sentences(side, sentences, report_start)))
        evaluation.start.agreement = best_agreement(agreements)


def _note_vector_width(
    evaluation: records.RunEvaluation, sides: _Sides, teacher_vectors: Tensor, student_vectors: Tensor
) -> None:
    """Fill in the widths of both models' vectors, where the student's are not as wide as its layers.

    Args:
        evaluation: Receives the widths, in place.
        sides: The models.
        teacher_vectors: Vectors of the teacher, `[sentences, width]`.
        student_vectors: Vectors of the student, likewise.
    """
    assert sides.student.model is not None
    width = student_vectors.shape[-1]
    if width != families.shape_of(sides.student.model.config).hidden:
        evaluation.student.vector_width = width
        evaluation.teacher.vector_width = teacher_vectors.shape[-1]


def encode_sentences(
    side: Side, sentences: Sequence[similarity_strata.HeldOutSentence], report: progress.Report
) -> Tensor:
    """Return the vectors of sentences, `[sentences, width]`."""
    # `encode` takes pairs, and encodes a text that comes twice once.
    vectors, _ = side.encode([(sentence.text, sentence.text) for sentence in sentences], report)
    return vectors


def _measure_retrieval(
    evaluation: records.RunEvaluation,
    cuts: dict[int, records.CutVectors],
    sides: _Sides,
    search: passages.SearchPairs,
    widths: Sequence[int],
    report: progress.Report,
    *,
    asymmetric: bool,
) -> None:
    """Fill in how well sentences find their passages, by each model's vectors.

    Args:
        evaluation: Receives the figures of whole vectors, in place.
        cuts: Receives the figures of cut vectors by width, in place.
        sides: The models.
        search: Sentences and passages, of which as many are used as are hard enough for the teacher.
        widths: Numbers of components that vectors are cut to.
        report: Receives the progress.
        asymmetric: Whether the student's vectors of sentences also search the teacher's vectors of passages.
    """
    # The teacher reads pairs until the search among them is hard enough; the student then reads the same ones.
    pool = grow_pool_of(sides.teacher, search, progress.named(report, "passage retrieval, vectors of the teacher"))
    report_student = progress.named(report, "passage retrieval, vectors of the student")
    student_queries, student_passages = sides.student.encode(pool.pairs, report_student, retrieval.ROLES)

    # Vectors of different widths have no cosines, so the student's then cannot search the teacher's.
    student_width = student_queries.shape[1]
    teacher_width = pool.queries.shape[1]
    have_same_width = student_width == teacher_width
    if asymmetric and not have_same_width:
        evaluation.unavailable["asymmetric retrieval"] = (
            f"The student's vectors have {student_width} components and the teacher's have {teacher_width}; "
            "aligned_embedding makes them equal."
        )

    score = partial(passages.score_passages, measure=search.measure)
    evaluation.student.retrieval = score(student_queries, student_passages)
    evaluation.teacher.retrieval = pool.figures
    if asymmetric and have_same_width:
        evaluation.asymmetric = score(student_queries, pool.passages)
    for width in _usable_widths(widths, student_queries, pool.queries):
        cut_queries = inference.cut_vectors(student_queries, width)
        cut_passages = inference.cut_vectors(student_passages, width)
        cut_queries_of_teacher = inference.cut_vectors(pool.queries, width)
        cut_passages_of_teacher = inference.cut_vectors(pool.passages, width)
        figures = cuts.setdefault(width, records.CutVectors(width=width))
        figures.student = score(cut_queries, cut_passages)
        figures.teacher = score(cut_queries_of_teacher, cut_passages_of_teacher)
        if asymmetric and have_same_width:
            figures.asymmetric = score(cut_queries, cut_passages_of_teacher)
    if sides.starts and evaluation.start is not None:
        figures_of_starts = []
        for number, side in enumerate(sides.starts, start=1):
            name = name_of_start(number, len(sides.starts))
            report_start = progress.named(report, f"passage retrieval, vectors of {name}")
            start_queries, start_passages = side.encode(pool.pairs, report_start, retrieval.ROLES)
            figures_of_starts.append(score(start_queries, start_passages))
        evaluation.start.retrieval = best_retrieval(figures_of_starts)


def grow_pool_of(teacher: Side, search: passages.SearchPairs, report: progress.Report) -> passages.Pool:
    """Return the pairs among which the search is hard enough for a teacher, with its vectors; see `passages.grow_pool`.

    Args:
        teacher: The teacher.
        search: Sentences and passages, of which the first ones are read, and more of them as long as it is too easy.
        report: Receives the progress; each time that more pairs are read, a part of the work begins.
    """
    return passages.grow_pool(search, lambda pairs: teacher.encode(pairs, report, retrieval.ROLES))


def _usable_widths(widths: Sequence[int], student_vectors: Tensor, teacher_vectors: Tensor) -> list[int]:
    """Return the widths to which the vectors of both models can be cut, the widest first."""
    narrowest = min(student_vectors.shape[1], teacher_vectors.shape[1])
    return sorted({width for width in widths if width < narrowest}, reverse=True)
