"""A recipe's models, known from their configurations before any weight is loaded.

A teacher is a model in a folder or on the Hub, the student of an earlier stage of the same run (which has no files
before the run), or a *teaching*: code that is registered by name and teaches in place of a model. Stored outputs may be
of a teacher of which nothing else is known, such as a model behind an endpoint: it has no configuration and no
tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from transformers import BertConfig, PreTrainedConfig

from limbeck.corpus.sources.named_sources import check_source
from limbeck.errors import RecipeError
from limbeck.evaluation.evaluators.head_match import names_of_classes, rename_classes
from limbeck.methods.teaching import Teaching, make_teaching
from limbeck.models.blueprint import StudentBlueprint, names_layers, parse_blueprint
from limbeck.models.families import Shape, segment_count, shape_of
from limbeck.models.layer_selection import selected_layers
from limbeck.models.loading import load_config
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling, pooling_with_prompts
from limbeck.models.start import check_start, source_shape
from limbeck.models.start_checkpoint import same_tensors
from limbeck.models.start_embeddings import embedding_mode
from limbeck.models.start_pieces import PIECES
from limbeck.models.start_step import StartSettings
from limbeck.models.students import student_config
from limbeck.models.teaching_facts import TeachingFacts
from limbeck.models.weight_files import check_not_pickled
from limbeck.models.wordpieces import set_special_ids
from limbeck.recipe.models import InitialiseSpec, ShapeSpec, StudentSpec, TeacherSpec, VocabularySpec
from limbeck.recipe.teacher_targets import TARGET_KEYS
from limbeck.recipe.tokenizer_plans import TokenizerPlan, VocabularyCut, reading_difference
from limbeck.targets.facts import TEACHER_FOLDER, EndpointFacts
from limbeck.targets.file_teaching import FileTeaching
from limbeck.targets.stored_teaching import StoredTeaching
from limbeck.targets.target_file import TargetFile


@dataclass(frozen=True)
class TeacherInfo:
    """What is known of a teacher before its weights are loaded.

    Args:
        spec: The recipe's keys.
        known_config: Its configuration; None for stored outputs of a teacher without files.
        tokenizer: Where its tokenizer comes from; None likewise.
        sentence: How it makes sentence vectors, where its files say so.
        stage: The name of the earlier stage whose student it is; None for a teacher with files.
        teaching: The teaching in place of the model; None where the model teaches.
        combination: How several teachers give the outputs of one; None for one. The other fields are then those of the
            first whose model is known, from which the student starts.
    """

    spec: TeacherSpec
    known_config: PreTrainedConfig | None
    tokenizer: TokenizerPlan | None
    sentence: SentencePooling | None = None
    stage: str | None = None
    teaching: Teaching | None = None
    combination: TeacherCombination | None = None

    @property
    def is_known_model(self) -> bool:
        """Whether its configuration is known; of a teacher without files only its stored outputs are."""
        return self.known_config is not None

    @property
    def config(self) -> PreTrainedConfig:
        """Its configuration.

        Raises:
            RecipeError: for a teacher of which only its outputs are known.
        """
        if self.known_config is None:
            raise RecipeError(
                f"Only the outputs of '{self.title}' are known, not its model, so no term can read its hidden "
                "states, attention or tokens; name another teacher for such terms."
            )
        return self.known_config

    @cached_property
    def shape(self) -> Shape:
        """Its shape; see `config` for the error of a teacher without one."""
        return shape_of(self.config)

    @property
    def description(self) -> str:
        """Its shape in words, or the widths of its outputs where no model is known."""
        if self.known_config is not None:
            return str(self.shape)
        widths = [f"{name} of {width} numbers" for name, width in self.facts.widths.items()]
        return ", ".join(widths)

    @property
    def title(self) -> str:
        """Its name in messages and records."""
        if self.combination is not None:
            return " and ".join(self.combination.names)
        if self.stage is not None:
            return f"the student of stage '{self.stage}'"
        if self.spec.name is None and self.teaching is not None and self.spec.stored is not None:
            return self.teaching.facts.title
        return self.spec.name or self.spec.model

    @property
    def facts(self) -> TeachingFacts:
        """What is known of the teaching before anything is loaded."""
        if self.combination is not None:
            return self.combination.facts(self.title)
        if self.teaching is not None:
            return self.teaching.facts
        # Stored answers of a model are found by the texts of rows.
        reads: Literal["tokens", "rows"] = "rows" if self.spec.remembers else "tokens"
        return TeachingFacts(self.title, self.shape, labels=self.labels, reads=reads)

    @property
    def is_read(self) -> bool:
        """Whether the model itself is run, so that all of its layers can be read."""
        return self.teaching is None and self.combination is None

    @property
    def is_one_model(self) -> bool:
        """Whether it is a single model that can be loaded, to be scored beside its student."""
        return self.has_weights and self.combination is None

    @property
    def members(self) -> tuple[TeacherInfo, ...]:
        """The teachers that it consists of: several, or itself alone."""
        if self.combination is None:
            return (self,)
        return tuple(member.teacher for member in self.combination.members)

    @property
    def endpoint(self) -> EndpointFacts | None:
        """The server that its stored outputs came from; None for any other teacher."""
        if isinstance(self.teaching, StoredTeaching):
            return self.teaching.endpoint
        return None

    @property
    def has_weights(self) -> bool:
        """Whether the model can be loaded; of stored outputs only the teacher's other files are there."""
        return self.spec.stored is None or self.spec.model != str(Path(self.spec.stored) / TEACHER_FOLDER)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of a classifier's classes, in the order of its outputs."""
        if self.known_config is None:
            return self.facts.labels
        return names_of_classes(self.known_config)


