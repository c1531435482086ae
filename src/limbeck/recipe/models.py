"""The models of a recipe: the teacher, the student, and what the student starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, ModelWrapValidatorHandler, field_validator, model_validator

from limbeck.core.fields import MOST, Count, Grown, Name, Place, Whole, Width
from limbeck.core.strict import Strict
from limbeck.models.blueprint import WHOLE, depth_alone
from limbeck.models.fit_options import FitOptions
from limbeck.recipe.teacher_targets import TARGET_KEYS, TargetKeys, names_targets
from limbeck.targets.facts import TEACHER_FOLDER

LayerStrategy = Literal["random", "first", "last", "uniform", "ends"]


def _without_needed_model(schema: dict[str, Any]) -> None:
    """Let editors take a teacher without a model: `stored` names one too."""
    schema["required"] = [key for key in schema.get("required", ()) if key != "model"]


class TeacherSpec(TargetKeys):
    """The pretrained model that is distilled."""

    model: Place
    """A local folder, a Hub name, or package:NAME for a model inside a Python package."""
    name: Name | None = None
    """Its name in the model card, such as its Hub name; default: model."""
    revision: Name | None = None
    """Branch, tag or commit of a Hub model."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of the teacher's weights; auto: bfloat16 where training uses it."""
    sharded: bool = Field(
        False,
        description=(
            "Shard its layers over the processes, for a teacher that does not fit on one device; every layer is then "
            "gathered for every batch."
        ),
    )
    classes: dict[Name, Name] | None = Field(
        None,
        description=(
            "Names for the classes of a classifier, such as {LABEL_0: entailment, LABEL_1: neutral}, where its "
            "config.json names them differently from the data; the student is saved with the new names."
        ),
    )
    teaching: dict[str, Any] | None = Field(
        None,
        description=(
            "The registered name of a teaching, which gives the targets in place of the model, with its options: "
            "{name: NAME, ...}. The student then starts from the model and has its tokenizer."
        ),
    )
    stored: Place | None = Field(
        None,
        description=(
            "Folder of the teacher's stored outputs, which `limbeck teach` makes: no teacher is loaded. Its tokenizer "
            "and configuration are in the folder, so that model is only needed with missing: compute."
        ),
    )
    missing: Literal["refuse", "compute"] | None = Field(
        None,
        description=(
            "Texts that the stored outputs lack: refuse the run, or compute them with model, which has to be the "
            "teacher of the stored outputs, and store them too; default: refuse."
        ),
    )
    cache: bool | None = Field(
        None,
        description=(
            "Store what the teacher says in limbeck's cache, and read it from there where a text comes again, in a "
            "later epoch or another run; for methods on sentence vectors and scores. Default: false."
        ),
    )
    added = frozenset({"classes", "teaching", "stored", "missing", "cache", *TARGET_KEYS})
    """Keys that came after the first release; a document has them only where they are given."""

    model_config = ConfigDict(json_schema_extra=_without_needed_model)

    @property
    def has_files(self) -> bool:
        """Whether the teacher has a configuration and a tokenizer; one whose outputs are stored need not have any."""
        if self.targets is not None:
            return False
        needs_model = self.stored is None or self.missing == "compute"
        # Otherwise `model` is the folder of the teacher's files in the store, which a teacher without files lacks.
        return needs_model or Path(self.model).expanduser().is_dir()

    @property
    def remembers(self) -> bool:
        """Whether a model teaches whose outputs are stored as it is asked."""
        return bool(self.cache) or self.missing == "compute"

    @model_validator(mode="before")
    @classmethod
    def _files_of_store(cls, value: Any) -> Any:
        """Complete the model of a teacher with stored outputs: the folder of the teacher's files in the store."""
        is_stored = isinstance(value, Mapping) and isinstance(value.get("stored"), str)
        if not is_stored:
            return value
        if value.get("missing") == "compute":
            if not value.get("model"):
                raise ValueError(
                    "'missing: compute' runs the teacher, whose weights are not in the store: give 'model' too"
                )
            return value
        # A store has the files of its teacher that the plan of a run reads: all but the weights. The recipe that a run
        # has saved names their folder, perhaps at a place where the store was before; then the present place counts.
        model = value.get("model")
        if not model or Path(str(model)).name == TEACHER_FOLDER:
            return {**value, "model": str(Path(value["stored"]) / TEACHER_FOLDER)}
        raise ValueError(
            "a teacher with 'stored' outputs is not loaded, so 'model' has no effect: leave 'model' out, or set "
            "'missing: compute'"
        )

    @model_validator(mode="before")
    @classmethod
    def _file_stands_for_the_model(cls, value: Any) -> Any:
        """Complete the model of a teacher that is a file of texts and targets: the file itself."""
        is_file = isinstance(value, Mapping) and isinstance(value.get("targets"), str)
        if not is_file:
            return value
        # Every teacher needs the name of a model, and a recipe that a run has saved names its file here. Where such a
        # recipe gets another file by an override, the name of the earlier file gives way too.
        model = value.get("model")
        if not model or model == value["targets"] or names_targets(str(model)):
            return {**value, "model": value["targets"]}
        raise ValueError(
            "a teacher given as 'targets' (a file) has no model: leave 'model' out or, to start the student from "
            "that model, name it as student.initialise.from"
        )

    @model_validator(mode="after")
    def _file_takes_the_place_of_the_model(self) -> Self:
        """Refuse keys of a model beside a file of targets."""
        if self.targets is None:
            return self
        for key in ("stored", "teaching", "missing", "cache", "classes", "revision"):
            if getattr(self, key):
                raise ValueError(
                    f"'{key}' applies only to a teacher that is a model, but 'targets' names a file: leave '{key}' out"
                )
        return self

    @model_validator(mode="after")
    def _store_has_one_meaning(self) -> Self:
        """Refuse keys that contradict the folder of stored outputs, or that need one."""
        if self.stored is not None and self.teaching is not None:
            raise ValueError("'stored' and 'teaching' both take the place of the model: give only one of them")
        if self.stored is not None and self.cache:
            raise ValueError(
                "'cache' stores outputs in limbeck's own cache, beside which 'stored' has no meaning: to store in "
                "a folder of yours, leave 'cache' out and set 'missing: compute'"
            )
        if self.missing is not None and self.stored is None:
            raise ValueError("'missing' applies only to stored outputs: give 'stored' too, or leave 'missing' out")
        return self

    @model_validator(mode="after")
    def _named_teaching(self) -> Self:
        """Refuse a teaching without a name."""
        if self.teaching is not None and not isinstance(self.teaching.get("name"), str):
            raise ValueError("'teaching' has no name: give {name: NAME} and the options of the teaching with that name")
        return self


