"""KD-NAS's controller: its episodes, what it learns from, and what it proposes."""

import statistics
from dataclasses import asdict

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from scipy.stats import spearmanr

from limbeck.search import kd_nas, shape_space
from limbeck.search.requests import ShapeSizes
from limbeck.search.shape_samplers import make_sampler

SIZES = ShapeSizes(layers=(1, 2, 3, 4, 6), hidden=(96, 192, 288, 384), heads=(12,), ffn=(1, 2, 4))
CHOICES = asdict(SIZES)
POINTS = shape_space.shape_points(SIZES)
SPACE = shape_space.ShapeSpace(SIZES, dict.fromkeys(POINTS), {})
FEW = ShapeSizes(layers=(1, 2, 4), hidden=(96, 192), heads=(12,), ffn=(1, 4))
SMALL = shape_space.ShapeSpace(FEW, dict.fromkeys(shape_space.shape_points(FEW)), {})


def reward(point):
    """Smooth, and highest at a shape that is neither the largest nor the smallest."""
    return -((np.log(point.layers / 4)) ** 2) - np.log(point.hidden / 288) ** 2 - 0.3 * np.log(point.ffn / 2) ** 2


def propose(study):
    trial, sampler = study.ask(), study.sampler._sampler
    listed = sampler._choices if isinstance(sampler, kd_nas.ControllerSampler) else CHOICES
    return trial, shape_space.ShapePoint(*(trial.suggest_categorical(name, sizes) for name, sizes in listed.items()))


def make_study(name="kd_nas", seed=1, episode=None, trials=0, space=SPACE):
    study = optuna.create_study(direction="maximize", sampler=make_sampler(name, seed, space, episode))
    for _ in range(trials):
        trial, point = propose(study)
        study.tell(trial, reward(point))
    return study


def trials_to_the_best(name, seed, best):
    study, seen = make_study(name, seed), []
    while len(set(seen)) < len(POINTS):
        trial, point = propose(study)
        seen.append(point)
        if point in best:
            break
        study.tell(trial, reward(point))
    return len(set(seen))


def test_an_episode_draws_a_twentieth_less_at_random_than_the_one_before():
    assert [kd_nas.random_share(episode) for episode in (0, 1, 10)] == pytest.approx([1, 0.95, 0.5])
    assert kd_nas.random_share(19) == pytest.approx(0.05) == kd_nas.random_share(300)


def test_the_controller_reads_the_best_of_the_last_episode_and_the_best_so_far():
    tried, rewards = [(0.1,), (0.2,), (0.3,), (0.4,), (0.5,)], [3.0, 1.0, 0.5, 2.0, 9.0]
    states = [kd_nas.best_before(tried, rewards, start, 2) for start in (0, 2, 4)]
    assert states == [((0.0,), (0.0,)), ((0.1,), (0.1,)), ((0.4,), (0.1,))]


def test_rewards_of_shapes_that_were_never_tried_are_predicted():
    scaled = kd_nas.ControllerSampler(0, CHOICES, POINTS, 1)._scaled
    order = np.random.default_rng(0).permutation(len(POINTS))
    known, asked = ([POINTS[index] for index in part] for part in (order[:20], order[20:]))
    tried, candidates = ([scaled[point] for point in part] for part in (known, asked))
    result = kd_nas.predict_rewards(tried, [reward(point) for point in known], candidates, episode_size=1, seed=0)
    assert spearmanr(result, [reward(point) for point in asked]).statistic > 0.75
    assert all(-1 <= size <= 1 for shape in scaled.values() for size in shape)


def test_no_shape_is_proposed_twice_and_cut_ones_count():
    study = make_study(space=SMALL)
    for number in range(len(SMALL.shapes)):
        trial, point = propose(study)
        if number % 4 == 0:
            trial.report(reward(point), 5)
            study.tell(trial, state=TrialState.PRUNED)  # cut on the way
        elif number % 4 == 1:
            study.tell(trial, state=TrialState.PRUNED)  # refused
        elif number % 4 == 2:
            study.tell(trial, state=TrialState.FAIL)  # diverged
        # Another worker trains the fourth.
    trials = study.trials
    assert {tuple(trial.params.values()) for trial in trials} == set(SMALL.shapes)
    counted = [trial for trial in trials if kd_nas.reward_of(trial) is not None]
    assert counted == trials[::4] and all(kd_nas.reward_of(t) == t.intermediate_values[5] for t in counted)


def test_the_first_episode_is_drawn_at_random_whatever_the_rewards():
    first, other = make_study(episode=6, trials=5), make_study(episode=6)
    for trial in first.trials:
        study_trial, _ = propose(other)
        other.tell(study_trial, -trial.value)
    assert [trial.params for trial in first.trials] == [trial.params for trial in other.trials]
    assert propose(first)[1] == propose(other)[1]


def test_what_is_no_shape_and_what_is_not_maximised_is_refused():
    with pytest.raises(
        ValueError, match="parameter 'vocabulary' is not a size of a shape; the sizes are layers, hidden"
    ):
        make_study().ask().suggest_categorical("vocabulary", [1, 2])
    several = optuna.create_study(directions=["maximize", "minimize"], sampler=make_study().sampler)
    with pytest.raises(ValueError, match="KD-NAS maximises one reward"):
        propose(several)


def test_the_controller_needs_fewer_trials_than_chance():
    best = set(sorted(POINTS, key=reward)[-3:])
    result = [trials_to_the_best("kd_nas", seed, best) for seed in range(4)]
    drawn = [trials_to_the_best("random", seed, best) for seed in range(40)]
    assert statistics.fmean(result) < statistics.fmean(drawn)
