"""What the rest of the house may know about each objective without calling it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from torch import Tensor

from limbeck.core.registry import PluginPoint, Registry
from limbeck.errors import KernelError, PluginError
from limbeck.objectives.earth_mover import (
    EmdParts,
    attention_layer_emd,
    attention_layer_emd_parts,
    layer_emd,
    layer_emd_parts,
)
from limbeck.objectives.labels import hard_label_ce, hard_label_mse, masked_lm_ce, soft_label_kl, soft_label_mse
from limbeck.objectives.relations import attention_score_mse, direct_mse, relation_kl
from limbeck.objectives.terms import LossTerm
from limbeck.objectives.vectors import (
    hidden_cosine,
    hidden_mse,
    patient_mse,
    pooled_cosine,
    sample_contrastive,
    sample_relation_kl,
)

# What the arguments of an objective's function say about how training calls it.


_RULE = (
    "call the student's streams student…, then as many of the teacher's teacher…, then labels if it takes them; all "
    "else is a keyword with a default, or after a *"
)


def read_signature(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the fields of `Objective` that the arguments of a function tell.

    Arguments without a default are streams and labels, by their names; `valid`, `heads` and `projection` or
    `projections` among the others are keywords that training gives.

    Args:
        name: Of the objective, for messages.
        function: What computes it.

    Raises:
        PluginError: one line, if the names say something else.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise PluginError(f"The objective '{name}' cannot be added: its function is no function.") from None
    tensors = [parameter.name for parameter in parameters if _is_tensor(parameter)]
    keywords = {parameter.name for parameter in parameters} - set(tensors)
    student = len(list(takewhile(lambda each: each.startswith("student"), tensors)))
    teacher = len(list(takewhile(lambda each: each.startswith("teacher"), tensors[student:])))
    rest = tensors[student + teacher :]
    if not student or teacher not in (0, student) or rest not in ([], ["labels"]):
        raise PluginError(f"The objective '{name}' cannot be added: it takes ({', '.join(tensors)}); {_RULE}.")
    return {
        "student_streams": student,
        "takes_teacher": teacher > 0,
        "takes_labels": rest == ["labels"],
        "takes_valid": "valid" in keywords,
        "takes_heads": "heads" in keywords,
        "takes_projection": bool({"projection", "projections"} & keywords),
    }


def _is_tensor(parameter: inspect.Parameter) -> bool:
    given_in_order = parameter.kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return given_in_order and parameter.default is inspect.Parameter.empty


FunctionT = TypeVar("FunctionT", bound=Callable[..., LossTerm])
Unit: TypeAlias = Literal["token", "pair", "row", "sample", "label"]


@dataclass(frozen=True)
class Objective:
    """An objective and the facts that training and the conformance suite need.

    Args:
        name: As recipes and methods write it.
        function: Student streams, then as many teacher streams, then keywords, to `LossTerm`.
        student_streams: How many tensors of the student it takes; of each layer, where it takes layers.
        unit: What its count is proportional to, with a constant that does not depend on the batch: "token" is a
            valid token, "pair" two valid tokens of one sample, in order, "row" a row of logits that counts (a token
            or a sample, as the logits are), "sample" a sample, "label" a position whose label is not −100. The units
            of an accumulation window can be added up before its first backward pass.
        batch_coupled: Samples of a batch act on each other: the sum over two halves is not the whole.
        is_divergence: 0 when student equals teacher, above 0 otherwise.
        takes_valid: Has the keyword `valid`, `[B, L]`.
        takes_projection: Has the keyword `projection`, a learned map from the student's width to the
            teacher's.
        takes_heads: Needs the keyword `heads`.
        takes_labels: Takes the labels of the batch after the streams.
        takes_teacher: Takes streams of the teacher.
        takes_layers: Takes any number of layers of each model, as two lists, instead of a fixed number of streams.
        parts: The same with its costs and flow, where it takes layers.
    """

    name: str
    function: Callable[..., LossTerm]
    student_streams: int
    unit: Unit
    batch_coupled: bool = False
    is_divergence: bool = True
    takes_valid: bool = False
    takes_projection: bool = False
    takes_heads: bool = False
    takes_labels: bool = False
    takes_teacher: bool = True
    takes_layers: bool = False
    parts: Callable[..., EmdParts] | None = None

    @property
    def gathers_rows(self) -> bool:
        """Whether processes that share a batch each compute the whole term, from the rows of all of them.

        Terms over layers are coupled too, but share costs instead of rows; see `layer_emd_parts`.
        """
        return self.batch_coupled and self.parts is None

    def by_layer(self, streams: Sequence[Tensor]) -> list[Any]:
        """Group streams, layer by layer, as functions over layers take them: a tensor or a tuple for each."""
        size = self.student_streams
        return list(streams) if size == 1 else [tuple(streams[i : i + size]) for i in range(0, len(streams), size)]


def _check_objective(name: str, item: object) -> Objective:
    """Refuse an objective from outside that training could not call as its fields say."""
    if not isinstance(item, Objective):
        hint = ' For a function, put @register_as_objective(unit="token") above it.' if callable(item) else ""
        raise PluginError(f"'{name}' is a {type(item).__name__}, no limbeck.objectives.Objective.{hint}")
    problem = _problem(name, item)
    if problem is not None:
        raise PluginError(f"The objective '{name}' cannot be added: {problem}.")
    return item


def _problem(name: str, objective: Objective) -> str | None:
    if objective.name != name:
        return f"its own name is '{objective.name}'; give it the same in both places"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return "a name is of small letters, digits and _, a letter first"
    if objective.student_streams < 1:
        return f"it takes {objective.student_streams} streams of the student; give 1 or more"
    if objective.unit not in get_args(Unit):
        return f"its unit is '{objective.unit}'; give one of {', '.join(get_args(Unit))}"
    if objective.takes_layers != (objective.parts is not None):
        return "takes_layers and parts go together; see limbeck.objectives.earth_mover"
    streams = objective.student_streams * (2 if objective.takes_teacher else 1)
    tensors = 2 if objective.takes_layers else streams + objective.takes_labels
    keywords = {key: None for key in ("valid", "heads") if getattr(objective, f"takes_{key}")}
    try:
        signature = inspect.signature(objective.function)
        if objective.takes_projection:
            keywords["projections" if "projections" in signature.parameters else "projection"] = None
        signature.bind_partial(*[None] * tensors, **keywords)
    except TypeError as error:
        said = "".join(f", {key}" for key in keywords)
        return f"its function cannot be called with {tensors} tensors{said}: {error}"
    return None


OBJECTIVES: Registry[Objective] = Registry(
    "objective",
    KernelError,
    PluginPoint("limbeck.objectives", _check_objective, lambda objective: objective.function),
)
for _objective in (
    Objective("relation_kl", relation_kl, 2, "token", takes_valid=True, takes_heads=True),
    Objective("attention_score_mse", attention_score_mse, 2, "pair", takes_valid=True, takes_heads=True),
    Objective("hidden_mse", hidden_mse, 1, "token", takes_valid=True, takes_projection=True),
    Objective("hidden_cosine", hidden_cosine, 1, "token", takes_valid=True),
    Objective("direct_mse", direct_mse, 1, "token", takes_valid=True, takes_projection=True, takes_heads=True),
    Objective("soft_label_kl", soft_label_kl, 1, "row", takes_valid=True),
    Objective("masked_lm_ce", masked_lm_ce, 1, "label", is_divergence=False, takes_labels=True, takes_teacher=False),
    Objective("hard_label_ce", hard_label_ce, 1, "label", is_divergence=False, takes_labels=True, takes_teacher=False),
    Objective(
        "hard_label_mse", hard_label_mse, 1, "sample", is_divergence=False, takes_labels=True, takes_teacher=False
    ),
    Objective("soft_label_mse", soft_label_mse, 1, "sample"),
    Objective("sample_relation_kl", sample_relation_kl, 1, "sample", batch_coupled=True),
    Objective(
        "sample_contrastive",
        sample_contrastive,
        1,
        "sample",
        batch_coupled=True,
        is_divergence=False,
        takes_labels=True,
    ),
    Objective(
        "layer_emd",
        layer_emd,
        1,
        "token",
        batch_coupled=True,
        takes_valid=True,
        takes_projection=True,
        takes_layers=True,
        parts=layer_emd_parts,
    ),
    Objective(
        "attention_layer_emd",
        attention_layer_emd,
        2,
        "pair",
        batch_coupled=True,
        takes_valid=True,
        takes_heads=True,
        takes_layers=True,
        parts=attention_layer_emd_parts,
    ),
    Objective("patient_mse", patient_mse, 1, "sample"),
    Objective("pooled_cosine", pooled_cosine, 1, "sample", takes_projection=True),
):
    OBJECTIVES.register(_objective.name, _objective)


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
    replace: bool = False,
) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds a function as an objective, and returns the function as it is.

    How training calls it is told from its arguments, `(student…, teacher…, labels, *, valid, heads, projection)`: one
    or more streams of the student, as many of the teacher or none, and of the others those that are there.

    Args:
        unit: What its count is proportional to, see `Objective`.
        name: As methods write it; None is the function's own.
        batch_coupled: Samples of a batch act on each other.
        is_divergence: 0 when student equals teacher, above 0 otherwise; never without a teacher.
        replace: As `register_objective`'s.

    Raises:
        PluginError: one line, if the name is taken or the arguments are called otherwise.
    """

    def register(function: FunctionT) -> FunctionT:
        own = name if name is not None else getattr(function, "__name__", "")
        read = read_signature(own, function)
        divergence = is_divergence and read["takes_teacher"]
        register_objective(
            Objective(own, function, unit=unit, batch_coupled=batch_coupled, is_divergence=divergence, **read),
            replace=replace,
        )
        return function

    return register
