"""The kinds of search: the words, tables, figures and files of each, finished or as far as it has come."""

import statistics
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from limbeck.core import blocks, studies
from limbeck.core.blocks import NOTHING, AnyCell, Block, Cell, Figure, Notes, Table, counted, duration, number
from limbeck.report.figures import plot_figure
from limbeck.report.plots import Axis, Panels, Plot, Point, Series
from limbeck.search.mapping_space import show_mapping

S = TypeVar("S", bound=studies.Search)


class SearchKind(ABC, Generic[S]):
    """A kind of search.

    Attributes:
        TITLE: Of its file.
        SECTION: The title of its course in a report.
    """

    TITLE: ClassVar[str]
    SECTION: ClassVar[str]

    def setting(self, record: S) -> str:
        """Return the models, the text and the space of the search in a line."""
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
    def result(self, record: S) -> tuple[str, str]:
        """Return the result in a few words, and in a line; empty for none."""

    @abstractmethod
    def tables(self, record: S) -> list[Table]:
        """Return the tables of its file."""

    def shown(self, record: S) -> list[Block]:
        """Return the lines and tables for a console."""
        return [*([blocks.Paragraph(found)] if (found := self.result(record)[1]) else []), *self.tables(record)]

    @abstractmethod
    def course(self, record: S, so_far: str) -> Iterator[Block]:
        """Draw and list the results; `so_far` stands in the captions of a search that is not finished."""

    @abstractmethod
    def notes(self, record: S) -> Iterator[str]:
        """Describe the figures, the cost, and what came to nothing."""

    def _notes(self, record: S, so_far: str) -> Notes:
        return Notes(() if so_far else tuple(self.notes(record)))

    @abstractmethod
    def files(self, record: S) -> dict[str, str]:
        """Return tables of unrounded numbers by the names of their files."""

    @abstractmethod
    def pictures(self, record: S) -> dict[str, Figure]:
        """Return its figures by the names of their files."""


def _once(others: Iterable[str]) -> str:
    """Say how far the next candidate is behind, and that one training of each tells nothing from chance."""
    following = next(iter(others), None)
    behind = "" if following is None else f"The next best has {following}. "
    return f"{behind}Each was trained once, with one seed: differences may be due to chance."


_BEST_MAPPINGS = 10
_OPERATORS = {"crossing": "crossover", "mutation": "mutation"}


