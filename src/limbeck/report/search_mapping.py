"""The view of a search of layer mappings: the generations as ELM's table 5 has them, and the best mappings."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from limbeck.core.blocks import AnyCell, Block, Figure, Notes, Table, counted, duration, number, slug, to_csv
from limbeck.core.studies import MappingSearch
from limbeck.report.figures import lines_figure
from limbeck.report.plots import Boxes, Lines, Panels, Point, Series
from limbeck.report.search_view import SearchView, next_best
from limbeck.search.mapping_space import show_mapping

_MOST_MAPPINGS = 10
_OPERATORS = {"crossing": "crossover", "mutation": "mutation"}
"""Operators that breed children: the name in a generation's record, and the name in text."""
FITNESS = "fitness"
"""Name of the mean of a mapping's scores, beside the names of the scores."""


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
        worker_time = ""
        if cost.all_seconds:
            share = (cost.training_seconds or 0) / cost.all_seconds
            worker_time = f" in {duration(cost.all_seconds)} of worker time, {share:.0%} of it spent distilling"
        yield f"{cost.evaluations:d} of {record.space.size:,} mappings evaluated{worker_time}."

        # Once all mappings are evaluated, no generation can have a new one, so there is nothing to advise.
        idle = [str(generation.number) for generation in record.generations if not generation.evaluated]
        if idle and evaluations < (record.space.size or 0):
            generations = "Generations" if len(idle) > 1 else "Generation"
            yield f"{generations} {', '.join(idle)} produced no new mapping; `--parents best` always does."
        draws = _draws_of_operators(record)
        if draws:
            yield f"Invalid children are drawn again; {' and '.join(draws)} were valid."
        if cost.failed:
            yield f"Trials that failed or were lost with their worker, and were retried: {cost.failed}."
        for mapping in record.given_up:
            yield f"{show_mapping(mapping.mapping)} has no fitness: {mapping.problem}."

    def files(self, record: MappingSearch) -> dict[str, str]:
        """Return every generation and every mapping with a fitness."""
        return {"generations.csv": _generations_csv(record), "candidates.csv": _candidates_csv(record)}

    def pictures(self, record: MappingSearch) -> dict[str, Figure]:
        """Return the fitness by generation, and its distribution."""
        if not record.generations:
            return {}
        return {"evolution": evolution_figure(record), "distribution": distribution_figure(record)}


def _generations_csv(record: MappingSearch) -> str:
    rows: list[dict[str, Any]] = []
    for generation in record.generations:
        row = {
            "generation": generation.number,
            "maximum": generation.maximum,
            "minimum": generation.minimum,
            "mean": generation.mean,
            "deviation": generation.deviation,
            "size": generation.size,
            "evaluated": generation.evaluated,
            "best_gene": generation.best_gene,
            "best_mapping": _spaced(generation.best),
        }
        rows.append(row)
    columns = (
        *("generation", "maximum", "minimum", "mean", "deviation", "size", "evaluated"),
        *("best_gene", "best_mapping"),
    )
    return to_csv(columns, rows)


def _candidates_csv(record: MappingSearch) -> str:
    rows: list[dict[str, Any]] = []
    for candidate in record.candidates:
        row = {
            "mapping": _spaced(candidate.mapping),
            "gene": candidate.gene,
            "fitness": candidate.fitness,
            "generation": candidate.generation,
            "training_seconds": candidate.training_seconds,
            "scoring_seconds": candidate.scoring_seconds,
            **candidate.scores,
        }
        rows.append(row)
    columns = ("mapping", "gene", "fitness", "generation", "training_seconds", "scoring_seconds", *record.scores)
    return to_csv(columns, rows)


def _generations_table(record: MappingSearch) -> Table:
    rows: list[tuple[AnyCell, ...]] = []
    for generation in record.generations:
        cells = (
            f"#{generation.number}",
            number(generation.maximum, 2),
            number(generation.minimum, 2),
            number(generation.mean, 2),
            number(generation.deviation, 2),
            f"{generation.evaluated} of {generation.size}",
            generation.best_gene,
            show_mapping(generation.best),
        )
        rows.append(cells)
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


