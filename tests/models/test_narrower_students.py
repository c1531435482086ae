"""Initialising a student that is narrower than its teacher: projections, head boundaries, neurons."""

import math

import pytest
import torch
from torch.nn.functional import layer_norm

from limbeck.models.block_narrowing import strongest
from limbeck.models.directions import principal_directions
from limbeck.models.families import blocks
from limbeck.models.family_table import families
from tests.support import models as tiny
from tests.support.models import start_student, tiny_model


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found.double(), expected.double(), atol=tolerance, rtol=0)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_directions_are_orthonormal_ordered_and_the_svds():
    rows = drawn(200, 12) * torch.arange(1, 13) + 5.0
    basis, explained = principal_directions(rows, 5)
    _, values, right = torch.linalg.svd((rows - rows.mean(0)).double(), full_matrices=False)
    assert basis.shape == (12, 5)
    close(basis.T @ basis, torch.eye(5), 1e-7)
    close((right[:5] @ basis).abs(), torch.eye(5), 1e-6)
    assert explained == pytest.approx(float(values[:5].square().sum() / values.square().sum()))
    assert (basis.gather(0, basis.abs().argmax(0, keepdim=True)) > 0).all()


def test_rows_in_chunks_give_the_same_directions(monkeypatch):
    rows = drawn(100, 8)
    whole, _ = principal_directions(rows, 3)
    monkeypatch.setattr("limbeck.models.directions._CHUNK", 7)
    close(principal_directions(rows, 3)[0], whole, 1e-7)


def test_directions_through_a_map_are_those_of_the_mapped_rows():
    rows, through = drawn(100, 4), drawn(9, 4, seed=1)
    close(principal_directions(rows, 3, through=through)[0], principal_directions(rows @ through.T, 3)[0])
    assert principal_directions(torch.ones(5, 4), 2)[1] == 1.0


# Embeddings


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert", "gpt2"])
def test_tables_are_projected_onto_one_basis_and_norms_reset(family):
    teacher = tiny_model(family)
    student, record = start_student(teacher, 2, "random", hidden=24)
    basis, explained = principal_directions(teacher.get_input_embeddings().weight, 24)
    given = dict(teacher.named_parameters())
    tables = [name for name, _ in student.named_parameters() if name in record.projected]
    assert any("position" in name or "wpe" in name for name in tables) == (family != "modernbert")
    for name in tables:
        close(student.get_parameter(name), given[name].double() @ basis)
    assert all("norm" in name.lower() for name in record.reset)
    assert record.explained == pytest.approx(explained)


def test_projecting_keeps_similarities_of_words_that_lie_in_the_span():
    teacher = tiny_model("bert")
    words = teacher.get_input_embeddings().weight
    with torch.no_grad():
        words.copy_(drawn(len(words), 10) @ drawn(10, 48, seed=1))
        words -= words.mean(0)
    student, record = start_student(teacher, 2, "random", hidden=24)
    ours = student.get_input_embeddings().weight
    torch.testing.assert_close(ours @ ours.T, words @ words.T, atol=1e-2, rtol=1e-4)
    assert record.explained == pytest.approx(1.0)


@torch.no_grad()
def test_a_factorised_student_gives_the_teachers_embedding_output_where_it_can():
    """With tables inside E directions and features of mean zero, ELECTRA's E-wide norm and map lose nothing."""
    teacher = tiny_model("bert")
    # An even basis orthogonal to the all-ones vector: both norms then take off a mean of zero.
    square = drawn(48, 48)
    square[:, 0] = 1.0
    span = torch.linalg.qr(square).Q[:, 1:17]
    embeddings = teacher.embeddings
    for table in (embeddings.word_embeddings, embeddings.position_embeddings, embeddings.token_type_embeddings):
        table.weight.copy_(table.weight @ span @ span.T)
    student, record = start_student(teacher, 4, "first", embedding=16)
    ids = tiny.tiny_batch("bert", rows=1)["input_ids"]
    around = embeddings.position_embeddings.weight[:12] + embeddings.token_type_embeddings.weight[0]
    raw = embeddings.word_embeddings(ids) + around
    narrow = raw @ principal_directions(embeddings.word_embeddings.weight, 16)[0].float()
    close(student.embeddings(ids), layer_norm(narrow, (16,), eps=1e-12), 1e-4)
    # The student's norm takes off a mean in its own 16 coordinates; the map is that of vectors which keep theirs.
    unnormed = narrow / narrow.norm(dim=-1, keepdim=True) * math.sqrt(16)
    close(student.embeddings_project(unnormed), embeddings(ids), 1e-3)
    assert record.embeddings == "projected"
    for ours, theirs in zip(blocks(student), blocks(teacher), strict=True):
        assert torch.equal(ours.output.dense.weight, theirs.output.dense.weight)


