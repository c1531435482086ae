"""The generations' table of a search: the course of the fitness and the best gene of each.

Source: ELM (arXiv 2012.06153) table 5.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from optuna.study import Study

from limbeck.search.genetic_sampler import recorded_generation
from limbeck.search.genome import to_binary
from limbeck.search.mapping_space import MappingSpace, MappingTuple
from limbeck.search.trials import read_ledger


@dataclass(frozen=True)
class GenerationRow:
    """One generation of a search.

    Args:
        number: Counted from 1.
        fitnesses: Of its members that have a value, in their order; a genome that came twice counts twice.
        size: Members, with those that have no value (yet, or because they were given up).
        evaluated: Members that no earlier generation had, so that they cost an evaluation.
        best: The mapping of highest fitness, 0 for none; the first of equals.
        best_gene: The same in bits.
    """

    number: int
    fitnesses: tuple[float, ...]
    size: int
    evaluated: int
    best: MappingTuple
    best_gene: str

    @property
    def maximum(self) -> float:
        """The highest fitness."""
        return max(self.fitnesses)

    @property
    def minimum(self) -> float:
        """The lowest fitness."""
        return min(self.fitnesses)

    @property
    def mean(self) -> float:
        """The mean fitness."""
        return statistics.fmean(self.fitnesses)

    @property
    def deviation(self) -> float:
        """The standard deviation of the members as they are, divided by their number and not by one less."""
        return statistics.pstdev(self.fitnesses)


def generation_rows(study: Study, space: MappingSpace) -> list[GenerationRow]:
    """Return a row for every generation that has values, also for one that is under way."""
    attributes = study.user_attrs
    values = read_ledger(study.get_trials(deepcopy=False), space).values
    rows: list[GenerationRow] = []
    seen: set[tuple[int, ...]] = set()
    number = 1
    while (genomes := recorded_generation(attributes, number)) is not None:
        scored = [(genome, values[genome]) for genome in genomes if genome in values]
        if scored:
            best, _ = max(scored, key=lambda one: one[1])
            rows.append(
                GenerationRow(
                    number=number,
                    fitnesses=tuple(fitness for _, fitness in scored),
                    size=len(genomes),
                    evaluated=len({genome for genome, _ in scored} - seen),
                    best=space.decode(best),
                    best_gene=to_binary(best, space.bits),
                )
            )
        seen.update(genomes)
        number += 1
    return rows
