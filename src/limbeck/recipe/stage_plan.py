"""A stage of a recipe checked against its models: its terms, its text, its heads and its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from transformers import PreTrainedConfig

from limbeck.core.fields import NONE
from limbeck.core.kinds import are_made_up, kind_of
from limbeck.corpus import CorpusSettings, LabelledSettings
from limbeck.corpus.classes import ClassCounts, ClassWeights
from limbeck.corpus.settings import CorpusSpec
from limbeck.corpus.sources import check_source
from limbeck.errors import CorpusError, LimbeckError, ModelError, RecipeError
from limbeck.evaluation.task_rows import TaskRows
from limbeck.methods.pairing import Pairing, Task
from limbeck.methods.registry import read_method
from limbeck.methods.term import LearnedMap, Term
from limbeck.models.cross_encoders import check_no_prompt, cross_encoder_settings
from limbeck.models.families import segment_count
from limbeck.models.heads import Head, check_family, check_has_head, head_of
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentence_reader import check_pooling_named, sentence_pooling
from limbeck.models.sentences import SentencePooling, finished_pooling
from limbeck.models.streams import SENTENCE_KINDS
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vocabularies import check_same_vocabulary
from limbeck.objectives import OBJECTIVES
from limbeck.recipe.corpora import corpus_settings
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo, choose_student, choose_teacher, needed_head
from limbeck.recipe.row_copies import augmentation
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stages import StageSpec
from limbeck.recipe.training_arguments import build_arguments, check_training

MASKED_SHARE = 0.15
"""Share of tokens that BERT masks (arXiv 1810.04805, section 3.1)."""
_LEAST_MASKED = 0.01


@dataclass(frozen=True)
class StagePlan:
    """One stage, with its options resolved for these two models.

    Args:
        spec: The recipe's stage.
        terms: The weighted terms.
        corpus: Its text or rows, and how they are cut: of several lengths at the last.
        vectors: How its student's sentence vectors are made, but for a map that it learns and keeps.
        teacher_vectors: How its teacher's are.
        pairing: What the method was composed for.
        teacher: The stage's teacher.
        student: The student of this stage alone; None for the recipe's.
        student_head: The head that its student needs, or None.
        teacher_head: The head that its teacher needs, or None.
        mask_tokens: Share of tokens to mask.
        class_weights: Weights of the classes in hard labels, or None.
        absent: Classes that none of its rows has.
    """

    spec: StageSpec
    terms: list[Term]
    corpus: CorpusSettings | LabelledSettings
    vectors: SentencePooling
    teacher_vectors: SentencePooling
    pairing: Pairing
    teacher: TeacherInfo
    student: StudentPlan | None
    student_head: Head | None
    teacher_head: Head | None
    mask_tokens: float
    class_weights: ClassWeights | None = None
    absent: tuple[str, ...] = ()

    @cached_property
    def corpora(self) -> list[CorpusSettings | LabelledSettings]:
        """Its text at every length that it is trained on, in their order."""
        schedule = self.spec.text.schedule
        if schedule is None:
            return [self.corpus]
        # Once: a mix by a pattern would find files anew that have come meanwhile.
        return [self.corpus.with_length(length) for length in schedule.lengths]

    @property
    def development(self) -> TaskRows | None:
        """The rows of its task on which teacher and student are scored, and none is trained; None without."""
        found = self.corpus.development if isinstance(self.corpus, LabelledSettings) else None
        assert found is None or isinstance(found, TaskRows)
        return found

    @property
    def kept_map(self) -> LearnedMap | None:
        """The learned map that its student keeps behind its pooling, if any."""
        return _kept_map(self.terms)

    @property
    def teaches_vectors(self) -> bool:
        """Whether finished sentence vectors are taught, which the student's files then have to say."""
        return any(key.kind == "vector" for term in self.terms for key in term.student)

    def sentence_heads(self) -> tuple[SentenceHead, SentenceHead]:
        """Return what makes the student's and the teacher's `pooled` and `vector` streams.

        The student's ends at the pooling where a learned map follows.

        Raises:
            ModelError: for modules whose weights are missing or damaged.
        """
        own = self.vectors if self.kept_map is None else replace(self.vectors, normalize=False)
        return SentenceHead(own), SentenceHead(self.teacher_vectors)

    @property
    def learns_classes(self) -> bool:
        """Whether a term learns the classes that rows are labelled with."""
        return kind_of(self.pairing.task).has_classes and any(
            OBJECTIVES[each.objective].takes_labels for each in self.terms
        )

    @property
    def compares_documents(self) -> bool:
        """Whether a term compares the documents of a query."""
        return any(term.unit == "group" for term in self.terms)

    def refuse_one_class(self, counts: ClassCounts) -> CorpusError:
        """Return the refusal of rows that are all alike, where their classes are learned."""
        return CorpusError(f"{counts.describe_one()}, so labels teach nothing: add rows of other classes.")

    def refuse_single_documents(self) -> RecipeError:
        """Return the refusal of rows of one document a query, where documents are compared."""
        assert isinstance(self.corpus, LabelledSettings)
        return RecipeError(
            f"Stage '{self.spec.title}': {self.spec.method.get('loss', 'its loss')} compares the documents of a "
            f"query, but no query has two (documents_per_query is {self.corpus.documents_per_query}); give rows "
            "with several documents per query, or use loss: score_mse."
        )

    @property
    def measures_layers(self) -> bool:
        """Whether the layer mapping depends on what the teacher does to its text."""
        return self.spec.method.get("mapping") == "contribution"

    def with_class_weights(self, weights: Sequence[float]) -> StagePlan:
        """Weigh the classes in the terms that read hard labels.

        Args:
            weights: Of each class.
        """
        terms = [
            replace(term, options={**term.options, "class_weights": tuple(weights)})
            if takes_class_weights(term)
            else term
            for term in self.terms
        ]
        return replace(self, terms=terms)

    def with_layer_cosines(self, cosines: tuple[float, ...]) -> StagePlan:
        """Compose anew for measured layers.

        Args:
            cosines: For each teacher layer the mean cosine between its input and its output.
        """
        pairing = replace(self.pairing, layer_cosines=cosines)
        return replace(self, pairing=pairing, terms=_compose(self.spec, pairing, self.spec.title))