class _Mappings(SearchKind[studies.MappingSearch]):
    """Layer mappings: the generations as ELM's table 5 has them, and the best mappings."""

    TITLE, SECTION = "Layer mapping search", "Evolution"

    def scope(self, record: studies.MappingSearch) -> str:
        space = record.space
        return (
            f"{space.size:,} mappings of {space.student_layers} student layers onto {space.teacher_layers} teacher "
            "layers, 0 for none"
        )

    def result(self, record: studies.MappingSearch) -> tuple[str, str]:
        best = record.best
        if best is None:
            return "", ""
        mapping, scores = show_mapping(best.mapping), ", ".join(f"{n} {score:.2f}" for n, score in best.scores.items())
        found = (
            f"Highest fitness of {counted(len(record.candidates), 'mapping')}: {mapping}, gene `{best.gene}`, "
            f"{best.fitness:.2f} ({scores}). {_once(f'{one.fitness:.2f}' for one in record.candidates[1:])}"
        )
        return f"mapping {mapping}, fitness {best.fitness:.2f}", found

    def tables(self, record: studies.MappingSearch) -> list[Table]:
        return [_generations(record), _best_mappings(record)]

    def course(self, record: studies.MappingSearch, so_far: str) -> Iterator[Block]:
        if not record.generations:
            yield Notes(("No mapping has a fitness yet." if so_far else "No generation has finished.",))
            return
        yield evolution_figure(record)
        yield from distribution_figures(record)
        yield _generations(record, so_far)
        yield replace(_best_mappings(record), caption=f"Best mappings{so_far}")
        yield self._notes(record, so_far)

    def notes(self, record: studies.MappingSearch) -> Iterator[str]:
        cost, seconds = record.cost, record.cost.all_seconds
        yield f"Fitness is the mean of {', '.join(record.scores)}, in percent."
        yield (
            "A genome that appears twice in a generation counts twice; Evaluated counts new genomes. Std is the "
            "standard deviation with the number of members as divisor."
        )
        share = f"{(cost.training_seconds or 0) / seconds:.0%} of it spent distilling" if seconds else ""
        spent = f" in {duration(seconds)} of worker time, {share}" if seconds else ""
        yield f"{cost.evaluations:d} of {record.space.size:,} mappings evaluated{spent}."
        idle = [str(row.number) for row in record.generations if not row.evaluated]
        if idle and (cost.evaluations or 0) < (record.space.size or 0):
            plural = "s" if len(idle) > 1 else ""
            yield f"Generation{plural} {', '.join(idle)} produced no new mapping; `--parents best` always does."
        if legal := [text for operator in ("crossing", "mutation") if (text := _draws(record, operator))]:
            yield f"Invalid children are drawn again; {' and '.join(legal)} were valid."
        if cost.failed:
            yield f"Trials that failed or were lost with their worker, and were retried: {cost.failed}."
        for one in record.given_up:
            yield f"{show_mapping(one.mapping)} has no fitness: {one.problem}."

    def files(self, record: studies.MappingSearch) -> dict[str, str]:
        names = ("maximum", "minimum", "mean", "deviation", "size", "evaluated", "best_gene")
        rows = (
            {**row.to_dict(), "generation": row.number, "best_mapping": _spaced(row.best)} for row in record.generations
        )
        columns = ("gene", "fitness", "generation", "training_seconds", "scoring_seconds")
        candidates = ({**one.to_dict(), **one.scores, "mapping": _spaced(one.mapping)} for one in record.candidates)
        return {
            "generations.csv": blocks.to_csv(("generation", *names, "best_mapping"), rows),
            "candidates.csv": blocks.to_csv(("mapping", *columns, *record.scores), candidates),
        }

    def pictures(self, record: studies.MappingSearch) -> dict[str, Figure]:
        if not record.generations:
            return {}
        return {"evolution": evolution_figure(record), "distribution": distribution_figure(record)}


def _generations(record: studies.MappingSearch, so_far: str = "") -> Table:
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
    return Table(f"Generations{so_far}", headings, rows, words=(0, 6, 7))


def _best_mappings(record: studies.MappingSearch) -> Table:
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
    done, drawn = (sum(counts.get(name, 0) for counts in bred) for name in (f"{operator}s", f"{operator}_draws"))
    return f"{done} of {drawn} draws of {_OPERATORS[operator]}" if done else ""


def _spaced(mapping: Sequence[int]) -> str:
    return " ".join(map(str, mapping))


_SHAPES_ON_CONSOLE, _SHAPES_ON_PAGE = 20, 100
_LOSSES = {
    "hidden": "the variance of the teacher's last hidden states that a linear map of the student's leaves unexplained",
    "relations": "the divergence of the last layers' query, key and value relations",
    "hidden_states": "L_HS of the comparative study (equation 6): squared errors of the teacher's hidden states under "
    "linear maps of the student's, summed over the taught layers",
}
_SHAPE_COLUMNS = (
    *("trial", "layers", "hidden", "heads", "ffn", "parameters", "latency_share", "latency_ms", "teacher_ms"),
    *("threads", "note", "loss", "reward", "steps", "state", "reason", "training_seconds", "front"),
)
_STATES = ("trained", "cut", "diverged", "refused")


