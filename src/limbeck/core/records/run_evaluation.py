"""The evaluation in a run's record: the teacher beside its student."""

from __future__ import annotations

from pydantic import Field

from limbeck.core.records.base import Number, Record

SENTENCE_IN_PASSAGES = "sentence_in_passages"
"""Name of the measure of a retrieval: sentences search the passages that they were taken from."""
SUMMARY_IN_BODIES = "summary_in_bodies"
"""Name of the measure of text that has no passages: titles or summaries search their bodies. Records without a name are
of earlier versions, which measured all text so, in a pool that did not grow."""
FEWEST_DOCUMENTS = 5
"""Fewest documents whose agreement has an interval: of fewer, resamples would be nearly the same."""
FEWEST_QUERIES = 200
"""Fewest queries of a retrieval, or sentences of an agreement, whose figure counts for more than a rough one."""
RETRIEVAL = ("ndcg_at_10", "mrr_at_10", "recall_at_1", "recall_at_10")
"""The figures of `Retrieval` in the order of the table; for shortened vectors the table has the first one only."""
SATURATED = 0.9
"""A score of the teacher's retrieval above which the search is too easy to tell students apart."""


class Times(Record):
    """Milliseconds of a pass."""

    median_ms: Number | None = None
    p10_ms: Number | None = None
    p90_ms: Number | None = None


class BatchLatency(Record):
    """Times and speedups of teacher and student at one batch size.

    Attributes:
        batch_size: Texts per pass.
        rounds: Timed passes of each model.
        teacher: Times of the teacher's whole encoder.
        student: Times of the student's whole encoder.
        teacher_transformer: Times of the teacher's blocks.
        student_transformer: Times of the student's blocks.
        speedup: Median over rounds of teacher time / student time, whole encoder.
        transformer_speedup: The same of the blocks.
        shape_ratio: The work of the teacher's blocks by that of the student's, by their shapes; see
            `limbeck.evaluation.costs.work_ratio`. None where their architectures differ, and in older records.
        demand: The cores that this process and others wanted in the rounds, for each core that there is; see
            `limbeck.core.timing.CoreDemand`. None where the system does not tell it, and in older records.
        load: The load average of the machine for each of its cores, in records of earlier versions.
    """

    batch_size: int | None = None
    rounds: Number | None = None
    teacher: Times = Field(default_factory=Times)
    student: Times = Field(default_factory=Times)
    teacher_transformer: Times = Field(default_factory=Times)
    student_transformer: Times = Field(default_factory=Times)
    speedup: Number | None = None
    transformer_speedup: Number | None = None
    shape_ratio: Number | None = None
    demand: Number | None = None
    load: Number | None = None


class Latency(Record):
    """Latency of a teacher and its student on one machine.

    Attributes:
        device: Kind of device, and its name where there is one.
        threads: PyTorch's threads.
        dtype: Of weights and activations.
        length: Tokens per text, all of them real (no padding).
        batches: One entry a batch size.
    """

    device: str | None = None
    threads: Number | None = None
    dtype: str | None = None
    length: Number | None = None
    batches: list[BatchLatency] = Field(default_factory=list)


class Parameters(Record):
    """Parameters by place."""

    embedding: Number | None = None
    transformer: Number | None = None
    pooler: Number | None = None
    head: Number | None = None
    total: Number | None = None


class Retrieval(Record):
    """Share of queries that find their documents.

    Attributes:
        mrr_at_10: Mean over queries of 1/rank of the right document, 0 where the rank is above 10.
        recall_at_1: Share of queries whose right document comes first.
        pool: Number of pairs: each query searches this many documents.
        interval: 95 % interval of `mrr_at_10` (normal approximation over queries).
        ndcg_at_10: Mean over queries of 1 / log2(1 + rank) of the right document, 0 where the rank is above 10.
        recall_at_10: Share of queries whose right document is among the first ten.
        intervals: Those of `ndcg_at_10` and `recall_at_10`, by name.
        measure: Name of the queries and documents: `SENTENCE_IN_PASSAGES` or `SUMMARY_IN_BODIES`, or None for
            summaries that search bodies, in records of earlier versions.
    """

    mrr_at_10: Number | None = None
    recall_at_1: Number | None = None
    pool: Number | None = None
    interval: list[Number | None] | None = None
    ndcg_at_10: Number | None = None
    recall_at_10: Number | None = None
    intervals: dict[str, list[Number | None]] = Field(default_factory=dict)
    measure: str | None = None


class ModelFigures(Record):
    """The figures of one model.

    Attributes:
        parameters: By place.
        megabytes: Of its weights.
        megabytes_of: "files" where a folder was given, else "tensors": as the model is in memory.
        retrieval: Its retrieval figures, or None.
        vector_width: Numbers of its sentence vectors; None unless the student's vectors have another width than its
            layers.
    """

    parameters: Parameters = Field(default_factory=Parameters)
    megabytes: Number | None = None
    megabytes_of: str | None = None
    retrieval: Retrieval | None = None
    vector_width: Number | None = None


