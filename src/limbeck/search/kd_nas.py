"""KD-NAS's controller as an Optuna sampler: it predicts the reward of every shape from those that were tried.

In the paper (Trivedi et al. 2023, arXiv 2303.09639) a search proceeds in *episodes*, groups of shapes. A *controller*,
an LSTM that reads the best shape of the episode before, the best so far and a candidate, predicts the candidate's
reward. The most promising shapes are trained on a proxy. Others are drawn at random, fewer from episode to episode. The
shape of the highest reward wins.

The paper trains one controller throughout the search. Here each proposal fits a new one to all trials of the study, and
then predicts every shape that is left, so that all workers, and a search that is continued, propose alike. Sizes enter
as logarithms, scaled to -1 for the least and 1 for the greatest that is listed, so that a few shapes tell something
about the others.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from torch import Tensor, nn

from limbeck.search.trial_log import parameters_of

Point: TypeAlias = tuple[float, ...]
"""A shape: its sizes, in the order of the parameters; or the same sizes scaled to about -1 to 1."""

DECAY = 0.05
"""Decrease of the share of shapes that are drawn at random, from one episode to the next."""
LEAST = 0.05
"""Least share of shapes that are drawn at random."""
HIDDEN = 32
"""Width of the controller."""
RATE = 1e-2
"""Learning rate of RMSprop; ours."""
FITS = 50
"""Steps of the controller on all shapes that were tried; ours."""
_TINY = 1e-12
"""Added to a deviation, which is 0 where all rewards are the same."""


class ControllerSampler(BaseSampler):
    """Samples shapes by KD-NAS's controller, and at random with a probability that falls from 1 to 0.05.

    No shape is proposed twice while others are left. A shape whose training was cut has the last reward that was
    measured on the way. A shape that was refused or diverged has no reward, but is not proposed again.

    Args:
        seed: Seed of the random numbers.
        choices: The listed values of each parameter.
        points: The combinations of these values that may be proposed, in the order of the parameters.
        episode_size: Shapes in an episode.
    """

    def __init__(
        self, seed: int, choices: Mapping[str, Sequence[Any]], points: Collection[Point], episode_size: int
    ) -> None:
        self._seed = seed
        self._choices = choices
        self._points = list(points)
        self._episode_size = episode_size
        self._scaled = _scale(self._points)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters of a shape."""
        return {name: CategoricalDistribution(values) for name, values in self._choices.items()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Choose a shape.

        Raises:
            ValueError: for a study that minimises or has several objectives, since the controller predicts one reward.
        """
        if study.directions != [StudyDirection.MAXIMIZE]:
            raise ValueError("KD-NAS maximises one reward; make its study with direction='maximize'")
        point = self._choose(study.get_trials(deepcopy=False), trial.number)
        return dict(zip(self._choices, point, strict=True))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse: this sampler knows only the parameters of a shape.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"parameter '{param_name}' is not a size of a shape; the sizes are {', '.join(self._choices)}")

    def _choose(self, trials: Sequence[FrozenTrial], number: int) -> Point:
        """Return a shape for the trial of this number, by all other trials of the study."""
        # The shapes of all other trials. The controller learns from those that have a reward, with each size scaled to
        # about -1 to 1; a shape that is still in training has none.
        taken_points = set()
        scaled_points: list[Point] = []
        rewards: list[float] = []
        for trial in trials:
            point = self._point_of(trial)
            if trial.number == number or point is None:
                continue
            taken_points.add(point)
            reward = reward_of(trial)
            if reward is not None:
                scaled_points.append(self._scaled[point])
                rewards.append(reward)

        # Once all shapes are taken, any may come again.
        free = [point for point in self._points if point not in taken_points]
        if not free:
            free = self._points
        # The episode of this trial, by the trials before it. Those that are in training count, or several workers would
        # stay in an episode for too long. Those of refused shapes do not count, since they have cost no training.
        earlier_trainings = sum(1 for trial in trials if trial.number < number and _costs_training(trial))
        episode_number = earlier_trainings // self._episode_size
        # A sampler of its own, with another seed, is made for every trial; see `shape_samplers.SeededByTrial`.
        generator = np.random.default_rng(self._seed)
        draws_at_random = not rewards or generator.random() < random_share(episode_number)
        if draws_at_random:
            return free[generator.integers(len(free))]
        candidates = [self._scaled[point] for point in free]
        predictions = predict_rewards(
            scaled_points, rewards, candidates, episode_size=self._episode_size, seed=self._seed
        )
        return free[int(np.argmax(predictions))]

    def _point_of(self, trial: FrozenTrial) -> Point | None:
        """Return the shape of a trial, also of a queued one; None for a trial without one of the shapes."""
        values = parameters_of(trial)
        point = tuple(values.get(name) for name in self._choices)
        return point if point in self._scaled else None


def _costs_training(trial: FrozenTrial) -> bool:
    """Whether the shape of a trial is in training now, or was trained."""
    return trial.state == TrialState.RUNNING or reward_of(trial) is not None


def random_share(episode_number: int) -> float:
    """Return epsilon = max(1 - 0.05 n, 0.05), the share of an episode that is drawn at random.

    Args:
        episode_number: The number n of the episode, counted from 0.
    """
    return max(1 - DECAY * episode_number, LEAST)


def reward_of(trial: FrozenTrial) -> float | None:
    """Return the reward of a shape that was trained, or the last on the way of one that was cut; else None."""
    if trial.state == TrialState.COMPLETE:
        return trial.value
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        last_step = max(trial.intermediate_values)
        return trial.intermediate_values[last_step]
    return None


def predict_rewards(
    tried: Sequence[Point], rewards: Sequence[float], candidates: Sequence[Point], *, episode_size: int, seed: int
) -> list[float]:
    """Fit a controller to the rewards of shapes that were tried, and predict the rewards of candidates.

    The episodes are counted in shapes that have a reward: the controller reads no others.

    Args:
        tried: Shapes with a reward in the order of their trials, each size as a number of about -1 to 1.
        rewards: The rewards of these shapes.
        candidates: Shapes that may be trained next, of the same form.
        episode_size: Shapes in an episode.
        seed: Seed of the controller's first weights.

    Returns:
        The standardised rewards of the candidates: their difference from the mean of the known rewards, in standard
        deviations.
    """
    # The controller reads three shapes: the best of the episode before, the best of all before, and the shape itself.
    triples = []
    for number, shape in enumerate(tried):
        best_shapes = best_before(tried, rewards, number, episode_size)
        triples.append([*best_shapes, shape])
    known_shapes = torch.tensor(triples, dtype=torch.float64)  # [shapes, 3, sizes]
    # A candidate would be the next shape, and so has the number that follows.
    best_shapes = best_before(tried, rewards, len(tried), episode_size)
    new_shapes = torch.tensor([[*best_shapes, shape] for shape in candidates], dtype=torch.float64)

    known_rewards = torch.tensor(rewards, dtype=torch.float64)
    targets = (known_rewards - known_rewards.mean()) / (known_rewards.std(correction=0) + _TINY)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        controller = Controller(len(tried[0]))
        optimizer = torch.optim.RMSprop(controller.parameters(), lr=RATE)
        for _ in range(FITS):
            optimizer.zero_grad()
            nn.functional.mse_loss(controller(known_shapes), targets).backward()
            optimizer.step()
    with torch.no_grad():
        return list(controller(new_shapes).tolist())


def best_before(
    tried: Sequence[Point], rewards: Sequence[float], number: int, episode_size: int
) -> tuple[Point, Point]:
    """Return the best shapes by which the controller predicts the reward of a shape.

    The shapes are tried in episodes of equal size. For a shape of one episode, the best shape of the episode before it
    counts, and the best one of all episodes before it.

    Args:
        tried: Shapes in the order of their trials.
        rewards: The rewards of these shapes.
        number: The number of the shape to predict, counted from 0 like the places in `tried`.
        episode_size: Shapes in an episode.

    Returns:
        Both shapes; zeros, the middle of all sizes, for a shape of the first episode.
    """
    first_of_episode = number // episode_size * episode_size
    if first_of_episode == 0:
        middle = (0.0,) * len(tried[0])
        return middle, middle
    previous_episode = range(first_of_episode - episode_size, first_of_episode)
    all_episodes_before = range(first_of_episode)
    best_of_previous = max(previous_episode, key=rewards.__getitem__)
    best_of_all = max(all_episodes_before, key=rewards.__getitem__)
    return tried[best_of_previous], tried[best_of_all]


class Controller(nn.Module):
    """An LSTM over three shapes: the best of the episode before, the best so far, and the one whose reward is asked.

    Args:
        sizes: Sizes of a shape.
    """

    def __init__(self, sizes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(sizes, HIDDEN, batch_first=True, dtype=torch.float64)
        self.reward = nn.Linear(HIDDEN, 1, dtype=torch.float64)

    def forward(self, shapes: Tensor) -> Tensor:
        """Return the rewards `[N]` of shapes `[N, 3, sizes]`."""
        states, _ = self.lstm(shapes)
        return self.reward(states[:, -1]).squeeze(-1)


def _scale(points: Sequence[Point]) -> dict[Point, Point]:
    """Return shapes with the logarithm of each size scaled, from -1 for the least to 1 for the greatest.

    A size that all shapes share becomes 0.
    """
    logarithms = np.log([[float(size) for size in point] for point in points])  # [shapes, sizes]
    low = logarithms.min(0)
    high = logarithms.max(0)
    varies = high > low
    span = np.where(varies, high - low, 1)
    scaled = np.where(varies, 2 * (logarithms - low) / span - 1, 0.0)
    scaled_points = [tuple(row) for row in scaled.tolist()]
    return dict(zip(points, scaled_points, strict=True))
