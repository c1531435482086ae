"""Does the genetic search beat random search where the best mapping is known?

A mapping is planted in each of the paper's four spaces, and the fitness of every other falls with its distance from it,
in three ways. Both searches see the fitness with noise, evaluate as many different mappings, and return the one that
they saw highest; the one whose mapping is truly fitter has won. The searches are the paper's generations and those with
`parents="best"`, each after the paper's 5 generations and after 20. Nothing here was chosen by what came out.

    python benchmarks/search_synthetic.py --output benchmarks/results/search_synthetic.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from pathlib import Path

import numpy as np

from limbeck import __version__
from limbeck.search.genetic import GeneticSettings, default_population, next_generation
from limbeck.search.mapping_space import elm_space

SPACES = ((4, 12), (6, 12), (4, 24), (6, 24))
LANDSCAPES = ("distance", "matches", "rugged")
NOISES = (0.0, 0.1, 0.25, 0.5, 1.0)
GENERATIONS = (5, 20)
SEEDS = 50


class Members:
    """A space with all its members: genomes, their rows, and their mappings `[members, student layers]`."""

    def __init__(self, student, teacher):
        self.space = elm_space(student, teacher)
        self.genomes = list(self.space)
        self.rows = {genome: row for row, genome in enumerate(self.genomes)}
        self.mappings = np.array([self.space.decode(genome) for genome in self.genomes])


def landscape(kind, members, random):
    """The true fitness of every member, 0 and highest at one that is drawn.

    distance: minus the sum over student layers of |g(m) - planted| / N, or 1 where only one of the two is none.
    matches: minus the number of student layers that are not as planted.
    rugged: distance, less a random number in [0, 1) for each two neighbouring student layers that are not as planted,
        one number for each pair of teacher layers.
    """
    planted = members.mappings[random.integers(len(members.genomes))]
    different = members.mappings != planted
    if kind == "matches":
        return -different.sum(axis=1).astype(float)
    apart = np.abs(members.mappings - planted) / members.space.teacher
    one_is_none = (members.mappings == 0) != (planted == 0)
    fitness = -np.where(one_is_none, 1.0, apart).sum(axis=1)
    if kind == "rugged":
        size = members.space.teacher + 1
        for m in range(members.space.student - 1):
            penalties = random.random((size, size))[members.mappings[:, m], members.mappings[:, m + 1]]
            fitness -= penalties * (different[:, m] | different[:, m + 1])
    return fitness


def evolve(members, seen, settings, generations, seed):
    """The rows of all members that a genetic search has evaluated after each generation."""
    history, rows, after = [], {}, []
    for number in range(1, generations + 1):
        random = np.random.default_rng([seed, number])
        genomes, _ = next_generation(members.space, history, settings, random)
        found = [members.rows[genome] for genome in genomes]
        rows.update(dict.fromkeys(found))
        history.append([(genome, float(seen[row])) for genome, row in zip(genomes, found, strict=True)])
        after.append(list(rows))
    return after


def compare(members, kind, noise, settings, generations=GENERATIONS, seeds=SEEDS):
    """One row for each number of generations: how often the search was better, as good, or worse."""
    runs = {count: [] for count in generations}
    for seed in range(seeds):
        random = np.random.default_rng([seed, 0])
        true = landscape(kind, members, random)
        spread = true.std()
        seen = true + noise * spread * random.standard_normal(len(true))
        order = random.choice(len(true), size=min(len(true), settings.population * max(generations)), replace=False)
        after = evolve(members, seen, settings, max(generations), seed)
        for count in generations:
            rows = after[count - 1]
            chosen = [
                float(true[max(found, key=seen.__getitem__)] / spread) for found in (rows, order[: len(rows)].tolist())
            ]
            runs[count].append((*chosen, len(rows)))
    return [summary(runs[count]) | {"generations": count} for count in generations]


def summary(runs):
    """Counts of seeds; how far from the planted optimum, in deviations of the fitness over the space."""
    searched, drawn, evaluations = zip(*runs, strict=True)
    return {
        "better": sum(s > d for s, d in zip(searched, drawn, strict=True)),
        "equal": sum(s == d for s, d in zip(searched, drawn, strict=True)),
        "worse": sum(s < d for s, d in zip(searched, drawn, strict=True)),
        "short_of_optimum": round(-statistics.fmean(searched), 3),
        "random_short_of_optimum": round(-statistics.fmean(drawn), 3),
        "evaluations": round(statistics.fmean(evaluations), 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    versions = {"limbeck": __version__, "python": platform.python_version(), "numpy": np.__version__}
    rows = []
    for student, teacher in SPACES:
        members = Members(student, teacher)
        for parents in ("generation", "best"):
            settings = GeneticSettings(population=default_population(student), parents=parents)
            for kind in LANDSCAPES:
                for noise in NOISES:
                    case = {"space": f"{student} of {teacher}", "parents": parents, "fitness": kind, "noise": noise}
                    found = compare(members, kind, noise, settings)
                    rows += [case | row for row in found]
                    shares = [f"{row['better']}+{row['equal']}/{SEEDS}" for row in found]
                    print(*case.values(), *shares, flush=True)
        arguments.output.write_text(json.dumps({"seeds": SEEDS, "versions": versions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