@dataclass(frozen=True)
class TeacherMember:
    """One of several teachers.

    Args:
        name: Its name in the recipe.
        weight: How much it counts beside the others.
        teacher: What is known of it.
        classes: For each class of the first teacher, the index of the class of the same name among its own; empty where
            the teachers have no common classes.
    """

    name: str
    weight: float
    teacher: TeacherInfo
    classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class TeacherCombination:
    """How several teachers give the outputs of one.

    Args:
        members: The teachers, in the order of the recipe.
        vectors: How their sentence vectors become one; see `limbeck.models.vector_combination`.
        width: Width of the combined vectors; None where a teacher makes no sentence vectors.
        scores: What the mean of their scores is of; None chooses by the kind of the task.
        labels: Names of the classes in the order of the combined scores.
        layers_from: The name of the teacher whose layers a stage reads; None where it reads none.
    """

    members: tuple[TeacherMember, ...]
    vectors: Literal["concatenated", "averaged"]
    width: int | None
    scores: Literal["probabilities", "logits"] | None
    labels: tuple[str, ...]
    layers_from: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of the teachers."""
        return [member.name for member in self.members]

    @property
    def weights(self) -> list[float]:
        """Their weights."""
        return [member.weight for member in self.members]

    @property
    def of_layers(self) -> TeacherMember | None:
        """The teacher whose layers are read; None where the stage names none."""
        for member in self.members:
            if member.name == self.layers_from:
                return member
        return None

    def facts(self, title: str) -> TeachingFacts:
        """What is known of the combined outputs before anything is loaded.

        Args:
            title: The title of the teachers together.
        """
        widths: dict[str, int] = {}
        # Teachers combine only their finished vectors. Terms on pooled vectors read these too.
        if self.width is not None:
            widths |= {"vector": self.width, "pooled": self.width}
        if all(member.classes for member in self.members):
            widths["logits"] = len(self.members[0].classes)
        # The shape is that of the one teacher whose layers are read; without one no layers can be read.
        shape = None
        if self.of_layers is not None:
            shape = self.of_layers.teacher.shape
        facts_of_members = [member.teacher.facts for member in self.members]
        # As soon as one teacher looks its outputs up by the texts of rows, batches need these.
        reads: Literal["tokens", "rows"] = "tokens"
        if any(facts.reads == "rows" for facts in facts_of_members):
            reads = "rows"
        return TeachingFacts(
            title,
            shape,
            widths=widths,
            hidden_width=self.width or 0,
            labels=self.labels,
            identity=" ".join(facts.identity for facts in facts_of_members if facts.identity),
            reads=reads,
            way_out="name the teacher whose layers it reads as layers_from of the stage, or choose a method on "
            "sentence vectors or on scores of texts",
        )


@dataclass(frozen=True)
class StudentPlan:
    """A student that will be made.

    Args:
        spec: The recipe's keys.
        config: Its configuration, with the teacher's dropout.
        blueprint: Every size that it is made with.
        shape: The sizes that methods compare with the teacher's.
        source_layers: Layers of the source that its blocks are copied from, or None.
        source: The model that it starts from: the teacher, or another one that its start names.
        tokenizer: Where its tokenizer comes from.
    """

    spec: StudentSpec
    config: PreTrainedConfig
    blueprint: StudentBlueprint
    shape: Shape
    source_layers: list[int] | None
    source: TeacherInfo
    tokenizer: TokenizerPlan


def plan_teacher(spec: TeacherSpec) -> TeacherInfo:
    """Read a teacher's configuration, and its files about sentence vectors, as far as it has any.

    Raises:
        ModelError: if there is no configuration, or its only weights are pickles.
        RecipeError: for a key of `teacher.classes` that names none of its classes.
    """
    file = spec.target_file
    if file is not None:
        return _plan_file(spec, file)
    if not spec.has_files:
        return _plan_outputs_alone(spec)
    check_not_pickled(spec.model)
    config = load_config(spec.model, spec.revision)
    if spec.classes:
        config = rename_classes(config, spec.classes, f"teacher.classes of '{spec.name or spec.model}'")
    sentence = sentence_pooling(spec.model, spec.revision)
    teaching = None
    if spec.teaching is not None:
        teaching = make_teaching(spec.teaching)
    elif spec.stored is not None:
        # The store is opened in any case, since a damaged one is refused here. With `missing: compute` the model itself
        # teaches, and the store only keeps its outputs.
        stored = StoredTeaching(spec.stored)
        if not spec.remembers:
            teaching = stored
    # The family is looked up here, so that an unknown one is refused at once.
    shape_of(config)
    return TeacherInfo(spec, config, TokenizerPlan(spec.model, spec.revision), sentence=sentence, teaching=teaching)


def _plan_outputs_alone(spec: TeacherSpec) -> TeacherInfo:
    """Plan a teacher of which nothing is known but its stored outputs, and perhaps the prompts before its texts."""
    stored = StoredTeaching(str(spec.stored))
    sentence = pooling_with_prompts(stored.prompts) if stored.prompts else None
    return TeacherInfo(spec, known_config=None, tokenizer=None, sentence=sentence, teaching=stored)


def _plan_file(spec: TeacherSpec, file: TargetFile) -> TeacherInfo:
    """Read a file of targets; from here on the teacher is the store that the file became."""
    teaching = FileTeaching(file)
    keys = dict.fromkeys(TARGET_KEYS)
    keys |= {"stored": teaching.folder, "model": str(Path(teaching.folder) / TEACHER_FOLDER)}
    return TeacherInfo(spec.model_copy(update=keys), known_config=None, tokenizer=None, teaching=teaching)


def plan_student(spec: StudentSpec, teacher: TeacherInfo) -> StudentPlan:
    """Derive a student from the model that it starts from, and check its start.

    Args:
        spec: The recipe's keys.
        teacher: Its teacher, from which it starts unless it names another model.

    Raises:
        LimbeckError: for a shape, layers or a checkpoint that do not fit, and for a student that names neither a model
            nor a vocabulary where its teacher has no files.
    """
    _check_embeddings_of_own_vocabulary(spec)
    source = teacher
    if spec.initialise.from_ is not None:
        source = plan_teacher(TeacherSpec(model=spec.initialise.from_))
    elif spec.vocabulary is not None and spec.vocabulary.keeps_pieces and not teacher.has_weights:
        raise RecipeError(
            "student.vocabulary keeps pieces of a model that the student starts from, but "
            f"{teacher.facts.title} have no weights; name a model as student.initialise.from."
        )
    elif not teacher.has_weights:
        spec = _with_random_embeddings(spec, teacher)
        if not teacher.is_known_model:
            source = _blank_source(spec, teacher)
    tokenizer = _plan_tokenizer(spec, source)
    if spec.initialise.fit is not None and tokenizer != source.tokenizer:
        raise RecipeError(
            "student.initialise.fit compares student and teacher token by token, but student.vocabulary gives the "
            "student other tokens; leave one of the two out."
        )

    shape_keys = spec.shape
    if isinstance(shape_keys, ShapeSpec):
        blueprint = parse_blueprint(shape_keys.model_dump(exclude_none=True), source.shape)
    else:
        blueprint = parse_blueprint(shape_keys, source.shape)
    source_layers = None
    if spec.initialise.layers != "random":
        source_layers = selected_layers(spec.initialise.layers, blueprint.layers, source.shape.layers)

    # The start may have steps that change the vocabulary, so its size is that of the model they come to.
    settings = start_settings(spec.initialise, cut=tokenizer.cut)
    vocabulary = tokenizer.trained_words or source_shape(source.shape, settings).vocabulary
    config = student_config(blueprint, source.config, source_layers=source_layers, vocabulary=vocabulary)
    if tokenizer.trained_words:
        set_special_ids(config)
    shape = shape_of(config)
    if tokenizer.trained_words:
        spec = _with_averaged_embeddings(spec, shape, source)
        settings = start_settings(spec.initialise)

    # The student of an earlier stage has no tokenizer of its own yet to compare a checkpoint's with.
    checkpoint = spec.initialise.checkpoint
    if checkpoint is None:
        check_start(shape, source.shape, settings)
    elif source.stage is None:
        _check_checkpoint(checkpoint, source, config)
    return StudentPlan(spec, config, blueprint, shape, source_layers, source, tokenizer)


def _check_embeddings_of_own_vocabulary(spec: StudentSpec) -> None:
    """Refuse embeddings of another model for a student whose vocabulary is trained, and averaged ones for others.

    Raises:
        RecipeError: with what to leave out.
    """
    start = spec.initialise
    if spec.vocabulary is None or spec.vocabulary.keeps_pieces:
        if start.embeddings == "averaged":
            raise RecipeError(
                "'student.initialise.embeddings: averaged' applies only to a student with a vocabulary of its "
                "own; leave it out, or give student.vocabulary, such as {train: 16000}."
            )
        return
    own_rows = "student.vocabulary trains tokens of the student's own"
    if start.embeddings in ("copied", "projected"):
        raise RecipeError(
            f"{own_rows}, so its embeddings cannot be {start.embeddings} (student.initialise.embeddings); leave one "
            "of the two out."
        )
    if start.checkpoint is not None:
        raise RecipeError(
            f"{own_rows}, but student.initialise.checkpoint has the vocabulary that it was trained with; to go on "
            "with that vocabulary, leave out student.vocabulary and name the checkpoint as "
            "student.initialise.from."
        )
    if spec.untrained == "teacher":
        raise RecipeError(
            f"{own_rows}, for which the teacher has no values to copy (student.untrained: teacher); leave out "
            "student.vocabulary or student.untrained."
        )


def _with_averaged_embeddings(spec: StudentSpec, shape: Shape, source: TeacherInfo) -> StudentSpec:
    """Return a student with a vocabulary of its own, and with the start of its embeddings chosen.

    Without a choice of the user's they are averaged, or random in a student that is wider than its source.

    Args:
        spec: The student.
        shape: Its shape.
        source: The model that it starts from.
    """
    start = spec.initialise
    if start.embeddings != "auto":
        return spec
    is_wider = embedding_mode("auto", shape, source.shape) == "random"
    embeddings = "random" if is_wider else "averaged"
    return spec.model_copy(update={"initialise": start.model_copy(update={"embeddings": embeddings})})


def _blank_source(spec: StudentSpec, teacher: TeacherInfo) -> TeacherInfo:
    """Return a BERT without weights in place of a teacher without files, for a student with a vocabulary of its own.

    Raises:
        RecipeError: for a student that would need a tokenizer or layers of its teacher.
    """
    way_out = (
        "name a model that it starts from as student.initialise.from, or give student.shape and student.vocabulary, "
        "such as {train: 16000}"
    )
    if spec.vocabulary is None:
        raise RecipeError(
            f"The student gets no tokenizer from '{teacher.title}', of which only outputs are known; {way_out}."
        )
    if isinstance(spec.shape, int | str) and names_layers(spec.shape):
        raise RecipeError(
            f"student.shape {spec.shape} takes layers of the teacher, but only the outputs of '{teacher.title}' "
            f"are known; {way_out}."
        )
    return replace(teacher, known_config=BertConfig())


def _plan_tokenizer(spec: StudentSpec, source: TeacherInfo) -> TokenizerPlan:
    """Return where a student's tokenizer comes from: its own training, or the model that it starts from.

    Raises:
        RecipeError: for a decoder with a vocabulary of its own.
    """
    if spec.vocabulary is None:
        # A teacher without files has been replaced by a model with a tokenizer, or the vocabulary is the student's own.
        assert source.tokenizer is not None
        return source.tokenizer
    if spec.vocabulary.keeps_pieces:
        return _plan_cut(spec.vocabulary, spec, source)
    if source.shape.causal:
        raise RecipeError(
            "student.vocabulary trains WordPieces, which only encoders read, but the student is a "
            f"{source.shape.model_type}; leave student.vocabulary out, or start from an encoder "
            "(student.initialise.from)."
        )
    assert spec.vocabulary.train is not None
    return TokenizerPlan(
        trained_words=spec.vocabulary.train,
        like=source.tokenizer,
        has_segments=segment_count(source.config) > 1,
    )


def _plan_cut(vocabulary: VocabularySpec, spec: StudentSpec, source: TeacherInfo) -> TokenizerPlan:
    """Return the tokenizer of the model that a student starts from, to be cut to some of its pieces.

    Raises:
        RecipeError: for a start whose embeddings are not those of that model, and for more pieces than it has.
    """
    if spec.initialise.checkpoint is not None:
        raise RecipeError(
            "student.vocabulary keeps pieces of the model that the student starts from, but "
            "student.initialise.checkpoint has a vocabulary of its own; name that model as "
            "student.initialise.from instead."
        )
    tokenizer = source.tokenizer
    if tokenizer is None or tokenizer.trained_words or tokenizer.cut is not None:
        raise RecipeError(
            f"student.vocabulary keeps pieces of the vocabulary of {source.title}, which is itself made only in "
            "this run; leave student.vocabulary out, or name a finished model as student.initialise.from."
        )
    if vocabulary.pieces is not None and vocabulary.pieces >= source.shape.vocabulary:
        raise RecipeError(
            f"student.vocabulary.pieces is {vocabulary.pieces:,}, but '{source.title}' has only "
            f"{source.shape.vocabulary:,} pieces; give a smaller number, or leave student.vocabulary out."
        )
    for place in vocabulary.count or ():
        check_source(place, "texts")
    if vocabulary.always is not None and not Path(vocabulary.always).expanduser().is_file():
        raise RecipeError(
            f"student.vocabulary.always '{vocabulary.always}' does not exist; give a text file with one word on "
            "each line."
        )
    cut = VocabularyCut(
        vocabulary.pieces,
        vocabulary.coverage,
        counted=tuple(vocabulary.count or ()),
        always=vocabulary.always or "",
        other_texts=vocabulary.other_texts or "skip",
    )
    return replace(tokenizer, cut=cut)


def _with_random_embeddings(spec: StudentSpec, teacher: TeacherInfo) -> StudentSpec:
    """Return a student whose embeddings start at random as its layers do, for a teacher without weights to copy.

    Raises:
        RecipeError: for a student that is to start from the teacher's layers or embeddings, or is filled with them.
    """
    start = spec.initialise
    way_out = "name a model that the student starts from as student.initialise.from"
    copies_layers = start.layers != "random"
    copies_embeddings = start.embeddings not in ("auto", "random")
    # A student that starts from a checkpoint copies nothing of its teacher, whatever these keys say.
    if start.checkpoint is None and (copies_layers or copies_embeddings):
        raise RecipeError(
            f"The student starts from layers or embeddings of its teacher, but {teacher.facts.title} have no weights; "
            f"{way_out}, or set initialise: {{layers: random, embeddings: random}}."
        )
    if spec.untrained == "teacher":
        raise RecipeError(
            f"'student.untrained: teacher' copies weights, but {teacher.facts.title} have none; leave "
            f"student.untrained out, or {way_out}."
        )
    return spec.model_copy(update={"initialise": start.model_copy(update={"embeddings": "random"})})


def start_settings(
    spec: InitialiseSpec, *, seed: int = 0, cut: VocabularyCut | None = None, piece_ids: Sequence[int] | None = None
) -> StartSettings:
    """Return the options of a start that a recipe asks for.

    Args:
        spec: The recipe's `initialise`, without a checkpoint.
        seed: The run's.
        cut: How the vocabulary of the model that it starts from is cut; None for a whole one.
        piece_ids: The ids of the pieces that stay, once they are known.
    """
    narrow_by = "weights" if spec.narrow_by is None else spec.narrow_by
    steps = dict(spec.steps or {})
    if spec.fit is not None:
        steps["fit"] = spec.fit.model_dump()
    # A cut vocabulary adds a step of its own to those that the recipe names.
    if cut is not None:
        number = cut.pieces if piece_ids is None else len(piece_ids)
        steps[PIECES] = {"number": number, "ids": piece_ids}
    return StartSettings(layers=spec.layers, embeddings=spec.embeddings, narrow_by=narrow_by, seed=seed, steps=steps)


def _check_checkpoint(checkpoint: str, source: TeacherInfo, student: PreTrainedConfig) -> None:
    """Refuse a start without the tensors of the student's shape, or with another vocabulary than the source's."""
    check_not_pickled(checkpoint)
    config = load_config(checkpoint)
    place = f"student.initialise.checkpoint '{checkpoint}'"
    way_out = (
        "name the checkpoint as student.initialise.from and leave out student.shape, so that the student has the "
        "checkpoint's shape and tokenizer"
    )
    if not same_tensors(student, config):
        raise RecipeError(
            f"{place} is a {shape_of(config)}, but student.shape asks for a {shape_of(student)}; change one of them, "
            f"or {way_out}."
        )
    assert source.tokenizer is not None
    difference = reading_difference(TokenizerPlan(checkpoint), source.tokenizer)
    if difference:
        raise RecipeError(f"{place} has another tokenizer than '{source.title}': {difference}; {way_out}.")