class _Shapes(SearchKind[studies.ArchitectureSearch]):
    """Student shapes: the front of loss and latency, and every shape that was tried."""

    TITLE, SECTION = "Search of student shapes", "Shapes"

    def scope(self, record: studies.ArchitectureSearch) -> str:
        sizes = (
            f"{name} {' / '.join(f'{value:g}' for value in getattr(record.space, name))}"
            for name in ("layers", "hidden", "heads", "ffn")
        )
        return f"{', '.join(sizes)} (FFN in multiples of the hidden size), sampler {record.sampler}"

    def result(self, record: studies.ArchitectureSearch) -> tuple[str, str]:
        best = record.best
        if best is None:
            return "", ""
        others = (
            shape.reward for shape in _by_reward(record) if shape.trial != best.trial and shape.state == "trained"
        )
        trained = sum(shape.state == "trained" for shape in record.shapes)
        found = (
            f"Highest reward of {counted(trained, 'trained shape')}: {describe_shape(best)}, "
            f"{best.parameters:,} parameters, {best.latency_share:.3f} of the teacher's latency, "
            f"loss {best.loss:.4f}, reward {best.reward:.4f}. "
            f"{_once(f'{reward or 0:.4f}' for reward in others)}"
        )
        return f"{describe_shape(best)}, {best.latency_share:.3f} of the teacher's latency, loss {best.loss:.4f}", found

    def tables(self, record: studies.ArchitectureSearch) -> list[Table]:
        return [_front(record), _shapes(record, "All shapes")]

    def shown(self, record: studies.ArchitectureSearch) -> list[Block]:
        count = len(record.shapes)
        some = f", the best {_SHAPES_ON_CONSOLE} of {count}" if count > _SHAPES_ON_CONSOLE else ""
        table = replace(_shapes(record, f"Shapes{some}", _SHAPES_ON_CONSOLE), left_out=0)
        return [blocks.Paragraph(self.result(record)[1]), _front(record), table]

    def course(self, record: studies.ArchitectureSearch, so_far: str) -> Iterator[Block]:
        if not record.shapes:
            yield Notes(("No shape has a result yet.",))
            yield self._notes(record, so_far)
            return
        if record.best is not None:
            yield shapes_figure(record)
            yield _front(record, so_far)
        yield _shapes(record, f"All shapes{so_far}, highest reward first", _SHAPES_ON_PAGE)
        yield self._notes(record, so_far)

    def notes(self, record: studies.ArchitectureSearch) -> Iterator[str]:
        cost, latency, limits = record.cost, record.latency, record.limits
        untrained = f"{record.loss.untrained:.4f}"
        scale = f"divided by that of an untrained student ({untrained})"
        if record.loss.kind == "hidden_states":
            scale = f"as printed, so not divided by that of an untrained student ({untrained})"
        yield (
            f"Loss is {_LOSSES[record.loss.kind or '']}, on held-out text, {scale}; reward is (1 - loss) x (share of "
            "latency / 0.6)^-0.06."
        )
        if record.episode is not None:
            yield (
                "Sampler kd_nas: the controller of KD-NAS (arXiv 2303.09639) predicts rewards and is refitted for each "
                f"proposal; each episode of {record.episode} draws 5 % less at random than the one before."
            )
        yield (
            f"Latency: {latency.batch} x {latency.length} tokens, {latency.dtype}, on {latency.device}, "
            "teacher and student measured alternately, the least disturbed pass of each; the teacher takes "
            f"{record.teacher.latency_ms:.1f} ms. Parameters are the encoder's, without pooler and head."
        )
        for note, count in Counter(shape.note for shape in record.shapes if shape.note is not None).items():
            yield (
                f"Latency of {count} of {counted(len(record.shapes), 'shape')}: {note}, so processor time was taken; "
                "for wall-clock time, measure on an idle machine."
            )
        asked = [] if limits.parameters is None else [f"{limits.parameters:,} parameters"]
        asked += [] if limits.latency_share is None else [f"{limits.latency_share:g} of the teacher's latency"]
        if asked:
            yield f"Limits: {' and '.join(asked)}. Shapes beyond them were not trained."
        others = [f"{count} {state}" for state in _STATES[1:] if (count := getattr(cost, state))]
        time = f" in {duration(cost.training_seconds)} of worker time" if cost.training_seconds else ""
        aside = f"; {', '.join(others)}" if others else ""
        yield f"{cost.trained:d} of {record.space.shapes:,} shapes trained to the end{aside}{time}."
        if cost.failed:
            yield f"Trials that failed or were lost with their worker, and were retried: {cost.failed}."

    def files(self, record: studies.ArchitectureSearch) -> dict[str, str]:
        rows = ({**shape.to_dict(), "front": shape.trial in record.front} for shape in record.shapes)
        return {"shapes.csv": blocks.to_csv(_SHAPE_COLUMNS, rows)}

    def pictures(self, record: studies.ArchitectureSearch) -> dict[str, Figure]:
        return {"loss_and_latency": shapes_figure(record)}