def takes_class_weights(term: Term) -> bool:
    """Return whether a term reads hard labels, whose classes can be weighted."""
    return OBJECTIVES[term.objective].takes_class_weights


def plan_stage(
    index: int, recipe: Recipe, teacher: TeacherInfo, student: StudentPlan, earlier: list[StagePlan]
) -> StagePlan:
    """Check a stage and resolve its options for the two models.

    Args:
        index: Which stage of the recipe.
        recipe: The recipe.
        teacher: The recipe's teacher.
        student: The recipe's student.
        earlier: The stages before it, which may teach here.

    Raises:
        LimbeckError: one line for the first contradiction, with its place in the recipe.
    """
    stage, place = recipe.stages[index], f"stages.{index}"
    taught_by = _stage_teacher(stage, place, teacher, earlier)
    try:
        own = choose_student(stage.student, taught_by) if stage.student is not None else None
    except LimbeckError as error:
        raise type(error)(f"{place}.student: {error}") from None
    learns = own or student
    corpus = stage.corpus or recipe.corpus
    assert corpus is not None
    task: Task = corpus.task.kind if corpus.task is not None else "text"
    assistant = next((choice for choice in earlier if choice.spec.title == taught_by.stage), None)
    if assistant is None:
        sentence = sentence_pooling(taught_by.spec.model, taught_by.spec.revision)
    else:  # Its folder says nothing; texts get no prompts for it.
        sentence = assistant.vectors.without_prompts() if assistant.teaches_vectors else None
    pairing = Pairing(learns.shape, taught_by.facts, task, sentence=sentence)
    terms = _compose(stage, pairing, place)
    heads = needed_head(terms, task, "student"), needed_head(terms, task, "teacher")
    try:
        _check_heads(heads, learns, taught_by, earlier)
    except LimbeckError as error:
        raise type(error)(f"{place}: {error}") from None
    _check_training(stage, place, recipe.seed, terms, evaluates=corpus.held_out != 0)
    _check_steps(stage, place, corpus)
    try:
        prompting = sentence if _reads_prompts(corpus, stage, terms, taught_by, place) else None
        settings = corpus_settings(corpus, stage.text, taught_by, reads_scores=heads[1] is not None, sentence=prompting)
        for source in (*corpus.places, *(corpus.development or ())):
            check_source(source, "texts" if corpus.task is None else "rows")
    except CorpusError as error:
        raise CorpusError(f"{place}.corpus: {error}" if stage.corpus else str(error)) from None
    if corpus.augment is not None and isinstance(settings, LabelledSettings):
        model = None if taught_by.stage else (taught_by.spec.model, taught_by.spec.revision)
        copies = augmentation(corpus.augment, taught_by.title, model, recipe.seed)
        settings = settings.model_copy(update={"augment": copies})
    if isinstance(settings, CorpusSettings) and settings.pairs:
        _check_segments({"teacher": taught_by.config, "student": learns.config}, stage, place)
    said = next((name for name in ("lengths", "length") if getattr(stage.text, name)), None)
    key = f"{place}.text.{said}" if said else f"{place}.corpus.length" if stage.corpus else "corpus.length"
    for owner, shape in (("teacher", taught_by.shape), ("student", learns.shape)):
        if shape.positions is not None and settings.length > shape.positions:
            raise RecipeError(
                f"{key} {settings.length} is longer than the {owner}'s {shape.positions} positions; "
                f"use {shape.positions} or less."
            )
    vectors, teacher_vectors = _stage_vectors(stage, terms, pairing, taught_by, assistant, place)
    choice = StagePlan(
        spec=stage,
        terms=terms,
        corpus=settings,
        vectors=vectors,
        teacher_vectors=teacher_vectors,
        pairing=pairing,
        teacher=taught_by,
        student=own,
        student_head=heads[0],
        teacher_head=heads[1],
        mask_tokens=_masked_share(stage, terms, task, place),
    )
    if own is not None and heads[0] is not None and heads[1] is None:  # Else its outputs are the teacher's.
        choice = replace(choice, student=with_labels(own, [choice]))
    return choice


