"""A term prepares the streams of either side for its objective."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from limbeck.methods.term import LearnedMap, Term
from limbeck.methods.transforms import AnnealedScores, Course, HeadGroups
from limbeck.models.streams import StreamKey

KEY = StreamKey("hidden", 1)
MAP = LearnedMap(4, 6)


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def no_student():
    raise AssertionError("no transform asks for the student's stream")


def test_streams_come_in_the_objectives_order():
    keys = StreamKey("query", 1), StreamKey("key", 1)
    streams = {keys[1]: draw(1, 2, 4), keys[0]: draw(1, 2, 4) + 1}
    term = Term("attention", "attention_score_mse", keys, keys, options={"heads": 2})
    assert term.prepare_student(streams) == [streams[key] for key in keys]
    assert term.prepare_teacher(streams, no_student, Course()) == [streams[key] for key in keys]


def test_a_map_is_applied_unless_the_objective_takes_it():
    stream = draw(2, 3, 4)
    learned = torch.nn.Linear(4, 6)
    in_objective = Term("hidden", "hidden_mse", (KEY,), (KEY,), learned_map=MAP)
    assert in_objective.map_in_objective
    assert in_objective.prepare_student({KEY: stream}, learned) == [stream]

    normalised = replace(in_objective, normalise=True)
    assert not normalised.map_in_objective
    (prepared,) = normalised.prepare_student({KEY: stream}, learned)
    torch.testing.assert_close(prepared, F.normalize(learned(stream), dim=-1))


def test_heads_are_merged_before_streams_are_transformed_and_normalised():
    stream = draw(2, 3, 8)
    term = Term(
        "context",
        "hidden_mse",
        (KEY,),
        (KEY,),
        teacher_heads=HeadGroups(4, 2),
        transform=AnnealedScores(2),
        normalise=True,
    )
    (prepared,) = term.prepare_teacher({KEY: stream}, no_student, Course(share=0.0))
    merged = torch.cat([stream[..., :2] + stream[..., 2:4], stream[..., 4:6] + stream[..., 6:]], -1) / 2
    torch.testing.assert_close(prepared, F.normalize(merged / 2, dim=-1))