def _front(record: studies.ArchitectureSearch, so_far: str = "") -> Table:
    """Lay out the shapes that no other beats in both loss and latency, the fastest first."""
    by_trial = {shape.trial: shape for shape in record.shapes}
    rows: tuple[tuple[AnyCell, ...], ...] = tuple(
        (describe_shape(shape), number(shape.parameters), number(shape.latency_ms, 2), *_shape_figures(shape))
        for shape in map(by_trial.__getitem__, record.front)
    )
    headings = ("Shape", "Parameters", "Latency (ms)", "Latency share", "Loss", "Reward")
    return Table(f"Pareto front of loss and latency{so_far}", headings, rows, words=(0,))


def _shapes(record: studies.ArchitectureSearch, caption: str, most: int | None = None) -> Table:
    """Lay out trained shapes by reward, then those that were cut, diverged or refused, by trial."""
    ranked = _by_reward(record)
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
    headings = ("Trial", "Shape", "Parameters", "Latency share", "Loss", "Reward", "State")
    return Table(caption, headings, rows, words=(1, 6), left_out=len(ranked) - len(rows))


def _by_reward(record: studies.ArchitectureSearch) -> list[studies.SearchedShape]:
    return sorted(record.shapes, key=lambda shape: (_STATES.index(shape.state), -(shape.reward or 0.0), shape.trial))


def _shape_figures(shape: studies.SearchedShape) -> tuple[Cell, ...]:
    return number(shape.latency_share, 3), number(shape.loss, 4), number(shape.reward, 4)


def describe_shape(shape: studies.SearchedShape) -> str:
    """Write a shape as the student's blueprint is written."""
    return f"{shape.layers}x{shape.hidden}, {shape.heads} heads, FFN {shape.ffn}"


_ENDS = {"cut": "after {}", "trained": NOTHING, "diverged": "diverged"}


class _Layers(SearchKind[studies.TeacherLayerSearch]):
    """Teacher layers: every candidate with its score at each rung."""

    TITLE, SECTION = "Search of teacher layers", "Layers of the teacher"

    def result(self, record: studies.TeacherLayerSearch) -> tuple[str, str]:
        if record.best is None:
            return "", ""
        layer, last = record.best.layer, record.best.scores[-1]
        scores = (row.scores[-1].score for row in record.layers if row.layer != layer and row.scores)
        found = (
            f"Highest score: teacher layer {layer} of {record.teacher.layers}, {last.score:.2f} after {last.step} "
            f"steps. {_once(f'{score:.2f}' for score in scores if score is not None)}"
        )
        return f"layer {layer}, score {last.score:.2f}", found

    def tables(self, record: studies.TeacherLayerSearch) -> list[Table]:
        return [_layers(record)]

    def shown(self, record: studies.TeacherLayerSearch) -> list[Block]:
        return [blocks.Paragraph(self.result(record)[1]), replace(_layers(record), caption="")]

    def course(self, record: studies.TeacherLayerSearch, so_far: str) -> Iterator[Block]:
        if record.best is not None:
            yield race_figure(record, "highest so far" if so_far else "highest")
        yield replace(_layers(record), caption=f"Layers{so_far}, longest trained first, then highest score")
        yield self._notes(record, so_far)

    def notes(self, record: studies.TeacherLayerSearch) -> Iterator[str]:
        yield (
            f"Score is the mean of {' and '.join(record.scores)}, in percent, on held-out text: how closely the "
            "student's order of sentence pairs follows its teacher's, and how much of the teacher's last hidden states "
            "a linear map of the student's explains. Own loss is each student's own held-out loss; it cannot be "
            "compared between layers."
        )
        yield (
            f"All candidates were trained at once: {record.cost.steps:,} steps in all, in "
            f"{duration(record.cost.seconds or 0)}, and the teacher ran once per step for all of them."
        )
        if len(record.rungs) > 1:
            rounds = ", ".join(f"{rung.candidates} to step {rung.end}" for rung in record.rungs)
            yield f"Successive halving: {rounds}. Layers dropped earlier rank lower."

    def files(self, record: studies.TeacherLayerSearch) -> dict[str, str]:
        columns = ("rank", "layer", "step", "score", *record.scores, "steps", "state", "own_loss")
        rows: list[dict[str, Any]] = []
        for row in record.layers:
            whole = row.to_dict()
            rows += [whole | scored for scored in whole.get("scores") or [{}]]
        return {"layers.csv": blocks.to_csv(columns, rows)}

    def pictures(self, record: studies.TeacherLayerSearch) -> dict[str, Figure]:
        return {"layers": race_figure(record)}


