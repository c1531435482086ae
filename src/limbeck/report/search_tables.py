"""Tables of searches of layer mappings, student shapes and teacher layers: for reports, the terminal and files."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from rich.console import RenderableType

from limbeck.core import blocks, studies
from limbeck.core.blocks import NOTHING, AnyCell, Cell, Table, duration, number
from limbeck.core.markdown import markdown_file
from limbeck.search.mapping_space import show_mapping

S = TypeVar("S", bound=studies.Search)


class SearchTables(ABC, Generic[S]):
    """The words and tables of a kind of search.

    Attributes:
        TITLE: Of its file.
    """

    TITLE: ClassVar[str]

    def setting(self, record: S) -> str:
        """Return in a line what was searched."""
        student = f" student {record.student.shape}," if record.student.shape else ""
        scope = self.scope(record)
        return (
            f"Teacher {record.teacher.name} ({record.teacher.shape}),{student} {' and '.join(record.methods)} on "
            f"{record.share:.0%} of the corpus{f'; {scope}' if scope else ''}."
        )

    def scope(self, record: S) -> str:
        """Return what could be chosen, for `setting`."""
        return ""

    @abstractmethod
    def best(self, record: S) -> str:
        """Return the result in a few words."""

    @abstractmethod
    def found(self, record: S) -> str:
        """Return the result in a line; empty for none."""

    @abstractmethod
    def tables(self, record: S) -> list[Table]:
        """Return the tables of its file."""

    def shown(self, record: S) -> list[blocks.Block]:
        """Return the lines and tables for a console."""
        return [blocks.Paragraph(self.found(record)), *self.tables(record)]

    @abstractmethod
    def notes(self, record: S) -> Iterator[str]:
        """Describe the figures, the cost, and what came to nothing."""

    @abstractmethod
    def files(self, record: S) -> dict[str, str]:
        """Return tables of unrounded numbers by the names of their files."""


_BEST_MAPPINGS = 10


class _Mappings(SearchTables[studies.MappingSearch]):
    """Layer mappings: the generations as ELM's table 5 has them, and the best mappings."""

    TITLE = "Layer mapping search"

    def scope(self, record: studies.MappingSearch) -> str:
        space = record.space
        return (
            f"{space.size:,} mappings of {space.student_layers} student layers onto {space.teacher_layers} teacher "
            "layers, 0 for none"
        )

    def best(self, record: studies.MappingSearch) -> str:
        return f"mapping {show_mapping(record.best.mapping)}, fitness {record.best.fitness:.2f}" if record.best else ""

    def found(self, record: studies.MappingSearch) -> str:
        best = record.best
        if best is None:
            return ""
        scores = ", ".join(f"{name} {score:.2f}" for name, score in best.scores.items())
        return f"Found: **{show_mapping(best.mapping)}**, gene `{best.gene}`, fitness {best.fitness:.2f} ({scores})."

    def tables(self, record: studies.MappingSearch) -> list[Table]:
        return [generations(record), best_mappings(record)]

    def shown(self, record: studies.MappingSearch) -> list[blocks.Block]:
        return [*self.tables(record)]

    def notes(self, record: studies.MappingSearch) -> Iterator[str]:
        cost, seconds = record.cost, record.cost.all_seconds
        yield f"Fitness is the mean of {', '.join(record.scores)}, in percent."
        yield (
            "A genome that comes twice in a generation counts twice; Evaluated says how many are new. The deviation is "
            "that of the members as they are, divided by their number."
        )
        share = f"{(cost.training_seconds or 0) / seconds:.0%} of it distillation" if seconds else ""
        spent = f" in {duration(seconds)} of workers' time, {share}" if seconds else ""
        yield f"{cost.evaluations:d} of {record.space.size:,} mappings evaluated{spent}."
        if legal := [text for operator in ("crossing", "mutation") if (text := _draws(record, operator))]:
            yield f"Illegal children are drawn again; of the draws {' and '.join(legal)} were legal."
        if cost.failed:
            yield f"Trials that failed or were lost with their worker, and are tried again: {cost.failed}."
        for one in record.given_up:
            yield f"{show_mapping(one.mapping)} has no fitness: {one.problem}."

    def files(self, record: studies.MappingSearch) -> dict[str, str]:
        names = ("maximum", "minimum", "mean", "deviation", "size", "evaluated", "best_gene")
        rows = (
            {**row.to_dict(), "generation": row.number, "best_mapping": _layers(row.best)} for row in record.generations
        )
        columns = ("gene", "fitness", "generation", "training_seconds", "scoring_seconds")
        candidates = ({**one.to_dict(), **one.scores, "mapping": _layers(one.mapping)} for one in record.candidates)
        return {
            "generations.csv": blocks.to_csv(("generation", *names, "best_mapping"), rows),
            "candidates.csv": blocks.to_csv(("mapping", *columns, *record.scores), candidates),
        }


