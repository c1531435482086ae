"""The models of a chosen recipe: a teacher, and a student that starts from the teacher's layers where it can.

A student *starts* from layers that it copies from its teacher, from a checkpoint, or from random weights. Copied layers
of a wider teacher are *narrowed*: projected onto fewer dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limbeck.core import records
from limbeck.core.paths import run_of_student
from limbeck.errors import LimbeckError, ModelError
from limbeck.models.blueprint import depth_alone, parse_blueprint
from limbeck.models.families import Shape
from limbeck.models.fit_options import FitOptions
from limbeck.models.layer_selection import selected_layers
from limbeck.models.sentences import SentencePooling
from limbeck.recipe.mistakes import error_of_part
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo, plan_student, plan_teacher
from limbeck.recipe.models import StudentSpec, TeacherSpec, names_start, shape_alone
from limbeck.recipe.tokenizer_plans import read_alike

_TRAINED_TOKENS_PER_FITTED = 10
"""The fit of an untrained start reads one token for so many of a long training, so that it costs little beside it."""
_MOST_FITTED_TOKENS = 100_000
"""Most tokens that the fit of an untrained start reads, as many as a fit reads by default."""
_FITTED_TOKENS_PER_INPUT = 5
"""Tokens that a fit needs for each input of an output map. A fit to about one for each input learns the noise of its
text, and makes the student worse on other text."""


@dataclass(frozen=True)
class ChosenModels:
    """The teacher and the student of a chosen recipe.

    Args:
        teacher: The teacher.
        student: The student.
        obstacle: The reason why the student starts at random, where it cannot start from its teacher.
    """

    teacher: TeacherInfo
    student: StudentPlan
    obstacle: str = ""

    @property
    def sentence(self) -> SentencePooling | None:
        """How the teacher makes sentence vectors, where its files say so."""
        return self.teacher.sentence

    @property
    def size(self) -> str:
        """The student's depth and width, such as `3x384`."""
        return f"{self.student.shape.layers}x{self.student.shape.hidden}"

    @property
    def have_same_width(self) -> bool:
        """Whether the student is as wide as its teacher."""
        return self.student.shape.hidden == self.teacher.shape.hidden

    @cached_property
    def read_alike(self) -> bool:
        """Whether student and teacher read the same tokens."""
        return self.teacher.tokenizer is not None and read_alike(self.student.tokenizer, self.teacher.tokenizer)

    @property
    def reasons(self) -> dict[str, str]:
        """The reason for the student's start, and a warning where it exceeds its teacher, by keys of a recipe."""
        reasons = {"student": self._reason_of_start()}
        excess = self._excess()
        if excess:
            reasons["student.shape"] = excess
        return reasons

    @property
    def layer_mapping(self) -> dict[int, int]:
        """The student's layers below the last, counted from 1, with the teacher's layers that they were copied from."""
        sources = self.student.source_layers or []
        # A checkpoint does not say which layers it started from. It is taken for an earlier student that was chosen in
        # the same way, and so started from layers at the ends.
        if not sources and self.student.spec.initialise.checkpoint is not None:
            sources = selected_layers("ends", self.student.shape.layers, self.teacher.shape.layers)
        return dict(enumerate(sources[:-1], start=1))

    def with_fit(self) -> ChosenModels:
        """The same models, with copied layers of the student fitted to the teacher where they can be."""
        if self.student.spec.initialise.fit is not None:
            return self
        # A student with all layers of its teacher gives what the teacher gives, and there is nothing to fit.
        all_layers = list(range(1, self.teacher.shape.layers + 1))
        if self.have_same_width and self.student.source_layers == all_layers:
            return self
        return replace(self, student=with_fit(self.student, FitOptions()))

    def fit_length(self, length: int) -> int:
        """Return a length in tokens, or the number of positions of a model that has fewer."""
        for shape in (self.teacher.shape, self.student.shape):
            if shape.positions:
                length = min(length, shape.positions)
        return length

    def _reason_of_start(self) -> str:
        """The reason for the student's start, with the layers that it copies."""
        start = self.student.spec.initialise
        sources = self.student.source_layers
        if start.checkpoint is not None:
            return f"starts from '{start.checkpoint}', an earlier model of its shape"
        if not sources and not self.obstacle:
            return "starts at random"
        if not sources:
            # The message of an error becomes the end of a sentence: a small first letter, and no period.
            obstacle = self.obstacle[:1].lower() + self.obstacle[1:].rstrip(".")
            return f"starts at random: {obstacle}"

        noun = "layer" if len(sources) == 1 else "layers"
        source = self.student.source
        numbers = ", ".join(map(str, sources))
        layers = f"{noun} {numbers} of the teacher's {source.shape.layers}"
        if start.from_ is not None:
            layers = f"{noun} {numbers} of the {source.shape.layers} of '{start.from_}'"
        if start.fit is not None:
            return f"starts from {layers}, fitted to the teacher in closed form, since nothing is trained"
        if self.student.shape.hidden == source.shape.hidden:
            if start.from_ is not None or start.layers != "ends":
                return f"starts from {layers}"
            return f"starts from {layers}, spread from the first to the last as in the quickstart's recipe"
        # Layers of a wider model are cut to the student's width.
        how = "along principal directions"
        if start.narrow_by == "activations":
            how += " of its hidden states"
        return f"starts from {layers}, cut from {source.shape.hidden} to {self.student.shape.hidden} wide {how}"

    def _excess(self) -> str:
        """A warning about a student that is wider or larger than its teacher; empty for any other."""
        if not self.teacher.is_known_model:
            return ""
        student = self.student.shape
        teacher = self.teacher.shape
        if student.hidden > teacher.hidden:
            return f"wider than its teacher, {student.hidden} against {teacher.hidden}; students are usually smaller"
        if count_weights(student) > count_weights(teacher):
            return f"larger than its teacher ({student}; the teacher is a {teacher}); students are usually smaller"
        return ""