class Agreement(Record):
    """Spearman agreement of a student with its teacher.

    Attributes:
        spearman: The mean within ranges of the teacher's similarity; in records of earlier versions over all pairs.
            Compare it only between equal pair sets.
        interval: Its 95 % interval, by resampling documents; None of fewer than five.
        pairs: Number of pairs.
        documents: Number of documents that the sentences are from. In records of earlier versions, and where these are
            enough for an interval and there is none, the number of those that first sentences of pairs are from.
        by_kind: The same within each kind of pair, undefined (NaN, in files None) where there is none.
        seed: Of the choice of pairs and of the resampling.
        examples: The pairs whose places in the two orders are furthest apart, as shares of all pairs.
        measure: Name of the choice of pairs: `limbeck.evaluation.similarity_strata.STRATIFIED_SIMILARITIES`, or None
            for equally many pairs of each kind, in records of earlier versions.
        sentences: Number of sentences that the pairs were chosen from.
        ranges: Number of the ranges that `spearman` is the mean of: those whose correlation is defined. None in older
            records, and for one correlation over all pairs.
    """

    spearman: Number | None = None
    interval: list[Number | None] | None = None
    pairs: Number | None = None
    documents: Number | None = None
    by_kind: dict[str, Number | None] = Field(default_factory=dict)
    seed: int | None = None
    examples: list[Disagreement] = Field(default_factory=list)
    measure: str | None = None
    sentences: Number | None = None
    ranges: Number | None = None


UNTRAINED_START = "untrained start"
"""Name of the start of a student that was not trained before."""
TRAINED_START = "trained start"
"""Name of the start of a student that goes on from a trained model."""


class UntrainedStart(Record):
    """The figures that the student's shape has without training, on the texts of the student's figures.

    Where its layers could be fitted, each figure is the better one of two students: one has the layers as they are
    copied, and the other has the same layers fitted to the teacher. Scores on labelled rows stand beside the student's,
    in `DevelopmentFigures` and `TaskFigures`.

    A student may also go on from a whole model that is trained already. That model is then the start.

    Attributes:
        summary: Where the weights are from, in a sentence.
        fitted_tokens: Tokens that the fit of the second student read; None where there is one student.
        gain_of: What lies between the start and the student: `training`, or `fit` where nothing was trained.
        trained_model: The trained model that the start is, a folder or a name on the Hub; None for an untrained start.
        agreement: Its agreement with the teacher.
        retrieval: Its retrieval.
        unavailable: Why there are no figures.
    """

    summary: str = ""
    fitted_tokens: Number | None = None
    gain_of: str = "training"
    trained_model: str | None = None
    agreement: Agreement | None = None
    retrieval: Retrieval | None = None
    unavailable: str | None = None

    @property
    def name(self) -> str:
        """Its name in tables and sentences."""
        return UNTRAINED_START if self.trained_model is None else TRAINED_START

    @property
    def untrained_retrieval(self) -> Retrieval | None:
        """The retrieval of a student without training; None for a trained start, of which nobody learns that figure."""
        return self.retrieval if self.trained_model is None else None


class CutVectors(Record):
    """Figures of sentence vectors of both models that are cut to their first components, and scaled to length one.

    Attributes:
        width: Components that are left.
        agreement: Of the student's similarities with those of the teacher's whole vectors.
        teacher: The teacher's retrieval.
        student: The student's retrieval.
        asymmetric: Retrieval of the student's queries in the teacher's documents.
    """

    width: int = 0
    agreement: Agreement | None = None
    teacher: Retrieval | None = None
    student: Retrieval | None = None
    asymmetric: Retrieval | None = None


class MetricScores(Record):
    """Scores of both models on held-out rows by one metric; None as in `TaskFigures`."""

    metric: str = ""
    teacher: Number | None = None
    student: Number | None = None