class MemberSpec(TeacherSpec):
    """One of several teachers."""

    weight: float = Field(1.0, gt=0, le=MOST)
    """Weight of the teacher; a teacher of weight 2 counts twice as much as one of weight 1."""


class CombineSpec(Strict):
    """How several teachers say one thing of a text."""

    vectors: Literal["concatenated", "averaged"] = Field(
        "concatenated",
        description=(
            "Sentence vectors: concatenated and projected onto the principal directions of the text, or averaged after "
            "all were turned into the space of the first teacher."
        ),
    )
    width: Width | None = Field(
        None, description="Width of the projected vectors; default: that of the first teacher's vectors."
    )
    scores: Literal["probabilities", "logits"] | None = Field(
        None,
        description=(
            "Scores of texts or pairs: the mean of the probabilities of their classes, or of the scores themselves. "
            "Default: probabilities for classification, where they sum to 1, else logits."
        ),
    )

    @model_validator(mode="after")
    def _width_is_of_a_projection(self) -> Self:
        """Refuse a width for averaged vectors, whose width is given."""
        if self.width is not None and self.vectors == "averaged":
            raise ValueError("'vectors: averaged' has the width of the first teacher's vectors: leave 'width' out")
        return self


def model_alone(value: Any) -> Any:
    """Return the keys of a teacher that is given by its name alone; for validators."""
    if isinstance(value, str):
        return {"model": value}
    return value


Member: TypeAlias = Annotated[MemberSpec, BeforeValidator(model_alone, json_schema_input_type=MemberSpec | str)]
"""One of several teachers, or only its name."""

Teacher: TypeAlias = Annotated[TeacherSpec, BeforeValidator(model_alone, json_schema_input_type=TeacherSpec | str)]
"""A teacher, or only its name."""


class StageTeacherSpec(TeacherSpec):
    """The teacher of one stage: another model, or the student of an earlier stage (a teacher assistant)."""

    model: str = ""
    """As teacher.model of the recipe; leave it out to name a stage."""
    stage: str | None = None
    """Name of an earlier stage whose student teaches here."""

    @model_validator(mode="after")
    def _one_of_the_two(self) -> StageTeacherSpec:
        """Refuse a teacher that is both a model and the student of a stage, or neither."""
        has_model = bool(self.model)
        has_stage = self.stage is not None
        if has_model == has_stage:
            raise ValueError("give exactly one of 'model' (a folder or a name) and 'stage' (an earlier stage)")
        if self.stage is not None and self.classes:
            raise ValueError(
                "'classes' renames the classes of a saved model, but 'stage' names an earlier stage: leave "
                "'classes' out"
            )
        return self