def generations(record: studies.MappingSearch) -> Table:
    """Lay out the generations as ELM's table 5 has them."""
    rows: tuple[tuple[AnyCell, ...], ...] = tuple(
        (
            f"#{row.number}",
            *(number(value, 2) for value in (row.maximum, row.minimum, row.mean, row.deviation)),
            f"{row.evaluated} of {row.size}",
            row.best_gene,
            show_mapping(row.best),
        )
        for row in record.generations
    )
    headings = ("Gen", "Max", "Min", "Avg", "Std", "Evaluated", "Best gene", "Mapping")
    return Table("Generations", headings, rows, words=(0, 6, 7))


def best_mappings(record: studies.MappingSearch) -> Table:
    """Lay out the mappings that did best, with every score."""
    rows: tuple[tuple[AnyCell, ...], ...] = tuple(
        (
            show_mapping(candidate.mapping),
            *(number(value, 2) for value in (candidate.fitness, *(candidate.scores[name] for name in record.scores))),
            "" if candidate.generation is None else f"#{candidate.generation}",
        )
        for candidate in record.candidates[:_BEST_MAPPINGS]
    )
    return Table("Best mappings", ("Mapping", "Fitness", *record.scores, "Gen"), rows, words=(0,))


def _draws(record: studies.MappingSearch, operator: str) -> str:
    """Count the draws of an operator that gave legal children."""
    bred = [row.breeding or {} for row in record.generations]
    done, drawn = (sum(counts[name] for counts in bred) for name in (f"{operator}s", f"{operator}_draws"))
    return f"{done} of {drawn} in {operator}" if done else ""


def _layers(mapping: Sequence[int]) -> str:
    return " ".join(map(str, mapping))


_SHAPES_ON_CONSOLE = 20
_LOSSES = {
    "hidden": "the variance of the teacher's last hidden states that a linear map of the student's does not explain",
    "relations": "the divergence of the last layers' query, key and value relations",
}
_SHAPE_COLUMNS = (
    *("trial", "layers", "hidden", "heads", "ffn", "parameters", "latency_share", "latency_ms", "teacher_ms"),
    *("threads", "note", "loss", "reward", "steps", "state", "reason", "training_seconds", "front"),
)
_STATES = ("trained", "cut", "diverged", "refused")