class TaskFigures(Record):
    """Scores of both models on the same held-out rows of a task.

    Attributes:
        task: Name of a kind of task, see `limbeck.kinds.KINDS`.
        metric: The main metric of the kind on held-out rows; 0 to 1, or -1 to 1 for a correlation.
        rows: Number of rows; in older records of their windows, of which a long row has several.
        queries: How many queries these rows are of, in a ranking; None for other kinds, and in older records.
        teacher: The teacher's score; None without a teacher, as is a correlation with constant values.
        student: The student's score.
        agreement: The same metric with the teacher's predictions in place of the labels.
        agreement_metric: The metric of the agreement, where it is another one.
        agreement_interval: Its 95 % interval over rows, sentences or queries; None in older records.
        further: Scores by further metrics.
        intervals: 95 % intervals of the student's scores, by metric, where there is one; none in older records.
        chance: Scores of a model that does not read the rows, by metric, where they are known.
        start: Scores of the untrained start, by metric, where it was scored; see `UntrainedStart`.
        start_agreement: Its agreement.
        labelled: False where the rows have no labels, so that only the agreement was measured; None for any other.
        only_answer: Whether the student gives one answer to all rows.
        stage: The stage that the task is from.
        teacher_name: The teacher.
        unavailable: Why there are no scores.
        chose_step: Whether these rows chose the step whose student was kept.
    """

    task: str | None = None
    metric: str | None = None
    rows: Number | None = None
    queries: Number | None = None
    teacher: Number | None = None
    student: Number | None = None
    agreement: Number | None = None
    agreement_metric: str | None = None
    agreement_interval: list[Number | None] | None = None
    further: list[MetricScores] = Field(default_factory=list)
    intervals: dict[str, list[Number | None]] = Field(default_factory=dict)
    chance: dict[str, Number] = Field(default_factory=dict)
    start: dict[str, Number | None] = Field(default_factory=dict)
    start_agreement: Number | None = None
    labelled: bool | None = None
    only_answer: bool | None = None
    stage: str | None = None
    teacher_name: str | None = None
    unavailable: str | None = None
    chose_step: bool = False


class LabelFigures(Record):
    """F1 of both models on one class, label or type of entity, 0 to 1; `rows` is how often the labels have it."""

    label: str = ""
    rows: Number | None = None
    teacher: Number | None = None
    student: Number | None = None


class Disagreement(Record):
    """A row to which teacher and student give different answers, all of them in words.

    Attributes:
        text: The row's text, or the passage of a question, as far as it is shown.
        pair: Its second text, or the question; empty where there is none.
        label: The row's label.
        teacher: The teacher's answer.
        student: The student's answer.
        distance: The distance of the two answers, by the kind of task. Classes: half the sum of the differences of
            their probabilities (0 to 1). Several classes a row: the largest of these differences. Values: their
            difference. Answers in a text: 1 - F1. Tags of words: the share of words with another tag. Pairs of
            sentences: the difference of their ranks, as a share of all pairs.
    """

    text: str = ""
    pair: str = ""
    label: str = ""
    teacher: str = ""
    student: str = ""
    distance: Number | None = None


class DevelopmentFigures(Record):
    """Scores of both models, as they are, on the development rows of a task; none of them was trained on.

    Attributes:
        task: The task's name.
        kind: Of its labels.
        stage: The stage that it is from; None where it is the evaluation's.
        split: The scored split, or the file of the development rows.
        rows: How many there are.
        queries: How many queries these rows are of, in a ranking; None for other kinds, and in older records.
        length: Most tokens of a row or window that the student reads; None in older records.
        teacher: Metric to score, the main one first, as `limbeck.kinds` has them; empty without a teacher.
        student: The student's.
        only_answer: The one answer that the student gives to all rows; None where it gives several.
        positive: The class that the metric `f1` is of, as in `core.studies.evaluation.Column`.
        intervals: 95 % intervals of the student's scores over the rows, by metric, where there is one.
        teacher_intervals: The teacher's.
        chance: Scores of a model that does not read the rows, by metric, where they are above 0.
        start: The untrained start's scores, where it was scored; see `UntrainedStart`.
        teacher_name: The teacher.
        labels: Names of the classes, in the order of `confusion`.
        confusion: Rows of each class (a list each) by the class that the student gives them; empty without classes.
        by_label: Classes, labels or types of entities, one by one.
        disagreements: On how many rows the answers differ; None without a teacher.
        examples: The furthest apart of these, ten at most, the furthest first.
        unavailable: Why there are no scores.
        chose_step: Whether these rows chose the step whose student was kept.
    """

    task: str = ""
    kind: str = ""
    stage: str | None = None
    split: str = ""
    rows: Number | None = None
    queries: Number | None = None
    length: Number | None = None
    teacher: dict[str, Number | None] = Field(default_factory=dict)
    student: dict[str, Number | None] = Field(default_factory=dict)
    positive: str | None = None
    intervals: dict[str, list[Number]] = Field(default_factory=dict)
    teacher_intervals: dict[str, list[Number]] = Field(default_factory=dict)
    chance: dict[str, Number | None] = Field(default_factory=dict)
    start: dict[str, Number | None] = Field(default_factory=dict)
    only_answer: str | None = None
    teacher_name: str | None = None
    labels: list[str] = Field(default_factory=list)
    confusion: list[list[Number]] = Field(default_factory=list)
    by_label: list[LabelFigures] = Field(default_factory=list)
    disagreements: Number | None = None
    examples: list[Disagreement] = Field(default_factory=list)
    unavailable: str | None = None
    chose_step: bool = False

    @property
    def metric(self) -> str:
        """The main metric; empty where nothing was scored."""
        return next(iter(self.student), "")


