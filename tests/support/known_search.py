"""A search whose fitness is known, the generations it must have, and the work of a process that can be killed."""

import json
import time
from pathlib import Path

import numpy as np
import psutil

from limbeck.search import GeneticSampler, GeneticSettings, elm_space, open_study, run_search
from limbeck.search.genetic import next_generation
from limbeck.search.genetic_sampler import recorded_generation
from limbeck.search.worker_signs import machine

SPACE = elm_space(4, 12)
SETTINGS = GeneticSettings(population=6)
SEED = 11
GENERATIONS = 3
IDENTITY = {"teacher": "a teacher", "corpus": "some text"}


def fitness(mapping):
    """Highest at (0, 0, 5, 10), and different for most mappings."""
    return -sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(mapping, (0, 0, 5, 10), strict=True)))


def sampler(settings=SETTINGS, seed=SEED, **options):
    return GeneticSampler(SPACE, settings, seed, **options)


def open_known(place, name="known", **options):
    brought = sampler(**options)
    return open_study(place, name, IDENTITY | brought.identity, brought)


def expected_generations(generations, settings=SETTINGS, seed=SEED, space=SPACE, fitness=fitness):
    """The same search without Optuna: lists of genomes."""
    history = []
    for number in range(1, generations + 1):
        random = np.random.default_rng([seed, 0, number])
        genomes, _ = next_generation(space, history, settings, random)
        history.append([(genome, fitness(space.decode(genome))) for genome in genomes])
    return [[genome for genome, _ in generation] for generation in history]


def evaluate(candidates):
    return [fitness(candidate.mapping) for candidate in candidates]


def generations_of(study, count):
    return [list(recorded_generation(study.user_attrs, number)) for number in range(1, count + 1)]


def sign_of_life(**changes):
    """What a worker that is this process writes into its study."""
    this = psutil.Process()
    usual = {"machine": machine(), "process": this.pid, "started": this.create_time(), "interval": 99.0, "beat": 0}
    return {**usual, "ended": False, **changes}


def work(place, log, batch, hang_at=None):
    """Write every mapping that is begun into `log`; from mapping number `hang_at` there is no return."""
    started = 0

    def evaluate(candidates):
        nonlocal started
        for candidate in candidates:
            with Path(log).open("a") as file:
                file.write(json.dumps(candidate.mapping) + "\n")
            started += 1
            while started == hang_at:
                time.sleep(0.05)
            time.sleep(0.01)
            yield fitness(candidate.mapping)

    run_search(open_known(place), evaluate, generations=GENERATIONS, batch=batch, beat_seconds=5.0, poll_seconds=0.02)
