"""What a genetic search is told: the size of a generation, who its parents are, how often its operators act."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

from limbeck.errors import RecipeError, suggestion

Parents: TypeAlias = Literal["generation", "best"]
_PROBABILITIES = ("crossover", "exchange", "mutation", "flip")


@dataclass(frozen=True)
class GeneticSettings:
    """The parameters of ELM's genetic algorithm; the defaults are the paper's.

    Args:
        population: Genomes in a generation, S. The paper has 12 for 4-layer and 20 for 6-layer students.
        crossover: How likely a pair of parents is crossed, p_C.
        exchange: How likely a crossed pair exchanges each of its codes, q_C.
        mutation: How likely a genome is mutated, p_M.
        flip: How likely a mutated genome flips each of its bits, q_M.
        elite: How many of the best genomes of a generation go on unchanged. The paper keeps none.
        parents: Who breeds the next generation. `generation`, the paper's: the last one, children that were evaluated
            before come back with the value they have. `best`, ours: the S best genomes of all generations, and every
            child is new, so that a generation always costs S evaluations.

    Raises:
        RecipeError: for a probability outside [0, 1], a population that cannot breed, an elite that does not fit, or
            unknown parents.

    Source:
        ELM (arXiv 2012.06153) algorithm 1 and section 5.2.
    """

    population: int = 12
    crossover: float = 0.2
    exchange: float = 0.2
    mutation: float = 0.8
    flip: float = 0.05
    elite: int = 0
    parents: Parents = "generation"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _PROBABILITIES and not 0 <= value <= 1:
                raise RecipeError(f"{field.name} {value} is no probability; give a number from 0 to 1.")
        if self.population < 2:
            raise RecipeError(f"A population of {self.population} cannot breed; give at least 2.")
        if not 0 <= self.elite < self.population:
            raise RecipeError(
                f"An elite of {self.elite} does not fit a population of {self.population}; give 0 to "
                f"{self.population - 1}."
            )
        if self.parents not in get_args(Parents):
            raise RecipeError(f"Unknown parents '{self.parents}'.{suggestion(self.parents, get_args(Parents))}")
        if self.elite and self.parents == "best":
            raise RecipeError(
                f"An elite of {self.elite} has no place beside parents 'best', who keep the best; leave it out."
            )


def default_population(student: int) -> int:
    """Return the paper's population for a student's depth: 12 up to 4 layers, 20 for deeper ones.

    Source: ELM section 5.2 for depths 4 and 6; other depths are ours.
    """
    return 12 if student <= 4 else 20
