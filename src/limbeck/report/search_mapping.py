"""The view of a search of layer mappings: the generations as ELM's table 5 has them, and the best mappings."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from limbeck.core.blocks import AnyCell, Block, Figure, Notes, Table, counted, duration, number, slug, to_csv
from limbeck.core.studies import MappingSearch
from limbeck.report.figures import lines_figure
from limbeck.report.plots import Boxes, Lines, Panels, Point, Series
from limbeck.report.search_view import SearchView, next_best
from limbeck.search.mapping_space import show_mapping

_MOST_MAPPINGS = 10
_OPERATORS = {"crossing": "crossover", "mutation": "mutation"}
_FIGURES_OF_GENERATION = ("maximum", "minimum", "mean", "deviation", "size", "evaluated", "best_gene")


class MappingView(SearchView[MappingSearch]):
    """Layer mappings."""

    TITLE = "Layer mapping search"
    SECTION = "Evolution"

    def scope(self, record: MappingSearch) -> str:
        """Return the number of mappings, and the layers."""
        space = record.space
        return (
            f"{space.size:,} mappings of {space.student_layers} student layers onto {space.teacher_layers} teacher "
            "layers, 0 for none"
        )

    def result(self, record: MappingSearch) -> str:
        """Return the best mapping and its fitness."""
        if record.best is None:
            return ""
        return f"mapping {show_mapping(record.best.mapping)}, fitness {record.best.fitness:.2f}"

    def result_line(self, record: MappingSearch) -> str:
        """Return the best mapping with its gene, its scores, and the fitness of the next one."""
        best = record.best
        if best is None:
            return ""
        scores = ", ".join(f"{name} {score:.2f}" for name, score in best.scores.items())
        second = f"{record.candidates[1].fitness:.2f}" if len(record.candidates) > 1 else None
        return (
            f"Highest fitness of {counted(len(record.candidates), 'mapping')}: {show_mapping(best.mapping)}, gene "
            f"`{best.gene}`, {best.fitness:.2f} ({scores}). {next_best(second)}"
        )

    def tables(self, record: MappingSearch) -> list[Table]:
        """Return the generations and the best mappings."""
        return [_generations_table(record), _best_mappings_table(record)]

    def page_blocks(self, record: MappingSearch, so_far: str) -> Iterator[Block]:
        """Draw the fitness by generation, then list generations and mappings."""
        if not record.generations:
            yield Notes(("No mapping has a fitness yet." if so_far else "No generation has finished.",))
            return
        yield evolution_figure(record)
        yield from score_figures(record)
        generations, mappings = self.tables(record)
        yield replace(generations, caption=f"{generations.caption}{so_far}")
        yield replace(mappings, caption=f"{mappings.caption}{so_far}")
        yield self.page_notes(record, so_far)

    def notes(self, record: MappingSearch) -> Iterator[str]:
        """Describe fitness, cost, generations without news, and mappings without a fitness."""
        cost = record.cost
        evaluations = cost.evaluations or 0
        yield f"Fitness is the mean of {', '.join(record.scores)}, in percent."
        yield (
            "A genome that appears twice in a generation counts twice; Evaluated counts new genomes. Std is the "
            "standard deviation with the number of members as divisor."
        )
        spent = ""
        if cost.all_seconds:
            share = (cost.training_seconds or 0) / cost.all_seconds
            spent = f" in {duration(cost.all_seconds)} of worker time, {share:.0%} of it spent distilling"
        yield f"{cost.evaluations:d} of {record.space.size:,} mappings evaluated{spent}."

        # A generation without news was spent in vain, unless all mappings are known.
        idle = [str(row.number) for row in record.generations if not row.evaluated]
        if idle and evaluations < (record.space.size or 0):
            generations = "Generations" if len(idle) > 1 else "Generation"
            yield f"{generations} {', '.join(idle)} produced no new mapping; `--parents best` always does."
        draws = [_draws(record, operator) for operator in _OPERATORS]
        known = [line for line in draws if line]
        if known:
            yield f"Invalid children are drawn again; {' and '.join(known)} were valid."
        if cost.failed:
            yield f"Trials that failed or were lost with their worker, and were retried: {cost.failed}."
        for mapping in record.given_up:
            yield f"{show_mapping(mapping.mapping)} has no fitness: {mapping.problem}."

    def files(self, record: MappingSearch) -> dict[str, str]:
        """Return every generation and every mapping with a fitness."""
        generations = [
            {**row.to_dict(), "generation": row.number, "best_mapping": _spaced(row.best)} for row in record.generations
        ]
        candidates = [
            {**candidate.to_dict(), **candidate.scores, "mapping": _spaced(candidate.mapping)}
            for candidate in record.candidates
        ]
        columns = ("mapping", "gene", "fitness", "generation", "training_seconds", "scoring_seconds", *record.scores)
        return {
            "generations.csv": to_csv(("generation", *_FIGURES_OF_GENERATION, "best_mapping"), generations),
            "candidates.csv": to_csv(columns, candidates),
        }

    def pictures(self, record: MappingSearch) -> dict[str, Figure]:
        """Return the fitness by generation, and its distribution."""
        if not record.generations:
            return {}
        return {"evolution": evolution_figure(record), "distribution": distribution_figure(record)}


def _generations_table(record: MappingSearch) -> Table:
    rows: list[tuple[AnyCell, ...]] = []
    for row in record.generations:
        fitness = [number(value, 2) for value in (row.maximum, row.minimum, row.mean, row.deviation)]
        evaluated = f"{row.evaluated} of {row.size}"
        rows.append((f"#{row.number}", *fitness, evaluated, row.best_gene, show_mapping(row.best)))
    headings = ("Gen", "Max", "Min", "Avg", "Std", "Evaluated", "Best gene", "Mapping")
    return Table("Generations", headings, tuple(rows), words=(0, 6, 7))


def _best_mappings_table(record: MappingSearch) -> Table:
    rows: list[tuple[AnyCell, ...]] = []
    for candidate in record.candidates[:_MOST_MAPPINGS]:
        scores = [number(candidate.scores[name], 2) for name in record.scores]
        generation = "" if candidate.generation is None else f"#{candidate.generation}"
        rows.append((show_mapping(candidate.mapping), number(candidate.fitness, 2), *scores, generation))
    headings = ("Mapping", "Fitness", *record.scores, "Gen")
    return Table("Best mappings", headings, tuple(rows), words=(0,))


def _draws(record: MappingSearch, operator: str) -> str:
    """Count the draws of an operator that gave valid children."""
    children = 0
    draws = 0
    for row in record.generations:
        counts = row.breeding or {}
        children += counts.get(f"{operator}s", 0)
        draws += counts.get(f"{operator}_draws", 0)
    return f"{children} of {draws} draws of {_OPERATORS[operator]}" if children else ""


def _spaced(mapping: Sequence[int]) -> str:
    return " ".join(map(str, mapping))


def evolution_figure(record: MappingSearch) -> Figure:
    """Draw highest, mean and lowest fitness of each generation, the best so far, and every member."""
    best: list[Point] = []
    means: list[Point] = []
    band: list[Point] = []
    highest: list[Point] = []
    lowest: list[Point] = []
    members: list[Point] = []
    fitness = members_of(record, "fitness")
    best_so_far = -math.inf
    for row in record.generations:
        best_so_far = max(best_so_far, row.maximum)
        best.append((row.number, best_so_far))
        means.append((row.number, row.mean))
        band.append((row.mean - row.deviation, row.mean + row.deviation))
        highest.append((row.number, row.maximum))
        lowest.append((row.number, row.minimum))
        members += [(row.number, value) for value in fitness[row.number]]
    series = [
        Series("best so far", best, "steps"),
        Series("mean, with standard deviation", means, band=band),
        Series("highest", highest),
        Series("lowest", lowest),
        Series("member", members, "points"),
    ]
    label = f"fitness: mean of {', '.join(record.scores)} (percent)"
    caption = "Each point is a member of its generation; the band is the standard deviation of its members."
    plot = Lines(series, "generation", label, x_is_whole=True)
    return lines_figure("Evolution of fitness", plot, caption)


def score_figures(record: MappingSearch) -> Iterator[Figure]:
    """Draw the distribution of every score by generation, where the fitness has several scores."""
    if len(record.scores) > 1:
        for name in record.scores:
            yield _distribution_figure(record, [name], f"Score {name} by generation")


def distribution_figure(record: MappingSearch) -> Figure:
    """Draw the distribution of the fitness and of its scores in each generation as panels, as ELM's figure 4."""
    names = ["fitness", *record.scores] if len(record.scores) > 1 else ["fitness"]
    return _distribution_figure(record, names, "Distribution of the scores by generation")