def test_factorised_narrow_and_narrow_hidden_use_nested_bases():
    teacher = tiny_model("bert")
    student, record = start_student(teacher, 2, "first", hidden=24, embedding=16, ffn=50)
    norm, words = teacher.embeddings.LayerNorm, teacher.get_input_embeddings().weight
    (wide, _), (narrow, _) = principal_directions(words, 24), principal_directions(words, 16)
    close(wide[:, :16], narrow, 1e-7)
    expected = wide.T @ (norm.weight.double()[:, None] * narrow) * math.sqrt(48 / 16)
    close(student.embeddings_project.weight, expected)
    close(student.embeddings_project.bias, wide.T @ norm.bias.double())
    assert "embeddings_project.weight" in record.projected


@pytest.mark.parametrize(("family", "hidden"), [("albert", 36), ("electra", 12)])
def test_factorised_teachers_keep_their_map_seen_through_the_bases(family, hidden):
    teacher = tiny_model(family)
    student, _ = start_student(teacher, 2, "random", hidden=hidden, embedding=8)
    path = str(families[family].embedding_projection)
    theirs, words = teacher.get_submodule(path).weight, teacher.get_input_embeddings().weight
    basis, _ = principal_directions(words, hidden, through=theirs)
    expected = basis.T @ theirs.double() @ principal_directions(words, 8)[0]
    close(student.get_submodule(path).weight, expected)


# Blocks


@pytest.mark.parametrize("family", [name for name, family in families.items() if family.roles is not None])
def test_narrow_blocks_of_every_family_with_roles_run_and_are_accounted_for(family):
    changes = {"hidden": 20, "embedding": 8} if family == "electra" else {"hidden": 24}
    student, record = start_student(tiny_model(family), 2, [4, 2], heads=2, ffn=30, **changes)
    assert student(**tiny.tiny_batch(family)).last_hidden_state.isfinite().all()
    assert sorted([*record.copied, *record.projected, *record.reset]) == sorted(student.state_dict())
    assert record.summary.startswith("Starts from teacher layers 4, 2 and projected embeddings (keeping ")


def test_maps_follow_the_basis_and_keep_whole_heads():
    teacher = tiny_model("bert")
    student, _ = start_student(teacher, 2, [3, 3], hidden=24, heads=2, ffn=30)
    basis, _ = principal_directions(teacher.get_input_embeddings().weight, 24)
    ours, theirs = blocks(student)[0], blocks(teacher)[2]
    attention = theirs.attention
    value, out = attention.self.value.weight.double(), attention.output.dense.weight.double()
    strength = (value.square().sum(1) * out.square().sum(0)).view(4, 12).sum(1).tolist()
    kept = sorted(sorted(range(4), key=lambda head: -strength[head])[:2])
    rows = [head * 12 + i for head in kept for i in range(12)]
    for name in ("query", "key", "value"):
        source, target = getattr(attention.self, name), getattr(ours.attention.self, name)
        close(target.weight, source.weight.double()[rows] @ basis)
        close(target.bias, source.bias[rows])
    close(ours.attention.output.dense.weight, basis.T @ out[:, rows])
    close(ours.attention.output.dense.bias, basis.T @ attention.output.dense.bias.double())
    first, second = theirs.intermediate.dense.weight.double(), theirs.output.dense.weight.double()
    neurons = (first.square().sum(1) * second.square().sum(0)).topk(30).indices.sort().values
    close(ours.intermediate.dense.weight, first[neurons] @ basis)
    close(ours.output.dense.weight, basis.T @ second[:, neurons])
    assert torch.equal(ours.output.LayerNorm.weight, torch.ones(24))
    assert torch.equal(ours.attention.output.LayerNorm.bias, torch.zeros(24))


def test_the_head_boundary_is_respected_when_heads_are_narrower():
    """Each student head holds the leading dimensions of one teacher head: marks show where each row came from."""
    teacher = tiny_model("bert")
    with torch.no_grad():
        for block in blocks(teacher):
            block.attention.self.query.bias.copy_(torch.arange(48.0))
    student, _ = start_student(teacher, 2, "first", hidden=24)
    marks = blocks(student)[0].attention.self.query.bias.view(4, 6)
    assert marks.tolist() == [[12.0 * head + i for i in range(6)] for head in range(4)]


def test_fewer_neurons_at_equal_width_copy_everything_else_exactly():
    teacher = tiny_model("bert")
    student, record = start_student(teacher, 2, "first", ffn=40)
    ours, theirs = blocks(student)[0].state_dict(), blocks(teacher)[0].state_dict()
    for name, tensor in ours.items():
        if not name.startswith(("intermediate", "output.dense.weight")):
            assert torch.equal(tensor, theirs[name]), name
    rows = {tuple(row.tolist()) for row in theirs["intermediate.dense.weight"]}
    assert all(tuple(row.tolist()) in rows for row in ours["intermediate.dense.weight"])
    assert (record.embeddings, record.explained) == ("copied", None)


def test_equally_strong_units_are_kept_in_order():
    assert strongest(torch.tensor([1.0, 5.0, 3.0, 5.0]), 3).tolist() == [1, 2, 3]
    assert strongest(torch.tensor([5.0, 1.0, 5.0, 5.0]), 2).tolist() == [0, 2]