def _draws_of_operators(record: MappingSearch) -> list[str]:
    """Return the valid draws of each operator that gave children: `12 of 15 draws of mutation`."""
    lines = []
    for operator, name in _OPERATORS.items():
        children = 0
        draws = 0
        for generation in record.generations:
            counts = generation.breeding or {}
            children += counts.get(f"{operator}s", 0)
            draws += counts.get(f"{operator}_draws", 0)
        if children:
            lines.append(f"{children} of {draws} draws of {name}")
    return lines


def _spaced(mapping: Sequence[int]) -> str:
    """Return the teacher layer of each student layer, as CSV files have a mapping: `0 4 8 12`."""
    return " ".join(map(str, mapping))


def evolution_figure(record: MappingSearch) -> Figure:
    """Draw highest, mean and lowest fitness of each generation, the best so far, and every member."""
    best: list[Point] = []
    means: list[Point] = []
    band: list[Point] = []
    highest: list[Point] = []
    lowest: list[Point] = []
    members: list[Point] = []
    fitness_of_members = member_values(record, FITNESS)
    best_so_far = -math.inf
    for generation in record.generations:
        x = generation.number
        best_so_far = max(best_so_far, generation.maximum)
        best.append((x, best_so_far))
        means.append((x, generation.mean))
        band.append((generation.mean - generation.deviation, generation.mean + generation.deviation))
        highest.append((x, generation.maximum))
        lowest.append((x, generation.minimum))
        members += [(x, fitness) for fitness in fitness_of_members[x]]
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
    names = [FITNESS]
    # The fitness is the mean of the scores: a single score is the fitness itself.
    if len(record.scores) > 1:
        names += record.scores
    return _distribution_figure(record, names, "Distribution of the scores by generation")


def _distribution_figure(record: MappingSearch, names: Sequence[str], title: str) -> Figure:
    """Draw box plots by generation, a panel for each named score, and list the values of all members."""
    panels = []
    words = []
    cells_by_generation: dict[int, list[str]] = {}
    for name in names:
        # Older records may have generations without their members, which have no box.
        groups = [(generation, values) for generation, values in member_values(record, name).items() if values]
        panels.append((name, Boxes(groups, "generation", f"{name} (percent)")))
        medians = []
        for generation, values in groups:
            medians.append(f"{statistics.median(values):.2f}")
            values_cell = "; ".join(f"{value:.2f}" for value in values)
            cells_by_generation.setdefault(generation, []).append(values_cell)
        words.append(f"{name}: medians {', '.join(medians)}")

    caption = "A box spans the middle half of the members, with their median; its whiskers reach the extremes."
    drawing = panels[0][1] if len(panels) == 1 else Panels(panels, 3)
    description = f"Box plots of {', '.join(names)} for each generation. {'; '.join(words)}."
    rows = tuple((str(generation), *cells) for generation, cells in cells_by_generation.items())
    data = Table("Members of each generation", ("Generation", *names), rows)
    return Figure(slug(title), title, caption, description, drawing, data)


def member_values(record: MappingSearch, name: str) -> dict[int, list[float]]:
    """Return the values of all members by the number of their generation; a gene that came twice counts twice.

    Args:
        record: The search.
        name: Of a score, or `FITNESS`.
    """
    # Generations list their members by their genes, which name the mappings.
    value_by_gene = {}
    for candidate in record.candidates:
        if name == FITNESS:
            value_by_gene[candidate.gene] = candidate.fitness
        else:
            value_by_gene[candidate.gene] = candidate.scores[name]
    values_by_generation = {}
    for generation in record.generations:
        values_by_generation[generation.number] = [value_by_gene[gene] for gene in generation.members]
    return values_by_generation