def _stage_vectors(
    stage: StageSpec,
    terms: list[Term],
    pairing: Pairing,
    taught_by: TeacherInfo,
    assistant: StagePlan | None,
    place: str,
) -> tuple[SentencePooling, SentencePooling]:
    """How a stage's student and teacher make vectors: as the teacher's folder says; else as asked, or by the mean."""
    given, said = stage.method.get("pooling"), pairing.sentence
    kinds = _kinds_read(terms)
    if said is None and assistant is None and ("vector" in kinds or ("pooled" in kinds and given is None)):
        check_pooling_named(taught_by.spec.model)
    if said is not None and kinds & {"vector", "pooled"}:
        said.check_whole(taught_by.spec.model, taught_by.shape.hidden)
    if "vector" in kinds:
        if assistant is not None and assistant.kept_map is not None:
            raise RecipeError(
                f"{place}.teacher: {taught_by.title} makes its vectors by a learned map, which is finished only at "
                "the end of that stage; let the recipe's teacher teach, or make two recipes."
            )
        own = finished_pooling(said, given)
        return (own if _kept_map(terms) is None else replace(own, modules=())), finished_pooling(said)
    if "pooled" not in kinds or said is None:
        both = finished_pooling(None, given)
        return both, both
    if given not in (None, said.pooling):
        raise RecipeError(
            f"{place}.method.pooling is '{given}', but the vectors of '{taught_by.title}' are made by "
            f"'{said.pooling}'; leave it out."
        )
    if not said.fits(pairing.student.hidden):
        raise RecipeError(
            f"{place}: '{taught_by.title}' makes its vectors by {said}, which cannot follow a student of width "
            f"{pairing.student.hidden}; give a student as wide as the teacher, or use the method aligned_embedding."
        )
    return said, said