def _layers(record: studies.TeacherLayerSearch) -> Table:
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
        rows.append((str(row.layer), *scores, *each, number(row.own_loss, 4), end))
    headings = ["Layer", *(f"Step {step}" for step in steps), "Trial"]
    if finished:
        headings = [*headings[:-1], *record.scores, "Own loss", "Dropped"]
    return Table("Layers", tuple(headings), tuple(rows), words=(len(headings) - 1,))


KINDS: dict[str, SearchKind[Any]] = {"mapping": _Mappings(), "architecture": _Shapes(), "teacher-layer": _Layers()}


# Figures: the course of the fitness, loss against latency of shapes, scores of teacher layers.

_GENERATION = Axis("generation", whole=True)
_SPREAD = 0.12
"""Of the dots of a generation, sideways, so that equal ones are seen."""


def evolution_figure(record: studies.MappingSearch) -> Figure:
    """Draw highest, mean and lowest fitness of each generation, the best so far, and every member."""
    rows = record.generations
    best = [(row.number, max(other.maximum for other in rows[: place + 1])) for place, row in enumerate(rows)]
    band = [(row.mean - row.deviation, row.mean + row.deviation) for row in rows]
    series = [
        _members(record, "fitness"),
        Series("best so far", best, 1, "steps"),
        Series("mean, with standard deviation", [(row.number, row.mean) for row in rows], 0, band=band),
        Series("highest", [(row.number, row.maximum) for row in rows], 2),
        Series("lowest", [(row.number, row.minimum) for row in rows], 3),
    ]
    label = f"fitness: mean of {', '.join(record.scores)} (percent)"
    caption = "Each cross is a member of its generation; the band is the standard deviation of its members."
    return plot_figure("Evolution of fitness", Plot(series, _GENERATION, Axis(label)), caption)


def distribution_figures(record: studies.MappingSearch) -> Iterator[Figure]:
    """Draw every score of the members of each generation, where the fitness has several scores."""
    for name in record.scores if len(record.scores) > 1 else ():
        yield plot_figure(f"Score {name} by generation", _distribution(record, name))


def distribution_figure(record: studies.MappingSearch) -> Figure:
    """Draw the distribution of the fitness and of its scores in each generation as panels, as ELM's figure 4."""
    names = ["fitness", *record.scores] if len(record.scores) > 1 else ["fitness"]
    panels = [(name, _distribution(record, name)) for name in names]
    medians = [(name, ", ".join(f"{value:.2f}" for _, value in plot.series[1].points)) for name, plot in panels]
    title = "Distribution of the scores by generation"
    caption = "A box spans the middle half of the members, with their median; its whiskers reach the extremes."
    words = "; ".join(f"{name}: medians {found}" for name, found in medians)
    words = f"Box plots of {', '.join(names)} for each generation. {words}."
    data = Table(title, ("", "Medians"), tuple(medians))
    return Figure("distribution", title, caption, words, Panels(panels, 3), data)