def _distribution_figure(record: MappingSearch, names: Sequence[str], title: str) -> Figure:
    panels = []
    words = []
    cells_by_generation: dict[int, list[str]] = {}
    for name in names:
        groups = [(generation, values) for generation, values in members_of(record, name).items() if values]
        panels.append((name, Boxes(groups, "generation", f"{name} (percent)")))
        medians = []
        for generation, values in groups:
            medians.append(f"{statistics.median(values):.2f}")
            members = "; ".join(f"{value:.2f}" for value in values)
            cells_by_generation.setdefault(generation, []).append(members)
        words.append(f"{name}: medians {', '.join(medians)}")

    caption = "A box spans the middle half of the members, with their median; its whiskers reach the extremes."
    drawing = panels[0][1] if len(panels) == 1 else Panels(panels, 3)
    description = f"Box plots of {', '.join(names)} for each generation. {'; '.join(words)}."
    rows = tuple((str(generation), *cells) for generation, cells in cells_by_generation.items())
    data = Table("Members of each generation", ("Generation", *names), rows)
    return Figure(slug(title), title, caption, description, drawing, data)


def members_of(record: MappingSearch, name: str) -> dict[int, list[float]]:
    """Return the values of a score, or of the fitness, by generation; a genome that came twice counts twice."""
    # A gene names a mapping: members of a generation are listed by it.
    value_by_gene = {}
    for candidate in record.candidates:
        value_by_gene[candidate.gene] = candidate.fitness if name == "fitness" else candidate.scores[name]
    return {row.number: [value_by_gene[gene] for gene in row.members] for row in record.generations}