def choose_models(spec: TeacherSpec, student: int | str | Mapping[str, Any]) -> ChosenModels:
    """Plan a student that starts from its teacher's layers, or at random where it cannot.

    Args:
        spec: The teacher.
        student: A shape, or a recipe's student; a start that it names stays.

    Raises:
        LimbeckError: one line for a teacher that cannot be read, and a student that does not fit.
    """
    teacher = plan_teacher(spec)
    # A number of layers alone is read for its error: more layers than the teacher has are a mistake, and no reason to
    # start at random.
    if isinstance(student, int | str) and depth_alone(student) is not None:
        parse_blueprint(student, teacher.shape)
    try:
        plan = plan_student(_student_spec(student, layers="ends"), teacher)
        # Of a wider teacher the layers are cut by its activations on text, where this was found to help.
        if _is_narrowed_by_activations(teacher, plan, student):
            plan = plan_student(_student_spec(student, layers="ends", narrow_by="activations"), teacher)
        return ChosenModels(teacher, plan)
    except ModelError as error:
        # A student that cannot start from layers starts at random, unless the user has said where it starts.
        has_own_start = isinstance(student, Mapping) and "initialise" in student
        if has_own_start:
            raise
        plan = plan_student(_student_spec(student, layers="random"), teacher)
        return ChosenModels(teacher, plan, obstacle=str(error))