def _reads_prompts(corpus: CorpusSpec, stage: StageSpec, terms: list[Term], teacher: TeacherInfo, place: str) -> bool:
    """Whether a stage's terms read sentence vectors, of which a teacher's files may say the prompts.

    Raises:
        RecipeError: for roles that nothing reads, and prompts that part the tokens of student and teacher where terms
            compare them.
    """
    role = next((each.role for each in corpus.described_sources if each.role), None)
    if not _kinds_read(terms) & set(SENTENCE_KINDS) or teacher.stage is not None:
        if role is not None:
            method = stage.method["name"]
            why = f"{teacher.title} has no files that define it" if teacher.stage else f"{method} reads none"
            raise RecipeError(
                f"{place}: the role {role} of a source gives its texts a prompt of sentence vectors, but {why}; "
                "leave out role, or use a method on sentence vectors and a teacher from a folder."
            )
        return False
    reading = stage.text.student_prompts or corpus.student_prompts
    if reading == NONE and (of_tokens := [term.name for term in terms if _reads_tokens(term)]):
        raise RecipeError(
            f"{place}: student_prompts is none, so the teacher reads tokens that the student does not, but the "
            f"term '{of_tokens[0]}' compares tokens; leave student_prompts out, or give that term the weight 0."
        )
    return True


def _kept_map(terms: Sequence[Term]) -> LearnedMap | None:
    maps = (term.learned_map for term in terms)
    return next((found for found in maps if found is not None and found.kept), None)


def _kinds_read(terms: Sequence[Term]) -> set[str]:
    return {key.kind for term in terms for key in (*term.student, *term.teacher)}


def _reads_tokens(term: Term) -> bool:
    return any(key.kind not in (*SENTENCE_KINDS, "cls") for key in term.student)


def _check_segments(models: Mapping[str, PreTrainedConfig], stage: StageSpec, place: str) -> None:
    """Refuse pairs for models that do not tell two segments apart."""
    for owner, config in models.items():
        if segment_count(config) < 2:
            place = f"{place}.text" if stage.text.pairs else f"{place}.corpus" if stage.corpus else "corpus"
            raise RecipeError(
                f"{place}.pairs: a pair has two segments, but the {owner}, a {config.model_type}, does not tell "
                f"segments apart (type_vocab_size {segment_count(config)}); leave pairs out, or choose a teacher "
                "that does, such as BERT."
            )


def _stage_teacher(stage: StageSpec, place: str, teacher: TeacherInfo, earlier: list[StagePlan]) -> TeacherInfo:
    """The stage's teacher: its own, an earlier stage's student, or the recipe's."""
    if stage.teacher is None:
        return teacher
    if stage.teacher.stage is not None:
        assistant = next(choice for choice in earlier if choice.spec.title == stage.teacher.stage)
        assert assistant.student is not None
        return TeacherInfo(stage.teacher, assistant.student.config, assistant.student.shape, stage.teacher.stage)
    found = choose_teacher(stage.teacher)
    try:
        check_same_vocabulary(load_tokenizer(teacher.spec.model), load_tokenizer(stage.teacher.model))
    except ModelError:
        raise RecipeError(
            f"{place}.teacher '{stage.teacher.model}' has a different vocabulary from the recipe's teacher "
            f"'{teacher.spec.model}', but a student has only one; choose a teacher with the same tokenizer."
        ) from None
    return found


def _compose(stage: StageSpec, pairing: Pairing, place: str) -> list[Term]:
    method, options = read_method(stage.method)
    if pairing.task not in method.tasks:
        raise RecipeError(
            f"{place}.method: {method.name} is made for {', '.join(method.tasks)}, not for {pairing.task}; leave out "
            "corpus.task or choose another method (`limbeck methods` lists them)."
        )
    try:
        terms = method.compose(options, pairing)
        for term in terms:
            for key in term.teacher:
                pairing.teacher.check_gives(key, term.name)
    except LimbeckError as error:
        raise type(error)(f"{place}.method: {error}") from None
    return terms