class InitialiseSpec(Grown):
    """What the student starts from."""

    layers: LayerStrategy | list[Whole] = "random"
    """random, or the teacher's layers to copy: first, last, uniform, ends, or a list such as [1, 3, 6]."""
    embeddings: Literal["auto", "copied", "projected", "averaged", "random"] = Field(
        "auto",
        description=(
            "The teacher's embeddings: copied, or projected onto their principal directions when narrower. averaged is "
            "for a trained vocabulary: a token's row is the mean of the rows of the pieces that the teacher's "
            "tokenizer cuts it into. auto takes what the widths and the vocabulary allow."
        ),
    )
    narrow_by: Literal["weights", "activations"] | None = None
    """What narrows copied layers: the teacher's weights, or its activations on random tokens; default: weights."""
    checkpoint: Place | None = None
    """An earlier student of the same shape to start from."""
    steps: dict[str, dict[str, Any]] | None = None
    """Further steps of the start, such as a plugin's, by name with their options; default: none."""
    fit: FitOptions | None = None
    """A fit of the copied layers to the teacher on the run's text, before training; default: none."""
    from_: Place | None = Field(
        None,
        alias="from",
        description=(
            "Another model than the teacher, whose layers and embeddings the student starts from and whose tokenizer "
            "it has; default: the teacher."
        ),
    )
    added = frozenset({"narrow_by", "steps", "from", "fit"})
    """Keys that came after the first release; a document has them only where they are given."""

    model_config = ConfigDict(serialize_by_alias=True)

    @model_validator(mode="after")
    def _fits_copied_layers(self) -> Self:
        """Refuse a fit of layers that are not copied, and a fit that is given twice."""
        if self.fit is None:
            return self
        if self.checkpoint is not None:
            raise ValueError(
                "'fit' changes layers copied from the teacher, but 'checkpoint' brings its own: leave one of the "
                "two out"
            )
        # The keys of `steps` are names of steps, and a fit is one of them.
        if self.steps and "fit" in self.steps:
            raise ValueError("'fit' is given twice, also in 'steps': leave it out of 'steps'")
        return self


class ShapeSpec(Strict):
    """A student's shape, every field by name."""

    layers: int = Field(ge=1, le=1000)
    """Number of Transformer blocks."""
    hidden: Width
    """Width of the hidden states."""
    heads: Width | None = None
    """Attention heads; default: 12 where that divides hidden, else hidden/64."""
    ffn: int | None = Field(None, ge=1, le=4 * 65536)
    """Width of the feed-forward layer; default: 4 x hidden."""
    embedding: Width | None = None
    """Width of factorised embeddings; default: hidden."""


class VocabularySpec(Grown):
    """The vocabulary of a student that does not read its source's tokens."""

    train: int | None = Field(None, ge=32, le=1_000_000)
    """Number of WordPieces that are trained on the text of the student's first stage, special tokens among them."""
    pieces: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description=(
            "Number of pieces that stay of the vocabulary of the model that the student starts from, with their rows "
            "of the embeddings: those that always stay, and those that the text uses most."
        ),
    )
    coverage: float | None = Field(
        None,
        gt=0,
        le=1,
        description=(
            "In place of pieces: the share of the text's tokens whose pieces stay, such as 0.9995. How many these are "
            "is known once the text is read."
        ),
    )
    count: list[Place] | None = None
    """Sources of the text on which pieces are counted; default: the text of the student's first stage."""
    always: Place | None = None
    """File of words, one a line, whose pieces stay however rare they are."""
    other_texts: Literal["skip", "keep"] | None = Field(
        None,
        description=(
            "Texts that the teacher would cut into pieces which the student lacks, for methods on tokens or layers. "
            "skip leaves them out of the stage; keep has the teacher read them in the student's pieces too, as a "
            "teacher whose vocabulary is trimmed. Methods on whole texts read all texts, each model in its own "
            "pieces. Default: skip."
        ),
    )
    added = frozenset({"train", "pieces", "coverage", "count", "always", "other_texts"})
    """Keys that came after the first release; a document has them only where they are given."""

    @field_validator("count", mode="before")
    @classmethod
    def _one_source_is_a_list(cls, value: Any) -> Any:
        """Take one source for a list of one."""
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_trained_or_cut(self) -> Self:
        """Refuse a vocabulary without exactly one size, and keys for kept pieces beside a trained vocabulary."""
        sizes = [size for size in (self.train, self.pieces, self.coverage) if size is not None]
        if len(sizes) != 1:
            raise ValueError(
                "give exactly one of 'train' (a number of new WordPieces), 'pieces' (a number of pieces to keep) "
                "and 'coverage' (the share of the text's tokens whose pieces are kept)"
            )
        if self.count == []:
            raise ValueError(
                "'count' names no source of text: name one, or leave 'count' out to count pieces in the text of "
                "the student's first stage"
            )
        if self.train is not None and (self.count or self.always or self.other_texts):
            raise ValueError(
                "'count', 'always' and 'other_texts' apply only where pieces are kept, but 'train' makes new "
                "ones: leave these keys out, or give 'pieces' in place of 'train'"
            )
        return self

    @property
    def keeps_pieces(self) -> bool:
        """Whether it is a part of another vocabulary, and not a trained one."""
        return self.train is None


