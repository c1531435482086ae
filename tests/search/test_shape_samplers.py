"""Samplers by name: what a trial draws depends on the seed and its number, not on who asks."""

import optuna
import pytest
from optuna.distributions import CategoricalDistribution

from limbeck.errors import RecipeError
from limbeck.search.shape_space import SAMPLERS, make_sampler

SPACE = {"layers": CategoricalDistribution((2, 3, 4, 6)), "hidden": CategoricalDistribution((192, 312, 384))}
TRIALS = 16


def propose(name, seed, *, workers=1):
    """The points of a study whose trials are asked for by several samplers in turn; 6x384 is the best."""
    study = optuna.create_study(direction="maximize")
    samplers = [make_sampler(name, seed) for _ in range(workers)]
    found = []
    for number in range(TRIALS):
        study.sampler = samplers[number % workers]
        trial = study.ask()
        point = tuple(trial.suggest_categorical(key, values.choices) for key, values in SPACE.items())
        study.tell(trial, point[0] + point[1] / 1000)
        found.append(point)
    return found


@pytest.mark.parametrize("name", SAMPLERS)
def test_several_workers_propose_what_one_would(name):
    alone = propose(name, seed=5)
    assert propose(name, seed=5, workers=3) == alone
    assert len(set(alone)) > 4


def test_seeds_and_trials_draw_differently():
    runs = [propose("random", seed) for seed in range(4)]
    assert len({tuple(run) for run in runs}) == 4
    assert runs[0][1:] != runs[1][:-1]


@pytest.mark.parametrize("name", ["tpe", "gp"])
def test_a_model_of_the_rewards_comes_to_prefer_the_better_shapes(name):
    later = [layers + hidden / 1000 for layers, hidden in propose(name, seed=1)[-6:]]
    everything = [layers + hidden / 1000 for layers in (2, 3, 4, 6) for hidden in (192, 312, 384)]
    assert sum(later) / len(later) > sum(everything) / len(everything)


def test_an_unknown_sampler_is_refused_with_the_nearest():
    with pytest.raises(RecipeError, match=r"Unknown sampler 'tpr'\. Did you mean 'tpe'\? Known: gp, nsga2"):
        make_sampler("tpr", seed=0)