class _Shapes(SearchTables[studies.ArchitectureSearch]):
    """Student shapes: the front of loss and latency, and every shape that was tried."""

    TITLE = "Search of student shapes"

    def scope(self, record: studies.ArchitectureSearch) -> str:
        sizes = (
            f"{name} {' / '.join(f'{value:g}' for value in getattr(record.space, name))}"
            for name in ("layers", "hidden", "heads", "ffn")
        )
        return f"{', '.join(sizes)} (FFN in multiples of hidden), sampler {record.sampler}"

    def best(self, record: studies.ArchitectureSearch) -> str:
        best = record.best
        if best is None:
            return ""
        return f"{describe_shape(best)}, {best.latency_share:.3f} of the latency, loss {best.loss:.4f}"

    def found(self, record: studies.ArchitectureSearch) -> str:
        best = record.best
        if best is None:
            return ""
        return (
            f"Found: **{describe_shape(best)}**, {best.parameters:,} parameters, {best.latency_share:.3f} of the "
            f"teacher's latency, loss {best.loss:.4f}, reward {best.reward:.4f}."
        )

    def tables(self, record: studies.ArchitectureSearch) -> list[Table]:
        return [front(record), shapes(record, "All shapes")]

    def shown(self, record: studies.ArchitectureSearch) -> list[blocks.Block]:
        count = len(record.shapes)
        some = f", the best {_SHAPES_ON_CONSOLE} of {count}" if count > _SHAPES_ON_CONSOLE else ""
        table = replace(shapes(record, f"Shapes{some}", _SHAPES_ON_CONSOLE), left_out=0)
        return [blocks.Paragraph(self.found(record)), front(record), table]

    def notes(self, record: studies.ArchitectureSearch) -> Iterator[str]:
        cost, latency, limits = record.cost, record.latency, record.limits
        yield (
            f"Loss is {_LOSSES[record.loss.kind or '']}, on held-out text, divided by that of an untrained student "
            f"({record.loss.untrained:.4f}); reward is (1 - loss) x (share of latency / 0.6)^-0.06."
        )
        yield (
            f"Latency: {latency.batch} x {latency.length} tokens, {latency.dtype}, on {latency.device}, "
            "teacher and student in turns, the least disturbed pass of each; the teacher takes "
            f"{record.teacher.latency_ms:.1f} ms. Parameters are the encoder's, without pooler and head."
        )
        for note, count in Counter(shape.note for shape in record.shapes if shape.note is not None).items():
            yield (
                f"Latency of {count} of {len(record.shapes)} shapes: {note}, so it is of processor times; measure on "
                "an idle machine for those of a clock."
            )
        asked = [] if limits.parameters is None else [f"{limits.parameters:,} parameters"]
        asked += [] if limits.latency_share is None else [f"{limits.latency_share:g} of the teacher's latency"]
        if asked:
            yield f"Limits: {' and '.join(asked)}. A shape beyond them cost no training."
        others = [f"{count} {state}" for state in _STATES[1:] if (count := getattr(cost, state))]
        time = f" in {duration(cost.training_seconds)} of workers' time" if cost.training_seconds else ""
        aside = f"; {', '.join(others)}" if others else ""
        yield f"{cost.trained:d} of {record.space.shapes:,} shapes trained to the end{aside}{time}."
        if cost.failed:
            yield f"{cost.failed} trials failed or were lost with their worker; their shapes were tried again."

    def files(self, record: studies.ArchitectureSearch) -> dict[str, str]:
        rows = ({**shape.to_dict(), "front": shape.trial in record.front} for shape in record.shapes)
        return {"shapes.csv": blocks.to_csv(_SHAPE_COLUMNS, rows)}


def front(record: studies.ArchitectureSearch) -> Table:
    """Lay out the shapes that no other beats in both loss and latency, the fastest first."""
    by_trial = {shape.trial: shape for shape in record.shapes}
    rows: tuple[tuple[AnyCell, ...], ...] = tuple(
        (describe_shape(shape), number(shape.parameters), number(shape.latency_ms, 2), *_shape_figures(shape))
        for shape in map(by_trial.__getitem__, record.front)
    )
    headings = ("Shape", "Parameters", "Latency ms", "Of teacher", "Loss", "Reward")
    return Table("Front of loss and latency", headings, rows, words=(0,))


def shapes(record: studies.ArchitectureSearch, caption: str, most: int | None = None) -> Table:
    """Lay out trained shapes by reward, then those that were cut, diverged or refused, by trial."""
    ranked = sorted(record.shapes, key=lambda shape: (_STATES.index(shape.state), -(shape.reward or 0.0), shape.trial))
    rows: tuple[tuple[AnyCell, ...], ...] = tuple(
        (
            str(shape.trial),
            describe_shape(shape),
            number(shape.parameters),
            *_shape_figures(shape),
            shape.state if shape.reason is None else f"{shape.state}: {shape.reason}",
        )
        for shape in ranked[:most]
    )
    headings = ("Trial", "Shape", "Parameters", "Of teacher", "Loss", "Reward", "State")
    return Table(caption, headings, rows, words=(1, 6), left_out=len(ranked) - len(rows))


def _shape_figures(shape: studies.SearchedShape) -> tuple[Cell, ...]:
    return number(shape.latency_share, 3), number(shape.loss, 4), number(shape.reward, 4)


def describe_shape(shape: studies.SearchedShape) -> str:
    """Write a shape as the student's blueprint is written."""
    return f"{shape.layers}x{shape.hidden}, {shape.heads} heads, FFN {shape.ffn}"


_ENDS = {"cut": "after {}", "trained": NOTHING, "diverged": "diverged"}