class MeasuredWith(Record):
    """Settings of a run's evaluation.

    Attributes:
        student_pooling: The student's pooling, where it differs from the teacher's.
        reduced: Keys of the recipe whose defaults were lowered, since they would have taken too long.
        budget_seconds: The time that the evaluation was to fit into.
    """

    pooling: str | None = None
    student_pooling: str | None = None
    max_length: Number | None = None
    pairs: Number | None = None
    retrieval_pairs: Number | None = None
    held_out_documents: Number | None = None
    dtype: str | None = None
    seed: int | None = None
    budget_seconds: Number | None = None
    reduced: list[str] = Field(default_factory=list)


class LanguageFigures(Record):
    """Figures of the student on the held-out text of a language.

    Attributes:
        language: Its code.
        texts: Number of texts that were compared.
        agreement: Spearman's correlation of the similarities of all pairs of texts with the teacher's, which reads the
            texts in its own language where they are translations; None of too few texts.
        to_teacher_language: Share of sentences whose nearest sentence in the teacher's language is a translation, 0 to
            1, by the student's vectors; None where the teacher reads the language itself.
        from_teacher_language: The same of sentences of the teacher's language.
    """

    language: str = ""
    texts: Number | None = None
    agreement: Number | None = None
    to_teacher_language: Number | None = None
    from_teacher_language: Number | None = None

    @property
    def is_measured(self) -> bool:
        """Whether there is any figure beside the number of texts."""
        figures = (self.agreement, self.to_teacher_language, self.from_teacher_language)
        return any(figure is not None for figure in figures)


class RunEvaluation(Record):
    """A teacher beside its student.

    Attributes:
        teacher: The teacher's own figures.
        student: The student's own figures.
        latency: Both models' latency, or None.
        agreement: Agreement of the student's similarities with the teacher's, or None.
        unavailable: Figure -> the reason why there is none; one that was not asked for is None without a reason.
        settings: Pooling, lengths, sizes, dtype and seed of the request.
        seconds: Measure -> its wall time.
        task: Scores on held-out rows of the task that the student was distilled for, which the teacher may have been
            trained on.
        development: Scores of both models as they are, on development rows; one a task.
        asymmetric: Retrieval of the student's queries in the teacher's documents, of students that learned the
            teacher's sentence vectors.
        cut: The same of shorter vectors, a width each, the widest first.
        chose_step: Whether the held-out text chose the step whose student was kept.
        start: The figures of the student's shape without training, which show what training added.
        languages: Figures by language, where the languages of the text are known.
    """

    teacher: ModelFigures = Field(default_factory=ModelFigures)
    student: ModelFigures = Field(default_factory=ModelFigures)
    latency: Latency | None = None
    agreement: Agreement | None = None
    unavailable: dict[str, str] = Field(default_factory=dict)
    settings: MeasuredWith = Field(default_factory=MeasuredWith)
    seconds: dict[str, Number | None] = Field(default_factory=dict)
    task: TaskFigures | None = None
    development: list[DevelopmentFigures] = Field(default_factory=list)
    asymmetric: Retrieval | None = None
    cut: list[CutVectors] = Field(default_factory=list)
    chose_step: bool = False
    start: UntrainedStart | None = None
    languages: list[LanguageFigures] = Field(default_factory=list)

    def without_rows_that_chose(self) -> RunEvaluation:
        """The evaluation without figures on rows or text that decided which step's student was kept.

        Such figures are too good.
        """
        development = [rows for rows in self.development if not rows.chose_step]
        development_chose = len(development) < len(self.development)
        task_chose = self.task is not None and self.task.chose_step
        # An evaluation without such rows is returned itself: a copy whose fields were set would not count as empty.
        if not development_chose and not task_chose and not self.chose_step:
            return self

        figures = self.model_copy(update={"development": development})
        if task_chose:
            figures.task = None
        # An untrained start with the head of a task has scores on these rows alone.
        if not development and figures.task is None:
            figures.start = None
        # If held-out text chose the step, all figures on that text go.
        if self.chose_step:
            figures.agreement = None
            figures.asymmetric = None
            figures.cut = []
            figures.start = None
            figures.languages = []
            figures.teacher = self.teacher.model_copy(update={"retrieval": None})
            figures.student = self.student.model_copy(update={"retrieval": None})
        return figures

    @property
    def batches(self) -> list[BatchLatency]:
        """The latency at each batch size; none where it was not measured."""
        return self.latency.batches if self.latency is not None else []

    @property
    def first_batch(self) -> BatchLatency:
        """The latency at the first batch size."""
        return self.batches[0] if self.batches else BatchLatency()
