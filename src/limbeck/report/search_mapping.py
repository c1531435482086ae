"""The view of a search of layer mappings: its generations as in ELM's table 5, and the best mappings.

A *mapping* gives each student layer the teacher layer that it learns from, 0 for none. The search is evolutionary: a
*generation* has several members, whose mappings are bred from those of the generation before. A mapping is written as
a *gene*, a string of bits; its *fitness* is the mean of its scores.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from limbeck.core.blocks import AnyCell, Figure, Notes, Table, duration, number, to_csv
from limbeck.core.studies import MappingSearch
from limbeck.report.figures import lines_figure
from limbeck.report.plots import Lines, Point, Series
from limbeck.report.search_view import SearchView
from limbeck.report.sections import Highlight
from limbeck.search.mapping_space import show_mapping

_MOST_MAPPINGS = 10
"""Mappings in the table of the best."""
_GENERATION_COLUMNS = (
    "generation",
    "maximum",
    "minimum",
    "mean",
    "deviation",
    "size",
    "evaluated",
    "best_gene",
    "best_mapping",
)
_MAPPING_COLUMNS = ("mapping", "gene", "fitness", "generation", "training_seconds", "scoring_seconds")


class MappingView(SearchView[MappingSearch]):
    """Layer mappings."""

    TITLE = "Layer mapping search"

    def best(self, record: MappingSearch) -> str:
        """Return the best mapping and its fitness."""
        if record.best is None:
            return ""
        return f"mapping {show_mapping(record.best.mapping)}, fitness {record.best.fitness:.2f}"

    def second_score(self, record: MappingSearch) -> str:
        """Return the fitness of the second-best mapping."""
        # The candidates are sorted by their fitness.
        if len(record.candidates) < 2:
            return ""
        return f"{record.candidates[1].fitness:.2f}"

    def highlights(self, record: MappingSearch) -> Iterator[Highlight]:
        """Yield the best fitness and the next one, and the number of mappings."""
        if record.best is None:
            return
        yield Highlight(f"{record.best.fitness:.2f}", "best fitness", f"mapping {show_mapping(record.best.mapping)}")
        second_score = self.second_score(record)
        if second_score:
            yield Highlight(second_score, "next best fitness", f"mapping {show_mapping(record.candidates[1].mapping)}")
        total = "" if record.space.size is None else f"of {record.space.size:,} possible ones"
        yield Highlight(f"{len(record.candidates):,}", "mappings with a fitness", total)

    def blocks(self, record: MappingSearch) -> Iterator[Figure | Table | Notes]:
        """Draw the fitness by generation, then list generations and mappings."""
        if not record.generations:
            yield Notes(("No mapping has a fitness yet.",))
            return
        yield evolution_figure(record)
        yield _generations_table(record)
        yield _best_mappings_table(record)

    def notes(self, record: MappingSearch) -> Iterator[str]:
        """Explain the fitness; state the cost, and name generations without a new mapping and mappings that failed."""
        cost = record.cost
        space = record.space
        yield f"Fitness is the mean of {', '.join(record.scores)}, in percent."
        yield (
            "A genome that appears twice in a generation counts twice; Evaluated counts new genomes. Std is the "
            "standard deviation with the number of members as divisor."
        )
        line = (
            f"{cost.evaluations:d} of {space.size:,} mappings of {space.student_layers} student layers onto "
            f"{space.teacher_layers} teacher layers (0 for none) were evaluated"
        )
        if cost.all_seconds:
            share = (cost.training_seconds or 0) / cost.all_seconds
            line += f" in {duration(cost.all_seconds)} of worker time, {share:.0%} of it spent distilling"
        yield f"{line}."

        # Advice for generations that bred only mappings that had been evaluated before. Where all mappings have been
        # evaluated, there can be no new one, so there is no advice.
        idle = [str(generation.number) for generation in record.generations if not generation.evaluated]
        has_new_mappings = (cost.evaluations or 0) < (space.size or 0)
        if idle and has_new_mappings:
            generations = "Generations" if len(idle) > 1 else "Generation"
            yield f"{generations} {', '.join(idle)} produced no new mapping; `--parents best` always does."
        if cost.failed:
            yield f"Trials that failed or were lost with their worker, and were retried: {cost.failed}."
        for mapping in record.given_up:
            yield f"{show_mapping(mapping.mapping)} has no fitness: {mapping.problem}."

    def csv_files(self, record: MappingSearch) -> dict[str, str]:
        """Return every generation, and every mapping with a fitness."""
        # `to_csv` writes the named columns and leaves out the other fields of a record.
        generation_rows = []
        for generation in record.generations:
            row = generation.to_dict()
            row["generation"] = generation.number
            row["best_mapping"] = _spaced(generation.best)
            generation_rows.append(row)
        candidate_rows = []
        for candidate in record.candidates:
            row = candidate.to_dict()
            # Each score is a column, and the mapping is text in place of a list.
            row.update(candidate.scores)
            row["mapping"] = _spaced(candidate.mapping)
            candidate_rows.append(row)
        return {
            "generations.csv": to_csv(_GENERATION_COLUMNS, generation_rows),
            "candidates.csv": to_csv((*_MAPPING_COLUMNS, *record.scores), candidate_rows),
        }


def _spaced(mapping: Sequence[int]) -> str:
    """Write a mapping as CSV files have it, the teacher layer of each student layer: `0 4 8 12`."""
    return " ".join(map(str, mapping))


def _generations_table(record: MappingSearch) -> Table:
    """Lay out the scores and the best mapping of each generation, a row each."""
    rows: list[tuple[AnyCell, ...]] = []
    for generation in record.generations:
        cells = (
            f"#{generation.number}",
            number(generation.maximum, digits=2),
            number(generation.minimum, digits=2),
            number(generation.mean, digits=2),
            number(generation.deviation, digits=2),
            f"{generation.evaluated} of {generation.size}",
            generation.best_gene,
            show_mapping(generation.best),
        )
        rows.append(cells)
    headings = ("Gen", "Max", "Min", "Avg", "Std", "Evaluated", "Best gene", "Mapping")
    return Table("Generations", headings, tuple(rows)).with_words("Gen", "Best gene", "Mapping")


def _best_mappings_table(record: MappingSearch) -> Table:
    """Lay out the best mappings with their scores; the record has the candidates sorted by their fitness."""
    rows: list[tuple[AnyCell, ...]] = []
    for candidate in record.candidates[:_MOST_MAPPINGS]:
        scores = [number(candidate.scores[name], digits=2) for name in record.scores]
        generation = "" if candidate.generation is None else f"#{candidate.generation}"
        rows.append((show_mapping(candidate.mapping), number(candidate.fitness, digits=2), *scores, generation))
    headings = ("Mapping", "Fitness", *record.scores, "Gen")
    return Table("Best mappings", headings, tuple(rows)).with_words(headings[0])


def evolution_figure(record: MappingSearch) -> Figure:
    """Draw the fitness of every member by its generation, the mean of each generation, and the best so far."""
    fitness_by_gene = {candidate.gene: candidate.fitness for candidate in record.candidates}
    best: list[Point] = []
    means: list[Point] = []
    band: list[Point] = []
    members: list[Point] = []
    best_so_far = -math.inf
    for generation in record.generations:
        x = generation.number
        best_so_far = max(best_so_far, generation.maximum)
        best.append((x, best_so_far))
        means.append((x, generation.mean))
        band.append((generation.mean - generation.deviation, generation.mean + generation.deviation))
        # Members are listed by their genes; a gene that came twice counts twice.
        members += [(x, fitness_by_gene[gene]) for gene in generation.members]
    series = [
        Series("best so far", best, "steps"),
        Series("mean, with standard deviation", means, band=band),
        Series("member", members, "points"),
    ]
    plot = Lines(series, x="generation", y=f"fitness: mean of {', '.join(record.scores)} (percent)", x_is_whole=True)
    caption = "Each point is a member of its generation; the band is the standard deviation of its members."
    return replace(lines_figure("Evolution of fitness", plot, caption), name="evolution")