class _Layers(SearchTables[studies.TeacherLayerSearch]):
    """Teacher layers: every candidate with its score at each rung."""

    TITLE = "Search of teacher layers"

    def best(self, record: studies.TeacherLayerSearch) -> str:
        best = record.best
        return f"layer {best.layer}, score {best.scores[-1].score:.2f}" if best is not None else ""

    def found(self, record: studies.TeacherLayerSearch) -> str:
        if record.best is None:
            return ""
        last = record.best.scores[-1]
        return (
            f"Recommended: teacher layer **{record.best.layer}** of {record.teacher.layers}, score {last.score:.2f} "
            f"after {last.step} steps."
        )

    def tables(self, record: studies.TeacherLayerSearch) -> list[Table]:
        return [layers(record)]

    def shown(self, record: studies.TeacherLayerSearch) -> list[blocks.Block]:
        return [blocks.Paragraph(self.found(record)), replace(layers(record), caption="")]

    def notes(self, record: studies.TeacherLayerSearch) -> Iterator[str]:
        yield (
            f"Score is the mean of {' and '.join(record.scores)}, in percent, on held-out text: how the student orders "
            "sentence pairs as its teacher does, and how much of the teacher's last hidden states a linear map of its "
            "own explains. Own loss is each student's own, and comparable between no two layers."
        )
        yield (
            f"All candidates were trained at once: {record.cost.steps:,} steps in all, in "
            f"{duration(record.cost.seconds or 0)}, and the teacher ran once a step for all of them."
        )
        if len(record.rungs) > 1:
            rounds = ", ".join(f"{rung.candidates} to step {rung.end}" for rung in record.rungs)
            yield f"Successive halving: {rounds}. Who was dropped earlier ranks lower."

    def files(self, record: studies.TeacherLayerSearch) -> dict[str, str]:
        columns = ("rank", "layer", "step", "score", *record.scores, "steps", "state", "own_loss")
        rows: list[dict[str, Any]] = []
        for row in record.layers:
            whole = row.to_dict()
            rows += [whole | scored for scored in whole.get("scores") or [{}]]
        return {"layers.csv": blocks.to_csv(columns, rows)}


def layers(record: studies.TeacherLayerSearch) -> Table:
    """Lay out every layer with its score at each rung; before the end of the search with the state of its trial."""
    steps = sorted({scored.step for row in record.layers for scored in row.scores})
    rows: list[tuple[AnyCell, ...]] = []
    finished = all(row.rank is not None for row in record.layers)
    for row in record.layers:
        by_step = {scored.step: scored.score for scored in row.scores}
        scores = (number(by_step.get(step), 2) for step in steps)
        if not finished:
            rows.append((str(row.layer), *scores, row.state))
            continue
        last = row.scores[-1] if row.scores else None
        each = (number(getattr(last, name, None), 2) for name in record.scores)
        end = _ENDS[row.state].format(row.steps)
        rows.append((str(row.rank), str(row.layer), *scores, *each, number(row.own_loss, 4), end))
    headings = ["Layer", *(f"Step {step}" for step in steps), "Trial"]
    if finished:
        headings = ["Rank", *headings[:-1], *record.scores, "Own loss", "Dropped"]
    return Table("Layers", tuple(headings), tuple(rows), words=(len(headings) - 1,))


KINDS: dict[str, SearchTables[Any]] = {"mapping": _Mappings(), "architecture": _Shapes(), "teacher-layer": _Layers()}


def search_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the tables of a finished search for the terminal."""
    search = studies.Search.read(record)
    kind = KINDS[search.kind or ""]
    return blocks.console(*kind.shown(search), blocks.Notes(tuple(kind.notes(search))))


def search_files(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of a finished search, by the names of their files."""
    search = studies.Search.read(record)
    kind = KINDS[search.kind or ""]
    found = kind.found(search)
    setting = [kind.setting(search), *([f"{found} `limbeck distill recipe.yaml` trains it."] if found else [])]
    sections = [
        blocks.Section("", tuple(map(blocks.Paragraph, setting))),
        *(blocks.Section(table.caption, (table,)) for table in kind.tables(search)),
        blocks.Section("Notes", (blocks.Notes(tuple(kind.notes(search))),)),
    ]
    return {"search.md": markdown_file(f"{kind.TITLE}: {search.name}", sections), **kind.files(search)}
