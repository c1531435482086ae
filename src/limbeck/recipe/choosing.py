"""A recipe chosen by what the teacher is: method, start, text and budget, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from limbeck.core.devices import choose_device
from limbeck.core.kinds import KINDS
from limbeck.core.machine import available_cores
from limbeck.core.mistakes import explain
from limbeck.core.paths import RECIPE
from limbeck.core.yaml import parse_yaml
from limbeck.corpus.addresses import is_remote
from limbeck.corpus.file_kinds import suffix_of
from limbeck.corpus.file_sources import find_files
from limbeck.corpus.messages import list_columns
from limbeck.corpus.readers import read_rows
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources import SOURCES, check_source, local_files, source_kind
from limbeck.errors import CorpusError, ModelError, RecipeError
from limbeck.evaluation.tasks import TASKS, find_task, is_own_task
from limbeck.methods.registry import METHODS
from limbeck.models.blueprint import depth_alone, parse_blueprint
from limbeck.models.families import Shape, family_of
from limbeck.models.family_table import families
from limbeck.models.heads import head_of, kind_of_value
from limbeck.models.layer_selection import selected_layers
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentencePooling
from limbeck.recipe.load import read_recipe, read_shipped
from limbeck.recipe.method_recipe import TASK_TRAINING, TEXT_TRAINING, stages_of
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo, plan_student, plan_teacher
from limbeck.recipe.models import StudentSpec, TeacherSpec, model_alone, names_start, shape_alone

MINUTES = 30
"""Of training at most, as far as sizes tell."""
_LEAST_STEPS = 100
# Guesses, for the budget alone: operations a second, bytes of a token in a file, and tokens of a piece of text.
_RATE_OF_CORE, _RATE_OF_ACCELERATOR = 50e9, 30e12
_BYTES_OF_TOKEN = 4.5
_TOKENS_OF_SENTENCE, _TOKENS_OF_BLOCK, _TOKENS_OF_ROW = 22, 100, 50
_PASSES = 3
_QUICKSTART_WIDTH = 384
# Columns of rows as data sets call them; the first line is taken that a file has the columns of.
_TEXTS = (("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"), ("text",), ("sentence",))
_LABELS = (("label",), ("labels",), ("score",))
_DOCUMENTS = (("documents",), ("positive", "negatives"), ("positive", "negative"), ("document",))
_ANSWERS, _WORDS = ("question", "context", "answers"), ("tokens", "tags")
_NEEDED = {
    "question answering": "a question, a context and answers",
    "token classification": "words and their tags",
    "ranking": "a query and its documents",
    "": "a text and its label",
}
_RANKING = {"num_train_epochs": 3, "per_device_train_batch_size": 8, "learning_rate": 5e-5}


class _Choice(NamedTuple):
    """What was chosen: parts of a recipe, and the reason for each key."""

    corpus: dict[str, Any]
    stages: list[dict[str, Any]]
    reasons: dict[str, str]
    dropout: float | None = None


def choose_recipe(
    teacher: str | Path | Mapping[str, Any],
    student: int | str | Mapping[str, Any],
    corpus: str | Path | Sequence[str | Path],
    *,
    output: str | Path | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Choose a recipe by what the teacher is; no weight is read.

    A sentence-embedding model teaches its vectors, a cross-encoder its scores of documents, a model with the head of
    another task its layers and scores on labelled rows, any other encoder the relations of its last layer.

    Args:
        teacher: A folder, `package:NAME` or a Hub name, or a recipe's teacher.
        student: A shape as in recipes, or a recipe's student; a number alone is that many of the teacher's layers.
        corpus: Sources of text; of rows where the teacher has a task's head, or the name of a task.
        output: The run's folder.
        resume: Keep the stages of the run in that folder: budgets follow the machine that they were chosen on.

    Returns:
        A recipe. Its `reasons` say why keys have their values, by their paths.

    Raises:
        LimbeckError: one line for a decoder, a student that does not fit, and text or rows that are missing.
    """
    sources = [str(source) for source in ([corpus] if isinstance(corpus, str | Path) else corpus)]
    if not sources:
        raise RecipeError("corpus is empty: give a file, folder or data set.")
    spec = _teacher(teacher)
    models = _Models.of(spec, student)
    head = head_of(models.teacher.config)
    if models.sentence is None and family_of(models.teacher.config).causal and head not in KINDS:
        raise RecipeError(
            f"The teacher '{models.teacher.title}' is a decoder ({models.teacher.config.model_type}), but recipes are "
            "chosen only for encoders; name a method, or write a recipe (`limbeck recipe --example`)."
        )
    if models.sentence is not None:
        chosen = _for_vectors(models, sources, models.sentence)
    elif head in KINDS:
        chosen = _for_task(models, sources, str(head))
    else:
        chosen = _for_text(models, sources, "an encoder" if head is None else "a masked language model")
    recipe: dict[str, Any] = {
        "name": f"{Path((spec.name or spec.model).rpartition(':')[2]).name}-{models.size}",
        **({} if output is None else {"output": str(output)}),
        "teacher": spec.model_dump(mode="json", exclude_unset=True),
        "student": {
            **models.student.spec.model_dump(mode="json", exclude_unset=True),
            **({} if chosen.dropout is None else {"dropout": chosen.dropout}),
        },
        "corpus": chosen.corpus,
        "stages": chosen.stages,
        "reasons": {**models.reasons, **chosen.reasons},
    }
    saved = Path(output or "").expanduser() / RECIPE
    if output is not None and resume and saved.is_file():
        kept = read_recipe(saved)
        recipe |= {key: kept[key] for key in ("stages", "reasons") if key in kept}
    return recipe