def shapes_figure(record: studies.ArchitectureSearch) -> Figure:
    """Draw the loss of every shape that was trained to the end against its latency, with the front and the best."""
    trained = [shape for shape in record.shapes if shape.state == "trained"]
    by_trial = {shape.trial: shape for shape in trained}
    best = [record.best] if record.best is not None else []
    others = [shape for shape in trained if shape.trial not in record.front]
    series = [
        _trained("Pareto front", [by_trial[trial] for trial in record.front], 1, mark="steps"),
        _trained("shape", others, 0),
        _trained("best reward", best, 3, large=True),
    ]
    limit = record.limits.latency_share
    caption = f"{counted(len(trained), 'shape')}; best reward: {describe_shape(best[0])}."
    caption += f" Latency limit: {limit:g} of the teacher's." if limit is not None else ""
    x = Axis("latency relative to the teacher's", from_zero=True)
    plot = Plot([one for one in series if one.points], x, Axis("loss (1: untrained)"), limit)
    return plot_figure("Loss and latency of shapes", plot, caption)


def race_figure(record: studies.TeacherLayerSearch, mark: str = "highest") -> Figure:
    """Draw the score of every layer at every step that it was scored at, and mark the best.

    Args:
        record: Of the search, or of its course so far; it has a best layer.
        mark: The name of the best.
    """
    scored: dict[int, list[Point]] = {}
    for row in record.layers:
        for one in row.scores:
            if one.score is not None:
                scored.setdefault(one.step, []).append((row.layer, one.score))
    steps = sorted(scored)
    series = [Series(f"after {step:,} steps", sorted(scored[step]), style + 2) for style, step in enumerate(steps)]
    for best in filter(None, [record.best]):
        place = (best.layer, best.scores[-1].score or 0.0)
        series.append(Series(f"{mark}: layer {best.layer}", [place], 1, "points", large=True))
    x, y = Axis("teacher layer", whole=True), Axis(f"score: mean of {', '.join(record.scores)} (percent)")
    return plot_figure("Scores of students by teacher layer", Plot(series, x, y))


def members_of(record: studies.MappingSearch, name: str) -> list[list[float]]:
    """Return the values of a score, or of the fitness, by generation; a genome that came twice counts twice."""
    by_gene = {one.gene: one.fitness if name == "fitness" else one.scores[name] for one in record.candidates}
    return [[by_gene[gene] for gene in row.members] for row in record.generations]


def _distribution(record: studies.MappingSearch, name: str) -> Plot:
    """Return the members of each generation, and their median with its box."""
    groups = {row.number: v for row, v in zip(record.generations, members_of(record, name), strict=True) if v}
    medians = [(number, statistics.median(values)) for number, values in groups.items()]
    series = [_members(record, name), Series("median", medians, 1, boxes=list(groups.values()))]
    return Plot(series, _GENERATION, Axis(f"{name} (percent)"))


def _members(record: studies.MappingSearch, name: str) -> Series:
    """Return the members of each generation side by side."""
    points: list[Point] = []
    for row, values in zip(record.generations, members_of(record, name), strict=True):
        middle = (len(values) - 1) / 2
        spread = (_SPREAD * (index - middle) / max(middle, 1) for index in range(len(values)))
        points += [(row.number + aside, value) for aside, value in zip(spread, values, strict=True)]
    return Series("member", points, 5, "points")


def _trained(label: str, shapes: Sequence[studies.SearchedShape], style: int, **more: Any) -> Series:
    points = [(shape.latency_share or 0.0, shape.loss or 0.0) for shape in shapes]
    names = [f"{shape.layers}x{shape.hidden}h{shape.heads}f{shape.ffn}" for shape in shapes]
    return Series(label, points, style, **{"mark": "points", **more}, names=names)
