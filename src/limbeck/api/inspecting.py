"""`inspect`: a look inside a model, alone or beside its teacher."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck import inspection
from limbeck.api.calls import checked_call, make_request, refuse_unknown
from limbeck.api.checks import check_models, check_text
from limbeck.api.objects import Objects
from limbeck.api.progress import progress_console
from limbeck.api.requests import inspect as requests
from limbeck.api.requests.fields import options_of
from limbeck.api.requests.inspect import INSPECTIONS, InspectRequest
from limbeck.api.requests.values import as_list, optional_path, with_commas
from limbeck.api.results import Shown
from limbeck.core.blocks import Block, Figure, to_csv
from limbeck.core.devices import choose_device
from limbeck.core.lists import parse_list, whole_number
from limbeck.core.progress import Report, part_of
from limbeck.core.progress_bars import ProgressBar
from limbeck.errors import RecipeError, suggestion
from limbeck.models.families import shape_of
from limbeck.report.output_files import check_output

if TYPE_CHECKING:
    from limbeck.inspection import Subject


@dataclass(frozen=True, repr=False)
class InspectionResult(Shown):
    """The result of an inspection.

    Args:
        kind: The inspection: `"phrases"`, `"attention"`, `"similarity"` or `"contribution"`.
        measured: The measurements, as `limbeck.inspection` returns them.
        found: The same as plain values.
        files: Data and pictures, where they were asked for.
    """

    kind: str
    measured: Any
    found: Any
    files: tuple[Path, ...]

    def blocks(self) -> Iterator[Block]:
        """Yield the table of the inspection, and its notes."""
        from limbeck.report.inspection import inspection_blocks

        yield from inspection_blocks(self.kind, self.measured)

    def _figure(self) -> Figure | None:
        """Return the first picture of the inspection; None where it has none."""
        from limbeck.report.inspection_figures import inspection_pictures

        pictures = list(inspection_pictures(self.kind, self.measured).values())
        return pictures[0] if pictures else None

    def _csv(self) -> str:
        """Return the data of the figure as CSV: the numbers of its cells, not their written forms."""
        figure = self._figure()
        assert figure is not None and figure.data is not None
        headings = [figure.data.heading(index) for index in range(len(figure.data.headings))]
        rows = []
        for cells in figure.data.rows:
            # A cell is a value alone, or holds one beside its written form.
            values = [getattr(cell, "value", cell) for cell in cells]
            rows.append(dict(zip(headings, values, strict=True)))
        return to_csv(headings, rows)


@checked_call
def inspect(
    kind: str,
    model: Any,
    teacher: Any = None,
    *,
    texts: str | Path | Sequence[str] | None = None,
    count: int | None = None,
    length: int = 128,
    output: str | Path | None = None,
    device: str = "auto",
    console: Console | None = None,
    **options: Any,
) -> InspectionResult:
    """Look inside a model, alone or beside its teacher.

    Args:
        kind: `"phrases"`, `"attention"`, `"similarity"` or `"contribution"`.
        model: A folder, `package:NAME` or a Hub name; a result of `distill`; or a model of transformers or
            sentence-transformers. The student, with a teacher.
        teacher: A second model, put beside it.
        texts: Texts, or a file with one a line; None is sentences that come along.
        count: Texts to read, spread over the file; None is 256 for attention, else 512, and all of a list.
        length: Longest text in tokens.
        output: A folder for picture and data, or one file: .png, .svg, .pdf or .json.
        device: `"auto"`, `"cpu"`, `"cuda"` …
        console: Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.
        **options: Those of `limbeck inspect KIND --help`, with `_` for `-`: `data="test.txt"` of phrases, `layers=[3,
            6]` and `heads=["mean", 1]` of attention.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.

    Example:
        >>> result = limbeck.inspect("similarity", "runs/e5/student", "intfloat/e5-small-v2")
        >>> table = result.to_pandas()
    """
    if kind not in INSPECTIONS:
        raise RecipeError(f"No inspection '{kind}'.{suggestion(str(kind), INSPECTIONS)}")
    request = INSPECTIONS[kind]
    declared = options_of(request)
    call = f"limbeck.inspect('{kind}')"
    refuse_unknown(f"{call} has no option", options, declared)
    if count is None and isinstance(texts, Sequence) and not isinstance(texts, str):
        # A list of texts is read whole.
        count = max(1, len(texts))
    if count is not None:
        options["count"] = count
    options |= {"texts": texts, "length": length, "output": output, "device": device, "console": console}
    for name, option in declared.items():
        if option.is_required and name not in (*options, "model"):
            raise RecipeError(f"{call} needs {name}=…; give it.")
    return carry_out_inspection(kind, make_request(request, (model, teacher), options))


@dataclass(frozen=True)
class _Inputs:
    """The models and texts of an inspection.

    Attributes:
        models: Names of the model and, if there is one, its teacher.
        texts: The texts; empty for phrases, which have their own.
        device: The device of the models.
        bar: Receives the progress.
    """

    models: Sequence[str]
    texts: Sequence[str]
    device: Any
    bar: Report

    def subjects(self) -> "list[Subject]":
        """Load the models."""
        return [inspection.load_subject(name, device=self.device) for name in self.models]


def carry_out_inspection(kind: str, request: InspectRequest) -> InspectionResult:
    """Inspect, and write the files that are asked for.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.
    """
    output = optional_path(request.output)
    check_output(output)
    objects = Objects()
    models = [objects.model(request.model, "model")]
    if request.teacher is not None:
        models.append(objects.model(request.teacher, "teacher"))
    check_text(request.texts)
    if isinstance(request, requests.PhrasesRequest):
        check_text(request.data)
    check_models(*models)
    # Torch is imported from here on, which takes seconds.
    from limbeck.core.records import plain
    from limbeck.report.inspection import write_inspection
    from limbeck.report.inspection_figures import inspection_pictures

    device = choose_device(request.device)
    texts = () if isinstance(request, requests.PhrasesRequest) else _read_texts(request)
    with ProgressBar(progress_console(request.console)) as bar:
        measured = _MEASURE[kind](request, _Inputs(models, texts, device, bar))
    values = plain(measured)
    files: list[Path] = []
    if output is not None:
        data = {"inspection": kind, "result": values}
        files = write_inspection(output, kind, data, inspection_pictures(kind, measured))
    return InspectionResult(kind, measured, values, tuple(files))


def _read_texts(request: InspectRequest) -> Sequence[str]:
    """Return the texts of a request, of its file, or those that come along."""
    if request.texts is None:
        return inspection.read_texts(None, request.count)
    if isinstance(request.texts, str | Path):
        return inspection.read_texts(Path(request.texts), request.count)
    return list(request.texts)[: request.count]


def _measure_phrases(request: requests.PhrasesRequest, inputs: _Inputs) -> Any:
    """Cluster the phrases of a file by the vectors of each model."""
    sample = inspection.SpanSample(
        labelled=request.spans,
        unlabelled=request.unlabelled,
        clusters=request.clusters,
        held_out=request.held_out,
        seed=request.seed,
        seeds=tuple(range(request.seed, request.seed + request.seeds)),
    )
    text = inspection.read_chunks(Path(request.data))
    return inspection.cluster_phrases(inputs.subjects(), text, sample, report=inputs.bar)


def _measure_attention(request: requests.AttentionRequest, inputs: _Inputs) -> Any:
    """Return the attention maps of a sentence, and beside a teacher their divergence on texts."""
    sentence = inputs.texts[0]
    if request.sentence is not None:
        sentence = request.sentence
    if not sentence.strip():
        raise RecipeError("--sentence is empty; give a sentence, or leave --sentence out for the first text.")
    subjects = inputs.subjects()
    student = subjects[0]
    teacher = subjects[1] if len(subjects) > 1 else None
    maps = inspection.draw_maps(
        student,
        teacher,
        sentence,
        layers=read_layers(request.layers, subjects),
        heads_shown=read_heads(request.heads, subjects),
    )
    divergence = None
    if teacher is not None:
        divergence = inspection.measure_divergence(
            student, teacher, inputs.texts, length=request.length, report=inputs.bar
        )
    return {"maps": maps, "divergence": divergence}


def _measure_similarity(request: requests.SimilarityRequest, inputs: _Inputs) -> Any:
    """Compare the layers of the model with its teacher's, or with its own where there is none."""
    subjects = inputs.subjects()
    # Without a teacher the last subject is the model itself.
    return inspection.measure_similarity(
        subjects[0], subjects[-1], inputs.texts, length=request.length, report=inputs.bar
    )