def choose_start(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Let the student of a recipe start as `choose_recipe` would have it, with the reason.

    Args:
        recipe: With a teacher, and a student that says nothing of its start.

    Raises:
        LimbeckError: one line for a teacher that cannot be read, and a student that does not fit.
    """
    models = _Models.of(_teacher(recipe["teacher"]), recipe["student"])
    student = models.student.spec.model_dump(mode="json", exclude_unset=True)
    return {**recipe, "student": student, "reasons": {**(recipe.get("reasons") or {}), **models.reasons}}


@dataclass(frozen=True)
class _Models:
    """A teacher and a student that starts from it as far as it can."""

    teacher: TeacherInfo
    student: StudentPlan
    sentence: SentencePooling | None
    obstacle: str = ""

    @classmethod
    def of(cls, spec: TeacherSpec, student: int | str | Mapping[str, Any]) -> _Models:
        teacher = plan_teacher(spec)
        sentence = sentence_pooling(spec.model, spec.revision)
        if isinstance(student, int | str) and depth_alone(student) is not None:
            parse_blueprint(student, teacher.shape)
        try:
            chosen = plan_student(_student(student, "ends"), teacher)
            # Measured with sentence vectors only (docs/results/embedding.md).
            is_narrower = chosen.shape.hidden < teacher.shape.hidden and bool(chosen.source_layers)
            says_how = isinstance(student, Mapping) and (
                names_start(student) or "narrow_by" in (student.get("initialise") or {})
            )
            if sentence is not None and is_narrower and not says_how:
                chosen = plan_student(_student(student, "ends", narrow_by="activations"), teacher)
            return cls(teacher, chosen, sentence)
        except ModelError as error:
            if isinstance(student, Mapping) and "initialise" in student:
                raise  # It is said what the student starts from.
            return cls(teacher, plan_student(_student(student, "random"), teacher), sentence, str(error))

    @property
    def size(self) -> str:
        return f"{self.student.shape.layers}x{self.student.shape.hidden}"

    @property
    def same_width(self) -> bool:
        return self.student.shape.hidden == self.teacher.shape.hidden

    @property
    def reasons(self) -> dict[str, str]:
        """Why the student starts as it does, and a warning where it is more than its teacher."""
        return {"student": self._start} | ({"student.shape": self._excess} if self._excess else {})

    @property
    def _start(self) -> str:
        own, theirs, sources = self.student.shape, self.teacher.shape, self.student.source_layers
        if (checkpoint := self.student.spec.initialise.checkpoint) is not None:
            return f"starts from '{checkpoint}', an earlier model of its shape"
        if not sources:
            why = f": {self.obstacle[:1].lower()}{self.obstacle[1:].rstrip('.')}" if self.obstacle else ""
            return f"starts at random{why}"
        named = f"layer{'s' * (len(sources) > 1)} {', '.join(map(str, sources))}"
        layers = f"starts from {named} of the teacher's {theirs.layers}"
        if self.same_width:
            return f"{layers}, the start of the quickstart's recipe"
        how = "along principal directions"
        if self.student.spec.initialise.narrow_by == "activations":
            how += " of its hidden states"
        return f"{layers}, cut from {theirs.hidden} to {own.hidden} wide {how}"

    @property
    def _excess(self) -> str:
        """What the student has more of than its teacher; empty where it has not."""
        own, theirs = self.student.shape, self.teacher.shape
        if own.hidden > theirs.hidden:
            return f"wider than its teacher, {own.hidden} against {theirs.hidden}; students are usually smaller"
        if _weights(own) > _weights(theirs):
            return f"larger than its teacher ({own}; the teacher is a {theirs}); students are usually smaller"
        return ""

    @property
    def layer_mapping(self) -> dict[int, int]:
        """The layers below the last, with those that they were copied from."""
        sources = self.student.source_layers or []
        if not sources and self.student.spec.initialise.checkpoint is not None:
            sources = selected_layers("ends", self.student.shape.layers, self.teacher.shape.layers)
        return dict(enumerate(sources[:-1], start=1))


def _teacher(teacher: str | Path | Mapping[str, Any]) -> TeacherSpec:
    given = model_alone(str(teacher) if isinstance(teacher, Path) else teacher)
    try:
        return TeacherSpec.model_validate(given)
    except ValidationError as error:
        raise RecipeError(f"teacher.{explain(error)}".replace("teacher.recipe", "teacher", 1)) from None


def _student(student: int | str | Mapping[str, Any], layers: str, **start: Any) -> StudentSpec:
    """Return a student that starts from these layers, unless it says what it starts from."""
    given: Any = shape_alone(student)
    if isinstance(given, Mapping) and not names_start(given):
        given = {**given, "initialise": {**(given.get("initialise") or {}), "layers": layers, **start}}
    try:
        return StudentSpec.model_validate(given)
    except ValidationError as error:
        raise RecipeError(f"student.{explain(error)}".replace("student.recipe", "student", 1)) from None


def _for_vectors(models: _Models, sources: list[str], said: SentencePooling) -> _Choice:
    """Teach sentence vectors: as the quickstart does where the student has the teacher's width, else through a map."""
    quickstart = parse_yaml(read_shipped("quickstart"), "The quickstart recipe")
    taken = quickstart["stages"][-1]
    what = f"{models.teacher.title} makes sentence vectors ({said})"
    text, training = taken["text"], {k: v for k, v in taken["training"].items() if k != "max_steps"}
    training["learning_rate"] *= min(1.0, _QUICKSTART_WIDTH / models.student.shape.hidden)
    stage: dict[str, Any] = {"name": "vectors"}
    if models.same_width:
        method = {key: value for key, value in taken["method"].items() if key != "pooling"}
        if "layer_mapping" in method:
            method["layer_mapping"] = models.layer_mapping
        why = f"{what}, and the student has the same width, so its own vectors can replace them"
        stage |= {"method": method} | {key: taken[key] for key in ("freeze",) if key in taken}
    else:
        stage["method"] = {"name": "aligned_embedding"}
        why = f"{what} of a width other than the student's, which learns a map to them and keeps it"
    if "augment" in taken and all(source.startswith("installed-") for source in sources):
        stage["augment"] = taken["augment"]
    prompt = f"the teacher's prompt {said.prompt()!r} before each" if said.prompt() else "no prompt, as its files say"
    if said.prompts and not said.prompt():
        prompt = f"no prompt: the role of a source gives the teacher's ({', '.join(said.prompts)})"
    budget, how_long = _budget(models, sources, training["per_device_train_batch_size"] * _TOKENS_OF_SENTENCE, _PASSES)
    stage["training"] = {**budget, **training}
    reasons = {
        "stages.0.method": f"{stage['method']['name']}: {why}",
        "corpus": f"{text['unit']}s, as in the recipe of `limbeck quickstart`; {prompt}",
        "stages.0.training": how_long,
    }
    corpus = {"sources": sources, **text, "length": _length(models, text["length"])}
    return _Choice(corpus, [stage], reasons, quickstart["student"].get("dropout"))


def _for_text(models: _Models, sources: list[str], what: str) -> _Choice:
    """Teach a student that is fine-tuned later."""
    training: dict[str, Any] = {key: value for key, value in TEXT_TRAINING.items() if key != "max_steps"}
    per_step = training["per_device_train_batch_size"] * _TOKENS_OF_BLOCK
    budget, how_long = _budget(models, sources, per_step, _PASSES)
    method, why = "minilmv2", "relations of one layer fit students of any width and number of heads"
    if models.teacher.config.model_type not in families:
        method, why = (
            "hidden_states",
            "of a family that limbeck examines when loading it, so its hidden states can be relied on, its "
            "relations cannot",
        )
    reasons = {
        "stages.0.method": f"{method}: {models.teacher.title} is {what}, and {why}; the student is for fine-tuning",
        "stages.0.training": how_long,
    }
    corpus = {"sources": sources, "unit": "document", "length": _length(models, 128)}
    return _Choice(corpus, [{"method": {"name": method}, "training": {**budget, **training}}], reasons)


def _for_task(models: _Models, sources: list[str], head: str) -> _Choice:
    """Teach a task on its rows."""
    title, corpus = models.teacher.title, _rows(models, sources, head)
    kind = find_task(corpus["task"]).kind if isinstance(corpus["task"], str) else corpus["task"]["kind"]
    training: dict[str, Any] = TASK_TRAINING | (_RANKING if kind == "ranking" else {})
    passes, batch = training["num_train_epochs"], training["per_device_train_batch_size"]
    methods = stages_of(METHODS["reranker" if kind == "ranking" else "mlkd_bert"])
    budget, how_long = _budget(models, sources, batch * _TOKENS_OF_ROW, passes, stages=len(methods), of_rows=True)
    if kind == "ranking":
        methods[0]["loss"] = "margin_mse"
        why = f"reranker: {title} is a cross-encoder, whose scores put the documents of a query in order"
        corpus["length"] = _length(models, 256)
    else:
        why = (
            f"mlkd_bert, its layers and then its scores: {title} does {kind.replace('_', ' ')}, and the student may "
            "have any number of heads"
        )
        corpus["length"] = _length(models, 384 if KINDS[kind].has_answers else 128)
    training = budget | {key: value for key, value in training.items() if key != "num_train_epochs"}
    reasons = {
        "corpus.task": f"{kind.replace('_', ' ')}, by the teacher's head and the columns of the rows",
        "stages.0.method": why,
        "stages.0.training": how_long,
    }
    stages: list[dict[str, Any]] = [{"method": method, "training": dict(training)} for method in methods]
    if len(stages) > 1:
        stages = [{"name": f"stage-{number}", **stage} for number, stage in enumerate(stages, start=1)]
    return _Choice(corpus, stages, reasons)


def _rows(models: _Models, sources: list[str], head: str) -> dict[str, Any]:
    """Return a corpus of rows, whose columns are found by their names in the first file."""
    teacher = models.teacher
    if len(sources) == 1 and (sources[0] in TASKS or is_own_task(sources[0])):
        return {"task": sources[0]}
    where, columns = _first_columns(sources, of_words=KINDS[head].of_words)
    # Most rerankers do not say that they are; their rows do.
    said = kind_of_value(teacher.config) if KINDS[head].has_value else head
    if columns is None:
        return {"sources": sources, "task": {"kind": said or "ranking"}}

    def first(choices: Sequence[Sequence[str]]) -> list[str]:
        return next((list(names) for names in choices if set(names) <= columns), [])

    documents = first(_DOCUMENTS) if "query" in columns else []
    if said in (None, "ranking"):
        if documents:
            return {"sources": sources, "task": {"kind": "ranking", "document_columns": documents}}
    elif KINDS[head].of_tokens and first((_ANSWERS, _WORDS)):
        return {"sources": sources, "task": {"kind": head}}
    if said != "ranking" and not KINDS[head].of_tokens and (label := first(_LABELS)) and (texts := first(_TEXTS)):
        pair = {"pair_column": texts[1]} if len(texts) > 1 else {}
        return {"sources": sources, "text_column": texts[0], "task": {"kind": head, "label_column": label[0], **pair}}
    kind = (said or "ranking").replace("_", " ")
    raise RecipeError(
        f"The teacher '{teacher.title}' does {kind}, which is taught on rows of {_NEEDED.get(kind, _NEEDED[''])}, and "
        f"{where} has {list_columns(columns)}; give such rows or the name of a task, or write a recipe that names the "
        "columns (`limbeck recipe --example task`)."
    )


def _first_columns(sources: list[str], *, of_words: bool) -> tuple[str, set[str] | None]:
    """Return where the first row is and its columns; None where reading would take a network or a whole file."""
    for source in sources:
        check_source(source)
    try:
        files = local_files(sources)
    except CorpusError:
        return f"'{sources[0]}'", set()  # It has files, and none of labelled rows.
    for file in files:
        if suffix_of(file) != ".json":
            row = next(iter(read_rows(file, SourceReport(), of_words=of_words)), None)
            return f"'{file}'", set(map(str, row.values)) if row is not None else set()
    return "", None


def _length(models: _Models, wanted: int) -> int:
    """Return a length that both models have positions for."""
    return min([wanted, *(n for n in (models.teacher.shape.positions, models.student.shape.positions) if n)])


def _budget(
    models: _Models, sources: list[str], per_step: int, passes: int, *, stages: int = 1, of_rows: bool = False
) -> tuple[dict[str, int], str]:
    """Choose how long each stage trains: passes through the text, or steps for the minutes where it has more.

    Args:
        models: Teacher and student.
        sources: The text.
        per_step: Its tokens in a step, about.
        passes: Most passes of a stage.
        stages: Stages that share the minutes.
        of_rows: Whether the sources have labelled rows.

    Returns:
        Arguments of a training, and how they came about.
    """
    rate, machine = _machine()
    a_token = 2 * _weights(models.teacher.shape) + 6 * _weights(models.student.shape)  # Backward is twice forward.
    affordable = MINUTES * 60 * rate / a_token / stages
    tokens, size = _tokens(sources, of_rows=of_rows)
    if tokens is not None and tokens * passes <= max(affordable, _LEAST_STEPS * per_step):
        budget, read = {"num_train_epochs": passes}, tokens * passes
        said = f"{passes} passes through {size}"
    else:
        steps = max(_LEAST_STEPS, int(affordable / per_step))
        budget, read = {"max_steps": steps}, steps * per_step
        said = f"{steps:,} steps through {size}"
    minutes = -(-read * a_token * stages // (rate * 60))
    said += f", in each of {stages} stages" if stages > 1 else ""
    limit = f"{MINUTES} minutes{'' if minutes <= MINUTES else f' or {_LEAST_STEPS} steps'}"
    said += f", about {minutes:,.0f} minute{'s' * (minutes > 1)} on {machine}, estimated from sizes, not measured"
    return budget, f"{said}; the limit is {limit}, and more steps make better students"


def _machine() -> tuple[float, str]:
    """Return the operations a second of this machine, as a guess, and its name."""
    device, cores = choose_device("auto").type, available_cores()
    if device != "cpu":
        return _RATE_OF_ACCELERATOR, f"one {device} device"
    return cores * _RATE_OF_CORE, f"{cores} core{'s' if cores > 1 else ''}"


def _weights(shape: Shape) -> int:
    """Return about how many weights the blocks of a model have, biases and norms left out."""
    return shape.layers * (4 * shape.hidden**2 + 2 * shape.hidden * shape.ffn)


def _tokens(sources: list[str], *, of_rows: bool) -> tuple[float | None, str]:
    """Return about how many tokens sources have, None where it is not known, and how much text that is, in words."""
    size = 0
    for source in sources:
        found = None
        named = of_rows and (source in TASKS or is_own_task(source))
        if source_kind(source) is SOURCES["files"] and not is_remote(source) and not named:
            found = find_files(source).stored_size() if of_rows else find_files(source, "text").size()
        if found is None:
            return None, "text of unknown size"
        size += found
    return size / _BYTES_OF_TOKEN, f"{size / 1e6:,.3g} MB of text"