def untrained_plans(student: StudentPlan, *, trained_tokens: int) -> list[StudentPlan]:
    """Return the plans of the untrained students that a trained one is compared with: figure by figure the better one.

    They have the student's shape, and the starts that this shape has without training. So the comparison shows what
    the training has added to the start:

    - A student that starts from a checkpoint, or from a whole model, is compared with this model.
    - A student that starts from layers of a model is compared with these layers, and one that starts at random with
      layers of its teacher, if its shape allows. Where the training read as many tokens as a fit needs, the same
      layers follow, fitted to the teacher: a fit may raise one figure and lower another.
    - A student that was fitted before its training is compared with the fitted layers.
    - A student that was fitted and not trained is compared with its layers before the fit.

    Args:
        student: The student's own plan.
        trained_tokens: Tokens that its training read; 0 where nothing was trained.
    """
    start = student.spec.initialise
    if _whole_model(student) is not None:
        return [student]
    if start.fit is not None:
        # The comparison shows what the training has changed, or what the fit has where nothing was trained.
        if trained_tokens > 0:
            return [student]
        return [_with_start(student, fit=None)]

    copied = student
    if start.layers == "random":
        # `ends` copies layers of the bottom and the top of the teacher, as in a recipe that names no start.
        copied = _with_start(student, layers="ends", embeddings="auto")
    # A fit that reads more text than the training would not be worth its time.
    if trained_tokens < _needed_tokens(copied):
        return [copied]
    share_of_training = min(trained_tokens // _TRAINED_TOKENS_PER_FITTED, _MOST_FITTED_TOKENS)
    fitted = with_fit(copied, FitOptions(tokens=max(share_of_training, _needed_tokens(copied))))
    # Layers of some kinds cannot be fitted.
    if fitted.spec.initialise.fit is None:
        return [copied]
    return [copied, fitted]


def _whole_model(student: StudentPlan) -> str | None:
    """The saved model that a student begins as; None for one that begins with a part of a model, or at random."""
    start = student.spec.initialise
    if start.checkpoint is not None:
        return start.checkpoint
    # Of another model than the teacher, a student of the same shape takes all layers and the embeddings.
    all_layers = list(range(1, student.source.shape.layers + 1))
    has_all_layers = student.shape == student.source.shape and student.source_layers == all_layers
    if has_all_layers and start.embeddings in ("auto", "copied") and start.fit is None:
        return start.from_
    return None


def trained_model_of(student: StudentPlan) -> str | None:
    """Return the trained model that a student goes on from, a folder or a name on the Hub; None for another start."""
    model = _whole_model(student)
    if model is None:
        return None
    run_folder = run_of_student(Path(model).expanduser())
    if run_folder is None:
        return model
    # A student of `--steps 0` was saved without training.
    run = records.load(records.Run, run_folder)
    start = run.student.initialisation
    began_trained = isinstance(start, records.Initialisation) and start.trained_model is not None
    return model if run.stages or began_trained else None


def _needed_tokens(student: StudentPlan) -> int:
    """Fewest tokens to fit the output maps of a student's layers to."""
    return _FITTED_TOKENS_PER_INPUT * student.shape.ffn


def missing_fit(untrained: StudentPlan, *, trained_tokens: int) -> str:
    """Say why the copied layers of an untrained start are not fitted; "" where they are, or where none are copied.

    Args:
        untrained: The last of the plans that `untrained_plans` gave.
        trained_tokens: Tokens that the student's training read; 0 where nothing was trained.
    """
    start = untrained.spec.initialise
    has_copied_layers = start.checkpoint is None and start.layers != "random"
    if not has_copied_layers or start.fit is not None or trained_tokens == 0:
        return ""
    wanted_tokens = _needed_tokens(untrained)
    if trained_tokens < wanted_tokens:
        return (
            f"Its layers are not fitted to the teacher, because the training read {trained_tokens:,} tokens: a fit "
            f"comes with {wanted_tokens:,} tokens or more. This flatters the training: a fit alone may give a part of "
            "the gain."
        )
    return "Its layers are not fitted to the teacher, because limbeck cannot fit layers of this kind."


def with_fit(student: StudentPlan, fit: FitOptions) -> StudentPlan:
    """Return the plan of a student whose copied layers are fitted; the plan as it is where they cannot be."""
    return _with_start(student, fit=fit)


def _with_start(student: StudentPlan, **changes: Any) -> StudentPlan:
    """Return the plan of a student with other keys of `initialise`; the plan as it is where they do not fit it.

    They do not fit a student of another family than its teacher's, for example, which has no layers to copy.
    """
    try:
        return _plan_with_start(student, **changes)
    except LimbeckError:
        return student


def _plan_with_start(student: StudentPlan, **changes: Any) -> StudentPlan:
    """Return the plan of a student with other keys of `initialise`.

    Raises:
        LimbeckError: if they do not fit it, such as layers of a teacher of another family.
    """
    start = student.spec.initialise.model_copy(update=changes)
    return plan_student(student.spec.model_copy(update={"initialise": start}), student.source)


def describe_random_start(student: StudentPlan) -> str | None:
    """Say what a random start costs, and how to start from the teacher's layers; None for another start."""
    if not _starts_at_random(student):
        return None
    try:
        copied = _plan_with_start(student, layers="ends", embeddings="auto")
    except LimbeckError as error:
        return f"The student starts at random, since it cannot start from the teacher's layers: {error}"
    layers = ", ".join(map(str, copied.source_layers or []))
    return (
        "The student starts at random, which takes billions of tokens in the papers. A student that starts from the "
        f"teacher's layers ({layers}) needs a small part of them: set student.initialise.layers to ends."
    )


def _starts_at_random(student: StudentPlan) -> bool:
    """Whether a student starts neither from a checkpoint nor from layers of a model."""
    start = student.spec.initialise
    return start.checkpoint is None and start.layers == "random"


def _is_narrowed_by_activations(
    teacher: TeacherInfo, plan: StudentPlan, student: int | str | Mapping[str, Any]
) -> bool:
    """Whether copied layers are narrowed along the principal directions of the teacher's activations.

    This helps students that learn sentence vectors (docs/results/embedding.md); it was not measured with others.
    """
    is_narrower = plan.shape.hidden < plan.source.shape.hidden
    if teacher.sentence is None or not is_narrower or not plan.source_layers:
        return False
    if not isinstance(student, Mapping):
        return True
    return not names_start(student) and "narrow_by" not in (student.get("initialise") or {})


def _student_spec(student: int | str | Mapping[str, Any], **start: Any) -> StudentSpec:
    """Read a student, with a start where it does not name what it starts from.

    Args:
        student: A shape, or a recipe's student.
        **start: Keys of `initialise`, beside those that the student has.
    """
    keys: Any = shape_alone(student)
    if isinstance(keys, Mapping) and not names_start(keys):
        further_keys = keys.get("initialise") or {}
        keys = {**keys, "initialise": {**further_keys, **start}}
    try:
        return StudentSpec.model_validate(keys)
    except ValidationError as error:
        raise error_of_part("student", error) from None


def count_weights(shape: Shape) -> int:
    """About how many weights the blocks of a model have, biases and norms left out."""
    # Queries, keys, values and output of the attention, and the two maps of the feed-forward part.
    return shape.layers * (4 * shape.hidden**2 + 2 * shape.hidden * shape.ffn)