def _check_heads(
    heads: tuple[Head | None, Head | None], student: StudentPlan, teacher: TeacherInfo, earlier: list[StagePlan]
) -> None:
    """Refuse a teacher without the head that is read, and families that have none."""
    of_student, of_teacher = heads
    check_family(student.config, of_student)
    if of_teacher is None or teacher.teaching is not None:
        return
    if teacher.stage is None:
        check_has_head(teacher.title, teacher.config, of_teacher)
        check_no_prompt(teacher.spec.model, teacher.spec.revision)
        return
    trained = next(choice for choice in earlier if choice.spec.title == teacher.stage).student_head
    if trained != of_teacher:
        raise RecipeError(
            f"{teacher.title} has no {of_teacher} head, since that stage reads no scores; give that stage a method "
            "that trains it, or choose another teacher."
        )


def _check_training(stage: StageSpec, place: str, seed: int, terms: list[Term], *, evaluates: bool) -> None:
    training = check_training(stage.training, f"{place}.training")
    try:
        build_arguments(training, output="", seed=seed, evaluates=evaluates)
    except RecipeError as error:
        raise RecipeError(f"{place}.{error}") from None
    coupled = [term.name for term in terms if term.batch_coupled]
    if coupled and training.get("gradient_accumulation_steps", 1) > 1:
        raise RecipeError(
            f"{place}: the term '{coupled[0]}' relates the samples of a batch, so it cannot be accumulated over "
            "several batches; set training.gradient_accumulation_steps to 1 and raise per_device_train_batch_size, "
            "or give the term the weight 0."
        )
    grouped = [term.name for term in terms if term.unit == "group"]
    if grouped and stage.guard.on_out_of_memory == "split":
        raise RecipeError(
            f"{place}: the term '{grouped[0]}' compares the documents of a query, which pieces of a batch would "
            "separate; leave out guard.on_out_of_memory and lower per_device_train_batch_size."
        )
    if coupled and stage.guard.on_out_of_memory == "split":
        raise RecipeError(
            f"{place}: the term '{coupled[0]}' relates the samples of a batch, so a batch that does not fit cannot be "
            "run in pieces; leave out guard.on_out_of_memory and lower per_device_train_batch_size, or give the term "
            "the weight 0."
        )


def _check_steps(stage: StageSpec, place: str, corpus: CorpusSpec) -> None:
    """Refuse a stage whose steps are not known, of a stream or of a schedule of lengths."""
    steps = stage.training.get("max_steps", -1)
    schedule, known = stage.text.schedule, isinstance(steps, int) and steps > 0
    if corpus.streaming and not known:
        raise RecipeError(
            f"{place}.training.max_steps is missing: a stream has no end and no epochs, so give the number of "
            "steps to train."
        )
    if schedule is None:
        return
    if corpus.task is not None:
        raise RecipeError(f"{place}.text.lengths is for text without labels, whose rows stay whole; leave it out.")
    if schedule.in_epochs and corpus.streaming:
        raise RecipeError(f"{place}.text.lengths counts epochs, but a stream has none; give shares of max_steps.")
    if schedule.in_epochs and "num_train_epochs" in stage.training:
        raise RecipeError(f"{place}.training.num_train_epochs follows from text.lengths; leave it out.")
    if not schedule.in_epochs and not known:
        raise RecipeError(
            f"{place}.training.max_steps is missing: text.lengths has shares of it; give it, or give epochs for "
            "each length."
        )
    if not schedule.in_epochs:
        try:
            schedule.ends(steps)
        except CorpusError as error:
            raise RecipeError(f"{place}.text.lengths: {error}") from None