def shape_alone(value: Any) -> Any:
    """Return the keys of a student that is given by its shape alone; for validators."""
    has_fields_of_shape = isinstance(value, Mapping) and "layers" in value and "shape" not in value
    if has_fields_of_shape or isinstance(value, int | str):
        return {"shape": value}
    return value


def names_start(student: Mapping[str, Any]) -> bool:
    """Whether a student says what its layers start from."""
    start = student.get("initialise")
    if not isinstance(start, Mapping):
        return False
    return "layers" in start or "checkpoint" in start


def _without_needed_shape(schema: dict[str, Any]) -> None:
    """Let editors take a student without a shape: a model that it starts from has one too."""
    schema["required"] = [key for key in schema.get("required", ()) if key != "shape"]


class StudentSpec(Grown):
    """The model that is made; in place of all this its shape may stand."""

    shape: Count | str | ShapeSpec = Field(
        description=(
            '"layers x hidden" such as "6x384", a preset, or every field by name. A number alone stands for that many '
            "of the teacher's layers, with its widths and heads; the student then starts from initialise.layers: ends, "
            "unless another start is given. Beside initialise.from it may be left out: the student then has the "
            "layers of initialise.layers, or all layers of that model."
        ),
    )
    initialise: InitialiseSpec = Field(default_factory=InitialiseSpec)
    """What the student starts from."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout while distilling; default: the teacher's. The saved student always has the teacher's."""
    untrained: Literal["random", "teacher"] = Field(
        "random",
        description=(
            "What the saved student holds in parameters that no stage trains and in embedding rows that no batch "
            "reads: their start, or the teacher's values where shapes allow."
        ),
    )

    vocabulary: VocabularySpec | None = Field(
        None,
        description=(
            "A vocabulary of the student's own: {train: 16000} trains WordPieces on its text, and {pieces: 16000} "
            "keeps the pieces that it uses of the model that the student starts from. Where WordPieces are trained, "
            "teacher and student read the same text by different tokens, which methods on sentence vectors or scores "
            "allow. Default: the tokenizer of the model that the student starts from."
        ),
    )
    added = frozenset({"vocabulary"})
    """Keys that came after the first release; a document has them only where they are given."""

    model_config = ConfigDict(json_schema_extra=_without_needed_shape)

    @model_validator(mode="wrap")
    @classmethod
    def _a_depth_starts_from_layers(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Complete a student whose shape is a depth alone, or that of a whole model: it copies layers of its source."""
        keys = shape_alone(value)
        if not isinstance(keys, Mapping):
            return validate(keys)
        shape = keys.get("shape")
        if shape is None:
            shape = _shape_of_start(keys)
        # A *depth* is a number of layers alone; it may be given as text.
        depth = depth_alone(shape)
        if depth is not None:
            shape = depth
        takes_sizes_of_source = depth is not None or shape == WHOLE
        if not takes_sizes_of_source:
            return validate(keys)
        # Such a student copies layers of its source, unless the start says otherwise.
        start = keys.get("initialise", {})
        if isinstance(start, Mapping) and not names_start(keys):
            start = {**start, "layers": "ends"}
        return validate({**keys, "shape": shape, "initialise": start})


def _shape_of_start(student: Mapping[str, Any]) -> int | str | None:
    """Return the shape of a student that gives none: the layers that it copies from the model of `initialise.from`.

    None where it names no such model: the shape is then missing.
    """
    start = student.get("initialise")
    if not isinstance(start, Mapping) or not start.get("from"):
        return None
    layers = start.get("layers")
    if isinstance(layers, list):
        return len(layers)
    return WHOLE


Student: TypeAlias = Annotated[
    StudentSpec, BeforeValidator(shape_alone, json_schema_input_type=StudentSpec | int | str)
]
"""A student, or only its shape."""