def _measure_contribution(request: requests.ContributionRequest, inputs: _Inputs) -> Any:
    """Measure the contribution of tokens to others in each model."""
    subjects = inputs.subjects()
    contributions = []
    for index, subject in enumerate(subjects):
        report = part_of(inputs.bar, index / len(subjects), (index + 1) / len(subjects))
        contribution = inspection.measure_contribution(subject, inputs.texts, length=request.length, report=report)
        contributions.append(contribution)
    return contributions


_MEASURE: dict[str, Callable[[Any, _Inputs], Any]] = {
    "phrases": _measure_phrases,
    "attention": _measure_attention,
    "similarity": _measure_similarity,
    "contribution": _measure_contribution,
}


def read_layers(layers: Any, subjects: "Sequence[Subject]") -> list[tuple[int, int]]:
    """Read pairs of a student's layer and the teacher's layer that it is shown beside.

    Args:
        layers: A list such as `[3, (6, 12)]`, text such as `3,6:12`, or `all`; None is the last layer. A number alone
            is a student's layer, shown beside the teacher's layer that the uniform mapping gives it.
        subjects: The model, and its teacher if there is one.

    Raises:
        RecipeError: for other text, or a layer that is not there.
    """
    from limbeck.inspection.attention_maps import check_layers
    from limbeck.methods.layer_mapping import uniform

    depth = subjects[0].layers
    has_teacher = len(subjects) > 1
    owner = "student" if has_teacher else "model"
    # The uniform mapping gives each layer a single one of the teacher. Without a teacher that is the layer itself.
    uniform_teacher_layer = {}
    for layer, [teacher_layer] in uniform(depth, subjects[-1].layers).items():
        uniform_teacher_layer[layer] = teacher_layer
    text = str(depth)
    if layers is not None:
        text = ",".join(_pair_as_text(layer) for layer in as_list(layers))
    shown = f"--layers '{text[:80]}'"

    def read(part: str) -> list[tuple[int, int]]:
        """Read `all`, a layer such as `3`, or a layer with the teacher's beside it, such as `6:12`."""
        if part == "all":
            return list(uniform_teacher_layer.items())
        student, colon, teacher = part.partition(":")
        layer = whole_number(student.strip())
        named_teacher_layer = whole_number(teacher.strip()) if colon else None
        if named_teacher_layer is not None and not has_teacher:
            raise RecipeError(f"{shown} names a layer of a teacher, but there is no teacher; give --teacher too.")
        check_layers(subjects[0], owner, [layer])
        if named_teacher_layer is None:
            return [(layer, uniform_teacher_layer[layer])]
        return [(layer, named_teacher_layer)]

    refusal = f"{shown} must be all, or layers separated by commas, such as 6 or 3:6,6:12."
    return parse_list(text, read, refusal)


def _pair_as_text(layer: Any) -> str:
    """Return a layer, or a pair of a student's and a teacher's layer, as text of the command line: `3` or `3:6`."""
    if isinstance(layer, tuple | list):
        return ":".join(map(str, layer))
    return str(layer)


def read_heads(heads: Any, subjects: "Sequence[Subject]") -> list[int]:
    """Read the heads: numbers in a list or by commas, `mean`, or `all`.

    Raises:
        RecipeError: for other text.
    """
    text = with_commas(heads)
    every_head = list(range(1, shape_of(subjects[0].model.config).heads + 1))

    def read(part: str) -> list[int]:
        if part == "mean":
            return [inspection.MEAN_HEAD]
        if part == "all":
            return every_head
        return [whole_number(part, least=1)]

    refusal = f"--heads '{text[:80]}' must be mean, all, or numbers from 1, separated by commas."
    return parse_list(text, read, refusal)
