"""Operations against a count by hand, and against those that PyTorch counts while a model runs."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from limbeck.benchmark.operations import ForwardCost, forward_cost, loss_operations
from limbeck.methods.term import LearnedMap, Term
from limbeck.methods.transforms import HeadGroups
from limbeck.models.families import blocks, shape_of
from limbeck.models.packed_linear import pack_linear_maps
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from tests.support.models import tiny_batch, tiny_config, tiny_model

LENGTHS = [5, 9, 2]
H, A, D, F = 48, 4, 12, 96  # the tiny models


def product(rows, inner, columns):
    """Multiplications and additions of [rows, inner] · [inner, columns]."""
    count = 0
    for _ in range(rows):
        count += 2 * inner * columns
    return count


def projections(length):
    return 3 * product(length, H, A * D)


def attention(length):
    return sum(product(length, D, length) + product(length, length, D) for _ in range(A))


def block(length):
    ffn = product(length, H, F) + product(length, F, H)
    return projections(length) + attention(length) + product(length, A * D, H) + ffn


@pytest.mark.parametrize(
    ("key", "by_hand"),
    [
        (StreamKey("hidden", 4), lambda n: 4 * block(n)),
        (StreamKey("hidden", 2), lambda n: 2 * block(n)),
        (StreamKey("value", 4), lambda n: 3 * block(n) + projections(n)),
        (StreamKey("context", 3), lambda n: 2 * block(n) + projections(n) + attention(n)),
        (StreamKey("embedding", 0), lambda n: 0),
    ],
    ids=lambda part: str(part) if isinstance(part, StreamKey) else "",
)
def test_a_bert_by_hand(key, by_hand):
    model = tiny_model("bert")
    with StreamTap(model, [key]) as tap:
        cost = forward_cost(tap, shape_of(model.config))
    assert cost.operations(LENGTHS) == sum(by_hand(length) for length in LENGTHS)


def test_dropped_blocks_change_nothing():
    model = tiny_model("bert")
    shape = shape_of(model.config)
    with StreamTap(model, [StreamKey("query", 2)], drop_above=True) as tap:
        assert forward_cost(tap, shape).operations([7]) == block(7) + projections(7)


def test_scores_over_the_vocabulary_by_hand():
    model = tiny_model("bert", head="masked_lm")
    shape = shape_of(model.config)
    with StreamTap(model, [StreamKey("logits", 4)]) as tap:
        cost = forward_cost(tap, shape)
    whole = sum(4 * block(n) + product(n, H, H) for n in LENGTHS)  # the head's transform sees every token
    assert cost.operations(LENGTHS, scored=3) == whole + product(3, H, shape.vocabulary)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "albert", "modernbert", "llama", "gpt2", "mpnet"])
def test_what_runs_is_what_is_counted(family):
    model, batch = tiny_model(family), tiny_batch(family, rows=2, length=12)
    batch["attention_mask"].fill_(1)
    # Fused attention is not counted by PyTorch; plain products are.
    with StreamTap(model, [StreamKey("hidden", 4)]) as tap, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            tap(**batch)
        cost = forward_cost(tap, shape_of(model.config))
    assert cost.operations([12, 12]) == counter.get_total_flops()


def term(objective, student, teacher, **changes):
    return Term("t", objective, tuple(StreamKey(*k) for k in student), tuple(StreamKey(*k) for k in teacher), **changes)


STUDENT, TEACHER = shape_of(tiny_config(hidden=24, heads=2, ffn=48)), shape_of(tiny_config())


ROWS = sum(LENGTHS)
GROUPS = {"teacher_heads": HeadGroups(heads=4, groups=2), "options": {"heads": 2}}


@pytest.mark.parametrize(
    ("objective", "student", "teacher", "changes", "expected"),
    [
        # Scores of both models, and a gradient for each tensor of the student's.
        ("relation_kl", ["query"] * 2, ["query"] * 2, {"options": {"heads": 4}},
         sum(4 * (product(n, 6, n) + product(n, 12, n) + product(n, n, 6)) for n in LENGTHS)),
        ("relation_kl", ["query", "key"], ["query", "key"], {"options": {"heads": 4}},
         sum(4 * (product(n, 6, n) + product(n, 12, n) + 2 * product(n, n, 6)) for n in LENGTHS)),
        # Merged heads are narrower.
        ("relation_kl", ["context"] * 2, ["context"] * 2, GROUPS,
         sum(2 * (product(n, 12, n) + product(n, 12, n) + product(n, n, 12)) for n in LENGTHS)),
        # A learned map forward, and the gradients of its input and of itself.
        ("hidden_mse", ["hidden"], ["hidden"], {"learned_map": LearnedMap(24, 48)},
         product(ROWS, 24, 48) + product(ROWS, 48, 24) + product(24, ROWS, 48)),
        ("hidden_mse", ["cls"], ["cls"], {"learned_map": LearnedMap(24, 48)}, 3 * product(len(LENGTHS), 24, 48)),
        ("direct_mse", ["query"], ["query"], {"learned_map": LearnedMap(24, 48, heads=2)},
         2 * 3 * product(ROWS, 12, 24)),
        ("hidden_cosine", ["hidden"], ["hidden"], {}, 0),
        ("masked_lm_ce", ["logits"], [], {}, 0),
    ],
)  # fmt: skip
def test_terms_by_hand(objective, student, teacher, changes, expected):
    made = term(objective, [(kind, 2) for kind in student], [(kind, 4) for kind in teacher], **changes)
    assert loss_operations(made, STUDENT, TEACHER, LENGTHS) == expected
    assert ForwardCost(0, ()).operations(LENGTHS) == 0


def test_attention_scores_take_the_shorter_way():
    scores = term("attention_score_mse", [("query", 1), ("key", 1)], [("query", 1), ("key", 1)], options={"heads": 2})
    short, long = 3, 5000
    # Widths of a head of the student and of the teacher.
    narrow = 12
    wide = 24
    by_scores = 2 * (product(short, narrow, short) + product(short, wide, short) + 2 * product(short, short, narrow))
    assert loss_operations(scores, STUDENT, TEACHER, [short]) == by_scores
    grams = 2 * product(narrow, long, narrow) + 2 * product(narrow, long, wide) + 2 * product(wide, long, wide)
    gradients = 2 * (product(long, narrow, narrow) + product(long, wide, narrow))
    assert loss_operations(scores, STUDENT, TEACHER, [long]) == 2 * (grams + gradients)


def test_packed_maps_count_as_the_plain_ones_do():
    model = tiny_model("bert").requires_grad_(False)
    shape = shape_of(model.config)
    with StreamTap(model, [StreamKey("hidden", 2)]) as tap:
        assert pack_linear_maps(blocks(model)) > 0
        assert forward_cost(tap, shape).operations([7]) == 2 * block(7)
