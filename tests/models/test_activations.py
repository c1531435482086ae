"""Students narrowed by their teacher's activations: moments, directions, heads and neurons against plain arithmetic."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from limbeck.errors import ModelError
from limbeck.models import activations
from limbeck.models.activations import measure
from limbeck.models.block_narrowing import narrow_norm
from limbeck.models.directions import leading_directions
from limbeck.models.families import blocks
from limbeck.models.family_table import families
from limbeck.models.head_narrowing import HeadMaps, Heads, best_factors
from limbeck.models.start import bases_of
from limbeck.models.start_step import StartSettings
from limbeck.training.untrained import fill_rows
from tests.support import models as tiny
from tests.support.models import start_student, tiny_model

WITH_ROLES = [name for name, family in families.items() if family.roles is not None]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(found, expected, tolerance=1e-9):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def lively(family="bert", seed=0):
    """A tiny teacher in float64 with norms and biases of its own."""
    teacher = tiny_model(family).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in teacher.named_parameters():
            if weight.dim() == 1:
                weight += 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            elif "embeddings" not in name:
                weight *= 8
    return teacher


def augmented(rows):
    rows = rows.flatten(0, -2)
    return torch.cat([rows, torch.ones(len(rows), 1, dtype=rows.dtype)], 1)


def moment(rows):
    return augmented(rows).T @ augmented(rows) / rows[..., 0].numel()


@torch.no_grad()
def test_moments_are_those_of_the_models_own_hidden_states(monkeypatch):
    teacher, seen = lively(), []
    monkeypatch.setattr(activations, "_BATCH", 10)  # The last batch is shorter.
    handle = teacher.register_forward_pre_hook(lambda _, __, given: seen.append(given["input_ids"]), with_kwargs=True)
    teacher.train().embeddings.eval()
    found = measure(teacher, [3], seed=4)
    handle.remove()
    assert teacher.training and not teacher.embeddings.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in teacher.modules())
    tokens, given = torch.cat(seen), [torch.empty(0)]
    assert tokens.shape == (64, 32) and len(tokens.unique()) > 60
    block = blocks(teacher)[2]
    block.output.dense.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    states = teacher.eval()(input_ids=tokens, output_hidden_states=True).hidden_states
    assert sorted(found) == [1, 3]
    close(found[1].inputs, moment(states[0]))
    close(found[3].inputs, moment(states[2]))
    close(found[3].norms["output.LayerNorm"], moment(states[3]))
    neurons = given[-1].flatten(0, 1)
    close(found[3].neurons.mean, neurons.mean(0))
    close(found[3].neurons.variance, neurons.var(0, correction=0))


def test_padding_is_not_drawn_and_random_numbers_stay():
    teacher, seen = lively("roberta"), []
    teacher.register_forward_pre_hook(lambda _, __, given: seen.append(given["input_ids"]), with_kwargs=True)
    state = torch.get_rng_state()
    first, second, other = (measure(teacher, [2], seed)[2].inputs for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, second) and not torch.equal(first, other)
    assert not (torch.cat(seen) == teacher.config.pad_token_id).any()


def test_directions_are_the_leading_ones_of_the_states():
    teacher = lively()
    measured = measure(teacher, [2, 4], seed=1)
    outputs = [measured[layer].norms["output.LayerNorm"] for layer in (2, 4)]
    moments = [states[:48, :48] for states in (measured[1].inputs, *outputs)]
    basis, kept = leading_directions(moments, 20)
    squares = sum(states / states.trace() for states in moments)
    values = torch.linalg.svdvals(squares)
    assert kept == pytest.approx(float(values[:20].sum() / values.sum()))
    close(basis.T @ basis, torch.eye(20, dtype=torch.float64))
    close(basis.T @ squares @ basis, torch.diag(values[:20]))
    assert (basis.gather(0, basis.abs().argmax(0, keepdim=True)) > 0).all()


def test_a_narrow_norm_has_the_length_of_projected_states():
    norm = nn.LayerNorm(12).double()
    with torch.no_grad():
        norm.weight.copy_(drawn(12, seed=1))
        norm.bias.copy_(drawn(12, seed=2))
    outputs, basis = norm(drawn(50, 12)).detach(), torch.linalg.qr(drawn(12, 5, seed=3)).Q
    found = narrow_norm(norm, moment(outputs), basis)
    shift = norm.bias.detach()
    close(found["bias"], shift @ basis)
    close(found["weight"], ((outputs - shift) @ basis).square().mean().sqrt().expand(5))


def test_the_best_factors_are_the_truncated_svd():
    left, right = drawn(3, 9, 6), drawn(3, 7, 6, seed=1)
    ours = torch.matmul(*(part if number == 0 else part.mT for number, part in enumerate(best_factors(left, right, 4))))
    u, values, vh = torch.linalg.svd(left @ right.mT, full_matrices=False)
    close(ours, u[..., :4] * values[:, None, :4] @ vh[:, :4])
    few = best_factors(drawn(1, 3, 6), drawn(1, 7, 6, seed=1), 5)
    assert [part.shape for part in few] == [(1, 3, 5), (1, 7, 5)]
    close(few[0] @ few[1].mT, drawn(1, 3, 6) @ drawn(1, 7, 6, seed=1).mT)


def made_heads(rank, heads=3, size=6, width=10):
    """Heads whose products of query and key, and of output and value, have a rank."""

    def mixed(seed):
        return drawn(heads, size, rank, seed=seed) @ drawn(heads, rank, width + 1, seed=seed + 1)

    output = drawn(heads, width, size, seed=9)
    inputs = augmented(drawn(40, width, seed=8) * torch.arange(1, width + 1))
    return Heads(HeadMaps(mixed(1), mixed(3), mixed(5), output), inputs.T @ inputs / 40), inputs


def test_heads_of_low_rank_lose_nothing_in_fewer_dimensions():
    heads, inputs = made_heads(rank=4)
    chosen = torch.tensor([0, 2])
    query, key, value, output = heads.narrow(chosen, 4)
    assert (query.shape, output.shape) == ((2, 4, 11), (2, 10, 4))
    theirs = (inputs @ heads.maps.query[chosen].mT) @ (inputs @ heads.maps.key[chosen].mT).mT / math.sqrt(6)
    close((inputs @ query.mT) @ (inputs @ key.mT).mT / math.sqrt(4), theirs, 1e-6 * float(theirs.abs().max()))
    written = heads.maps.output[chosen] @ heads.maps.value[chosen] @ inputs.T
    close(output @ value @ inputs.T, written, 1e-6 * float(written.abs().max()))


def test_heads_keep_what_their_inputs_feel_most():
    """No other output map of that rank is nearer on these inputs: the error is that of the cut singular values."""
    heads, inputs = made_heads(rank=6)
    _, _, value, output = heads.narrow(torch.arange(3), 2)
    written = heads.maps.output @ heads.maps.value @ inputs.T / math.sqrt(len(inputs))
    error = (output @ value @ inputs.T / math.sqrt(len(inputs)) - written).square().sum((1, 2))
    torch.testing.assert_close(error, torch.linalg.svdvals(written)[:, 2:].square().sum(1), rtol=1e-5, atol=0)
    close(heads.strength(), written.square().sum((1, 2)), 1e-6 * float(heads.strength().max()))


def test_heads_of_the_same_size_are_left_alone():
    heads, _ = made_heads(rank=6)
    narrow_maps = heads.narrow(torch.tensor([1, 2]), 6)
    for narrow, whole in zip(narrow_maps, heads.maps, strict=True):
        assert torch.equal(narrow, whole[1:])


@torch.no_grad()
def test_neurons_that_never_change_go_first_and_into_the_bias():
    """At equal width and with half the neurons constant, the student is the teacher."""
    teacher = lively()
    for block in blocks(teacher):
        block.intermediate.dense.weight[::2] = 0
        block.intermediate.dense.bias[::2] = 2.0
        block.output.dense.weight[:, ::2] *= 50  # By weights these would be the ones to keep.
    student, record = start_student(teacher, 4, "first", ffn=48, narrow_by="activations")
    batch = tiny.tiny_batch("bert")
    theirs = teacher.eval()(**batch).last_hidden_state
    close(student.double().eval()(**batch).last_hidden_state, theirs, 1e-4)
    assert (record.embeddings, record.explained) == ("copied", None)


@torch.no_grad()
def test_a_subspace_in_use_is_found():
    """A teacher with half its directions, and half of every head's, in use: activations find them, weights do not.

    What is left is the mean that a narrower norm takes off, in coordinates of its own.
    """
    teacher = lively()
    square = drawn(48, 48)
    square[:, 0] = 1.0
    span = torch.linalg.qr(square).Q[:, 1:25]  # Without the direction that norms take off.
    keep = span @ span.T
    for table in (part for part in teacher.embeddings.children() if isinstance(part, nn.Embedding)):
        table.weight.copy_(table.weight @ keep)
    for module in teacher.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.fill_(0.7)
            module.bias.copy_(keep @ module.bias)
    for block in blocks(teacher):
        for dense in (block.attention.output.dense, block.output.dense):
            dense.weight.copy_(keep @ dense.weight)
            dense.bias.copy_(keep @ dense.bias)
        half = torch.linalg.qr(drawn(12, 12, seed=5)).Q[:, :6]
        inner = torch.block_diag(*[half @ half.T] * 4)
        for name in ("query", "key", "value"):
            dense = block.attention.self.get_submodule(name)
            dense.weight.copy_(inner @ dense.weight)
            dense.bias.copy_(inner @ dense.bias)
    batch = tiny.tiny_batch("bert")
    theirs = teacher.eval()(**batch).last_hidden_state
    off = {}
    for how in ("weights", "activations"):
        student, record = start_student(teacher, 4, "first", narrow_by=how, hidden=24, ffn=96, heads=4)
        ours = student.double().eval()(**batch).last_hidden_state
        basis = bases_of(student, teacher, StartSettings("first", narrow_by=how, seed=3)).hidden
        off[how] = float((ours - theirs @ basis).norm() / (theirs @ basis).norm())
    assert record.explained == pytest.approx(1.0, abs=1e-6)
    assert off["activations"] < 0.75 * off["weights"], off


@pytest.mark.parametrize("family", WITH_ROLES)
def test_every_family_with_roles_runs_and_is_accounted_for(family):
    changes = {"hidden": 20, "embedding": 8} if family == "electra" else {"hidden": 24}
    student, record = start_student(tiny_model(family), 2, [4, 2], heads=2, ffn=30, narrow_by="activations", **changes)
    assert student(**tiny.tiny_batch(family)).last_hidden_state.isfinite().all()
    assert sorted([*record.copied, *record.projected, *record.reset]) == sorted(student.state_dict())
    norms = {name for name in student.state_dict() if "norm" in name.lower()}
    # A factorised table's own norm is at the words' width, where no state was measured.
    assert set(record.reset) == {name for name in norms if family == "electra" and "embeddings" in name}
    assert "narrowed by activations (keeping " in record.summary


def test_at_equal_widths_nothing_is_measured(monkeypatch):
    monkeypatch.setattr("limbeck.models.bases.measure", None)
    _, record = start_student(tiny_model("bert"), 2, "ends", narrow_by="activations")
    assert record.summary == "Starts from teacher layers 1, 4 and copied embeddings."


def test_a_random_start_measures_nothing(monkeypatch):
    """A recipe may change the layers of a student that was chosen to be cut by activations."""
    monkeypatch.setattr("limbeck.models.bases.measure", None)
    by_weights, by_activations = (
        start_student(tiny_model("bert"), 2, "random", hidden=24, narrow_by=how) for how in ("weights", "activations")
    )
    assert by_activations[1] == by_weights[1]
    for name, tensor in by_weights[0].state_dict().items():
        assert torch.equal(by_activations[0].state_dict()[name], tensor)


@pytest.mark.parametrize(("changes", "said"), [
    ({"hidden": 24}, "embeddings, narrowed by activations (keeping "),
    ({"ffn": 48}, "copied embeddings, narrowed by activations."),
    ({"embedding": 16, "ffn": 48}, "of their variance), narrowed by activations."),
])  # fmt: skip
def test_the_record_says_what_activations_decided(changes, said):
    assert said in start_student(tiny_model("bert"), 2, "ends", narrow_by="activations", **changes)[1].summary


@torch.no_grad()
def test_a_teacher_without_activations_is_refused():
    teacher = tiny_model("bert")
    blocks(teacher)[3].output.LayerNorm.weight.fill_(torch.nan)
    with pytest.raises(
        ModelError, match="layer 4 gives only zeros, or numbers that are not finite, .* narrow_by: weights"
    ):
        start_student(teacher, 2, "ends", hidden=24, narrow_by="activations")


def test_rows_that_were_never_read_are_filled_along_the_same_directions():
    teacher = tiny_model("bert")
    start = StartSettings("ends", narrow_by="activations", seed=3)
    student, _ = start_student(teacher, 2, "ends", hidden=24, narrow_by="activations")
    words = student.get_input_embeddings().weight
    before = words.detach().clone()
    with torch.no_grad():
        words[5:9] = 7.0
    rows = np.isin(np.arange(len(words)), [5, 6, 7, 8])
    assert fill_rows(student, teacher, {"tokens": rows}, start) == ["tokens"]
    torch.testing.assert_close(words.detach(), before, atol=1e-6, rtol=0)
