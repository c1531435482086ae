"""The registry of objectives, with the facts by which training calls, counts and measures each of them.

An *objective* is a function that compares streams (tensors) of the student with streams of the teacher, and returns a
`LossTerm`. limbeck's own and those of plugins are registered in the same way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from torch import Tensor

from limbeck.core.registry import PluginPoint, Registry, is_built_in
from limbeck.errors import KernelError, PluginError
from limbeck.objectives.terms import LossTerm

Unit: TypeAlias = Literal["token", "pair", "row", "sample", "label", "group"]
FunctionT = TypeVar("FunctionT", bound=Callable[..., LossTerm])
_STUDENT_NAMES = ("student", "logits", "values")
_LAYER_KEYWORDS = ("student_weights", "teacher_weights", "across")
_RULE = (
    "name the student's tensors student… (or logits, values), then the same number of the teacher's tensors "
    "teacher…, then labels if there are any; give every other argument a default, or put it after a *"
)


@dataclass(frozen=True)
class Workload:
    """Sizes of a term on a batch, from which its operations are counted.

    Args:
        lengths: Valid tokens of each sample.
        student_width: Width of the student's streams.
        teacher_width: Width of the teacher's streams, after their heads were merged.
        student_streams: Number of different streams of the student.
        teacher_streams: Number of different streams of the teacher.
        options: The term's keyword arguments, such as `heads`.
    """

    lengths: Sequence[int]
    student_width: int
    teacher_width: int
    student_streams: int
    teacher_streams: int
    options: Mapping[str, Any]

    @property
    def pairs(self) -> int:
        """Number of pairs of valid tokens of the same sample, over all samples."""
        return sum(length**2 for length in self.lengths)


@dataclass(frozen=True)
class Benchmark:
    """How `limbeck benchmark loss` measures an objective.

    Args:
        backends: Ways to compute it, by name. The first is the plain one, which holds everything in memory at once;
            errors are measured against its result in float64. Each takes the student's tensors, the teacher's, then
            `valid` and the keywords that `inputs` returns.
        inputs: Makes the inputs of a case. It takes the case (`limbeck.benchmark.loss_case.LossCase`) and a function
            that draws normal numbers of a shape and deviation. It returns the student's two tensors, the teacher's two,
            and keywords.
        numbers_at_once: Returns the most float32 numbers that the plain backend holds at a time for a case, by a bound
            that is a little higher than was measured.
        sizes: Fields of a case that the objective depends on, besides batch, length and widths.
        heads: Number of heads of a case that names none.
    """

    backends: Mapping[str, Callable[..., LossTerm]]
    inputs: Callable[[Any, Callable[..., Tensor]], tuple[Sequence[Tensor], Sequence[Tensor], dict[str, Any]]]
    numbers_at_once: Callable[[Any], int]
    sizes: tuple[str, ...] = ("heads",)
    heads: int = 48

    @property
    def plain(self) -> str:
        """Name of the plain backend."""
        return next(iter(self.backends))


@dataclass(frozen=True)
class Objective:
    """An objective and the facts that training and the conformance suite need.

    Args:
        name: Name in recipes and methods.
        function: Takes streams of the student, then as many of the teacher, then keywords; returns a `LossTerm`.
        student_streams: Number of streams of the student that it takes; with `takes_layers`, of each layer.
        unit: The quantity that its count is proportional to, by a constant independent of the batch: "token" is a
            valid token, "pair" two valid tokens of one sample, in order, "row" a row of logits that counts (a token
            or a sample, as the logits are), "sample" a sample, "label" a position whose label is not −100, "group" a
            group of two samples or more. The units of an accumulation window can be added up before its first backward
            pass.
        batch_coupled: Samples of a batch act on each other: the sum over two halves is not the whole.
        is_divergence: 0 when student equals teacher, above 0 otherwise.
        by_token: Compares token with token, whichever sample they belong to. Where both models ran packed in 16 bits,
            training gives it all real tokens of a batch as one row, `[1, T, width]`.
        takes_valid: Has the keyword `valid`, `[B, L]`.
        takes_projection: Has the keyword `projection`, a learned map from the student's width to the teacher's, or
            `projections`, one map a head.
        takes_heads: Needs the keyword `heads`.
        takes_labels: Takes the labels of the batch after the streams.
        takes_teacher: Takes streams of the teacher.
        takes_groups: Has the keyword `groups`, the number of each sample's group, `[B]`; batches of ranking corpora
            have them, a query's documents each.
        takes_layers: Takes any number of layers of each model, as two lists, instead of a fixed number of streams. It
            may have the keywords `student_weights` and `teacher_weights`, weights of the layers, and `across`, which
            sums a tensor over the processes that share a batch; see `layer_emd`.
        operations: Counts the floating point operations of a term and its gradient, without those of learned maps;
            None where they are so few that they are not counted.
        benchmark: How `limbeck benchmark loss` measures it; None where it does not.
        from_hidden: For an objective on logits over a vocabulary, a function that computes it without them. Hidden
            vectors and the output layer's weight take the place of each model's logits; the keywords `student_bias` and
            `teacher_bias` are the output layers' biases.
    """

    name: str
    function: Callable[..., LossTerm]
    student_streams: int
    unit: Unit
    batch_coupled: bool = False
    is_divergence: bool = True
    by_token: bool = False
    takes_valid: bool = False
    takes_projection: bool = False
    takes_heads: bool = False
    takes_labels: bool = False
    takes_teacher: bool = True
    takes_groups: bool = False
    takes_layers: bool = False
    operations: Callable[[Workload], int] | None = None
    benchmark: Benchmark | None = None
    from_hidden: Callable[..., LossTerm] | None = None

    @cached_property
    def keywords(self) -> frozenset[str]:
        """Names of the keywords that training fills in; the others come from a term's options."""
        parameters = inspect.signature(self.function).parameters
        keywords = set()
        if self.takes_valid:
            keywords.add("valid")
        if self.takes_groups:
            keywords.add("groups")
        if self.takes_projection:
            # An objective with a map for each head has the plural.
            keywords.add("projections" if "projections" in parameters else "projection")
        if self.takes_layers:
            keywords |= {name for name in _LAYER_KEYWORDS if name in parameters}
        return frozenset(keywords)

    @cached_property
    def takes_class_weights(self) -> bool:
        """Whether it has the keyword `class_weights`, a weight for the labels of each class."""
        return "class_weights" in inspect.signature(self.function).parameters

    @property
    def gathers_rows(self) -> bool:
        """Whether processes that share a batch each compute the whole term, from the rows of all of them.

        Terms with the keyword `across` couple the samples of all processes too, but sum costs instead of gathering
        rows.
        """
        return self.batch_coupled and "across" not in self.keywords

    def arguments(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        """Choose, of the keywords that training can fill in, those that the function has."""
        return {name: value for name, value in offered.items() if name in self.keywords}

    def call(
        self, student: Sequence[Tensor], teacher: Sequence[Tensor], labels: Tensor | None = None, **options: Any
    ) -> LossTerm:
        """Compute the objective with the arguments that its function has.

        Args:
            student: The student's streams; with `takes_layers` layer by layer.
            teacher: The teacher's streams, likewise.
            labels: Labels of the batch; not passed on to a function that takes none.
            **options: Keywords of the function.
        """
        streams: list[Any] = [*student, *teacher]
        if self.takes_layers:
            streams = [self.by_layer(student), self.by_layer(teacher)]
        if self.takes_labels and labels is not None:
            streams.append(labels)
        return self.function(*streams, **options)

    def by_layer(self, streams: Sequence[Tensor]) -> list[Any]:
        """Group streams by layer, as functions over layers take them.

        Args:
            streams: All streams of the first layer, then of the second, and so on.

        Returns:
            For each layer its tensor, or a tuple if a layer has several streams.
        """
        size = self.student_streams
        if size == 1:
            return list(streams)
        return [tuple(streams[first : first + size]) for first in range(0, len(streams), size)]


def read_signature(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Read the fields of `Objective` from the arguments of a function.

    Arguments without a default are tensors: streams of the student, as many of the teacher or none, and then perhaps
    labels, each told by its name. All others are keywords. Of these training gives `valid`, `groups`, `heads` and
    `projection` or `projections`.

    Args:
        name: The objective's name, for messages.
        function: The function that computes it.

    Returns:
        The values of fields of `Objective`, by name.

    Raises:
        PluginError: one line, if its tensors have other names or another order.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise PluginError(f"The objective '{name}' cannot be added: it is not a function.") from None
    tensors = [parameter.name for parameter in parameters if _is_tensor(parameter)]
    keywords = {parameter.name for parameter in parameters} - set(tensors)
    student_count = _count_leading(tensors, _STUDENT_NAMES)
    teacher_count = _count_leading(tensors[student_count:], ("teacher",))
    names_behind_streams = tensors[student_count + teacher_count :]
    takes_labels = names_behind_streams == ["labels"]
    has_unknown_tensors = bool(names_behind_streams) and not takes_labels
    has_unequal_streams = teacher_count not in (0, student_count)
    if student_count == 0 or has_unequal_streams or has_unknown_tensors:
        raise PluginError(f"The objective '{name}' cannot be added: it takes ({', '.join(tensors)}); {_RULE}.")
    return {
        "student_streams": student_count,
        "takes_teacher": teacher_count > 0,
        "takes_labels": takes_labels,
        "takes_valid": "valid" in keywords,
        "takes_heads": "heads" in keywords,
        "takes_groups": "groups" in keywords,
        "takes_projection": bool({"projection", "projections"} & keywords),
    }


def _count_leading(names: Sequence[str], beginnings: tuple[str, ...]) -> int:
    """Return how many names there are before the first one that begins with none of some words."""
    for number, name in enumerate(names):
        if not name.startswith(beginnings):
            return number
    return len(names)


def _is_tensor(parameter: inspect.Parameter) -> bool:
    """Return whether an argument of an objective is a tensor: it has no default, and is not after a star."""
    is_positional = parameter.kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return is_positional and parameter.default is inspect.Parameter.empty


def _problem(objective: Objective) -> str | None:
    """Return the reason why training could not call an objective as its fields say; None where it can."""
    if objective.student_streams < 1:
        return f"it takes {objective.student_streams} streams of the student; give 1 or more"
    # Packed rows of real tokens have no samples, so nothing that depends on samples can be computed from them.
    needs_samples = (
        objective.batch_coupled or objective.takes_labels or objective.takes_groups or objective.takes_layers
    )
    if objective.by_token and (needs_samples or objective.unit != "token"):
        return "it is by_token; its unit has to be 'token', without labels, groups, layers or batch_coupled"
    if objective.unit not in get_args(Unit):
        return f"its unit is '{objective.unit}'; give one of {', '.join(get_args(Unit))}"
    return _problem_of_call(objective)


def _problem_of_call(objective: Objective) -> str | None:
    """Return the reason why the function of an objective cannot be called as training does; None where it can."""
    # The positional arguments of a call: a list of layers for each model, or the streams of each model and labels.
    if objective.takes_layers:
        positional_count = 2
    else:
        models = 2 if objective.takes_teacher else 1
        positional_count = models * objective.student_streams + int(objective.takes_labels)
    # The call is bound to the signature, with None for each argument, and not made. A TypeError also says that a
    # function has no signature.
    keywords: list[str] = []
    try:
        keywords = sorted(objective.keywords - set(_LAYER_KEYWORDS))
        if objective.takes_heads:
            keywords.append("heads")
        positional_arguments = [None] * positional_count
        inspect.signature(objective.function).bind_partial(*positional_arguments, **dict.fromkeys(keywords))
    except TypeError as error:
        call = ", ".join([f"{positional_count} tensors", *keywords])
        return f"its function cannot be called with {call}: {error}"
    return None


_POINT = PluginPoint(
    "limbeck.objectives", Objective, 'register_as_objective(unit="token")', _problem, lambda item: item.function
)
OBJECTIVES: Registry[Objective] = Registry("objective", KernelError, _POINT)


def register_objective(objective: Objective, *, replace: bool = False) -> Objective:
    """Add an objective from outside the package, so that the terms of methods know it by its name.

    Call it where the module is run, not under a main guard: worker processes run the module too.

    Args:
        objective: Its fields are what training calls its function by.
        replace: Take the place of one that was registered before, as when a notebook's cell runs again; the package's
            own are never replaced.

    Returns:
        The objective.

    Raises:
        PluginError: one line, if the name is taken or the function cannot be called as the fields say.
    """
    return OBJECTIVES.add(getattr(objective, "name", ""), objective, replace=replace)


def register_as_objective(
    *,
    unit: Unit,
    name: str | None = None,
    batch_coupled: bool = False,
    is_divergence: bool = True,
    by_token: bool = False,
    replace: bool = False,
    layers: int | None = None,
    operations: Callable[[Workload], int] | None = None,
    benchmark: Benchmark | None = None,
    from_hidden: Callable[..., LossTerm] | None = None,
) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds a function as an objective, and returns the function as it is.

    How training calls it is read from its arguments, `(student…, teacher…, labels, *, valid, groups, heads,
    projection)`: one or more streams of the student, as many of the teacher or none, and of the others those that are
    there. limbeck's own objectives are registered by it too.

    Args:
        unit: The quantity that its count is proportional to, see `Objective`.
        name: As methods write it; None is the name of the function.
        batch_coupled: Samples of a batch act on each other.
        is_divergence: 0 when student equals teacher, above 0 otherwise; never without a teacher.
        by_token: As in `Objective`.
        replace: As `register_objective`'s.
        layers: Streams of each layer, for a function over any number of layers, which takes two lists; None for a
            function of single streams.
        operations: As in `Objective`.
        benchmark: As in `Objective`.
        from_hidden: As in `Objective`.

    Raises:
        PluginError: one line, if the name is taken or the arguments are called otherwise.
    """

    def register(function: FunctionT) -> FunctionT:
        """Add a function to the registry of objectives, by the arguments of `register_as_objective`."""
        objective_name = name if name is not None else getattr(function, "__name__", "")
        signature = read_signature(objective_name, function)
        if layers is not None:
            # Each of its two arguments is a list of layers, so that the signature does not tell a layer's streams.
            signature["student_streams"] = layers
            signature["takes_layers"] = True
        objective = Objective(
            objective_name,
            function,
            unit=unit,
            batch_coupled=batch_coupled,
            is_divergence=is_divergence and signature["takes_teacher"],
            by_token=by_token,
            operations=operations,
            benchmark=benchmark,
            from_hidden=from_hidden,
            **signature,
        )
        OBJECTIVES.add(objective_name, objective, replace=replace, built_in=is_built_in(function))
        return function

    return register