def _masked_share(stage: StageSpec, terms: list[Term], task: Task, place: str) -> float:
    """Share of tokens to mask: what the stage says, else BERT's where a term reads masked positions."""
    asked = stage.augment.mask_tokens
    reads_labels = any(term.unit == "label" for term in terms)
    if task != "text":
        if asked:
            raise RecipeError(f"{place}.augment.mask_tokens is for text without labels; leave it out.")
        if stage.augment.replace_tokens and learn_labels(terms):
            raise RecipeError(
                f"{place}.augment.replace_tokens changes what a row says, but a term of this method learns the "
                "row's label; leave it out, or give the hard labels the weight 0."
            )
        return 0.0
    if asked is not None and 0 < asked < _LEAST_MASKED:
        raise RecipeError(
            f"{place}.augment.mask_tokens {asked} masks next to nothing; use {_LEAST_MASKED} or more (BERT has "
            f"{MASKED_SHARE}), or 0."
        )
    if asked is None:
        return MASKED_SHARE if reads_labels else 0.0
    if asked == 0 and reads_labels:
        raise RecipeError(
            f"{place}.augment.mask_tokens is 0, but this method reads masked positions; leave it out, or set "
            "positions: all and a weight of 0 for the hard labels."
        )
    return asked


def learn_labels(terms: Sequence[Term]) -> bool:
    """Return whether a term learns the labels of rows, rather than what a teacher makes of them."""
    return any(term.unit == "label" or not term.teacher for term in terms)


def with_labels(student: StudentPlan, stages: list[StagePlan]) -> StudentPlan:
    """Give a student the outputs of the task that its stages teach.

    They are those of the teacher whose scores are learned; where only labels are, the classes of the rows.

    Args:
        student: The student.
        stages: The stages that train its head.

    Raises:
        RecipeError: for heads of different tasks, or classes of other names or in another order.
    """
    again = "make two recipes, the second starting from the first's student (initialise.checkpoint)."
    if len({(stage.student_head, len(_classes_of(stage))) for stage in stages}) > 1:
        raise RecipeError(
            f"The stages {[stage.spec.title for stage in stages]} train heads for different tasks "
            f"({', '.join(sorted({str(stage.student_head) for stage in stages}))}), but a student has only one; {again}"
        )
    if not stages or stages[0].pairing.task == "text":
        return student
    named = {classes: stage for stage in stages if not are_made_up(classes := _classes_of(stage))}
    if len(named) > 1:
        (first, one), (second, other) = list(named.items())[:2]
        raise RecipeError(
            f"Stage '{one.spec.title}' trains the student's head for the classes {', '.join(first)[:80]}, and stage "
            f"'{other.spec.title}' for {', '.join(second)[:80]}, in this order; choose teachers whose id2label is "
            f"the same, or {again}"
        )
    learned = min(stages, key=lambda stage: (stage.teacher_head is None, are_made_up(_classes_of(stage))))
    teacher, kind, config = learned.teacher, kind_of(learned.student_head), student.config
    taught_by = teacher.config
    config = type(config)(**config.to_dict())
    if learned.teacher_head is not None:
        for name in ("id2label", "label2id", "problem_type"):
            setattr(config, name, getattr(taught_by, name, None))
    else:
        config.id2label = dict(enumerate(_classes_of(learned) or ("LABEL_0", "LABEL_1")))
        config.label2id = {name: number for number, name in config.id2label.items()}
        config.problem_type = taught_by.problem_type if head_of(taught_by) == learned.student_head else None
    if kind.output is not None:
        config.id2label, config.label2id = {0: kind.output}, {kind.output: 0}
    if kind.has_value and teacher.stage is None:
        settings = cross_encoder_settings(teacher.spec.model, taught_by, teacher.spec.revision)
        if settings:
            config.sentence_transformers = settings
    if kind.has_several:  # Pipelines and losses know by it alone that classes do not exclude each other.
        config.problem_type = kind.problem_type
    return replace(student, config=config)


def _classes_of(stage: StagePlan) -> tuple[str, ...]:
    """Return the classes that the rows of a stage are numbered by; none where its task has none."""
    if not isinstance(stage.corpus, LabelledSettings) or not kind_of(stage.student_head).has_classes:
        return ()
    return tuple(stage.corpus.labels)
