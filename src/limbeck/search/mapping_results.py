"""The results of a genetic search for its record: its generations, the mappings with a fitness, and those without.

A *genome* is a layer mapping as codes, see `mapping_space.py`; its *fitness* is the value of its trial.
"""

import itertools
import statistics
from collections.abc import Sequence
from typing import cast

from optuna.study import Study
from optuna.trial import FrozenTrial

from limbeck.core import studies
from limbeck.search.generations import GENERATION
from limbeck.search.genetic_sampler import generation_key, recorded_generation
from limbeck.search.mapping_space import Genome, MappingSpace, to_binary
from limbeck.search.mapping_trials import genome_of, read_genomes
from limbeck.search.trial_log import DIVERGED
from limbeck.search.work import TRAINING_SECONDS

# User attributes of a trial.
SCORE = "score."
"""Begins the name of one that holds a score."""
SCORING_SECONDS = "scoring_seconds"
"""The time of its scoring."""
PROBLEM = "problem"
"""The reason why it has no score."""

GenerationRow = studies.Generation
"""One generation of a search, a row of ELM's table 5 (arXiv 2012.06153).

`members` are the genomes that have a fitness; `size` also counts those that have none yet, or were given up. A genome
that came twice counts twice. `evaluated` is the number of different members that no earlier generation had; only these
cost an evaluation. Of members with equal fitness the first is `best`. `deviation` divides by the number of members, not
by one less.
"""


def generation_rows(study: Study, space: MappingSpace) -> list[GenerationRow]:
    """Return a row for every generation of which a member has a fitness, also for one that is not finished."""
    attributes = study.user_attrs
    fitness_by_genome = read_genomes(study.get_trials(deepcopy=False), space).values
    rows: list[GenerationRow] = []
    earlier_genomes: set[Genome] = set()
    for number in itertools.count(1):
        genomes = recorded_generation(attributes, number)
        if genomes is None:
            break
        members = [genome for genome in genomes if genome in fitness_by_genome]
        if members:
            best = max(members, key=fitness_by_genome.__getitem__)
            fitnesses = [fitness_by_genome[genome] for genome in members]
            row = GenerationRow(
                number=number,
                maximum=max(fitnesses),
                minimum=min(fitnesses),
                mean=statistics.fmean(fitnesses),
                deviation=statistics.pstdev(fitnesses),
                best=list(space.decode(best)),
                best_gene=to_binary(best, space.bits),
                size=len(genomes),
                evaluated=len(set(members) - earlier_genomes),
                members=[to_binary(genome, space.bits) for genome in members],
                breeding=attributes[generation_key(number)]["breeding"],
            )
            rows.append(row)
        earlier_genomes.update(genomes)
    return rows


def candidates_of(trials: Sequence[FrozenTrial], space: MappingSpace) -> list[studies.Candidate]:
    """Return every evaluated mapping, once, by fitness; of equals the first that was tried."""
    candidates = []
    # `done` has each genome with the first trial that gave it a fitness.
    for genome, trial in read_genomes(trials, space).done.items():
        attributes = trial.user_attrs
        # A trial keeps each score in a user attribute of its own, such as `score.agreement`.
        scores = {}
        for name, value in attributes.items():
            if name.startswith(SCORE):
                scores[name.removeprefix(SCORE)] = value
        candidate = studies.Candidate(
            mapping=list(space.decode(genome)),
            gene=to_binary(genome, space.bits),
            fitness=cast("float", trial.value),
            scores=scores,
            generation=attributes.get(GENERATION),
            trial=trial.number,
            training_seconds=attributes.get(TRAINING_SECONDS),
            scoring_seconds=attributes.get(SCORING_SECONDS),
        )
        candidates.append(candidate)
    return sorted(candidates, key=lambda candidate: candidate.fitness, reverse=True)


def given_up(trials: Sequence[FrozenTrial], space: MappingSpace) -> list[studies.GivenUp]:
    """Return the mappings that came to no fitness, each with its last problem."""
    genomes_with_fitness = read_genomes(trials, space).done
    problems: dict[Genome, str] = {}
    for trial in trials:
        genome = genome_of(trial, space)
        has_diverged = trial.user_attrs.get(DIVERGED)
        if genome is not None and genome not in genomes_with_fitness and has_diverged:
            problems[genome] = trial.user_attrs.get(PROBLEM, "it reached no finite fitness")

    rows = []
    for genome, problem in problems.items():
        mapping = list(space.decode(genome))
        rows.append(studies.GivenUp(mapping=mapping, gene=to_binary(genome, space.bits), problem=problem))
    return rows
