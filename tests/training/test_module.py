"""The module and the trainer: what learns, what does not, and how losses are divided."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from limbeck.core.records import RANGES
from limbeck.corpus import PadCollator
from limbeck.corpus.batches.batch import FILLER
from limbeck.errors import RecipeError
from limbeck.kernels import soft_label_chunks
from limbeck.methods import METHODS, Pairing
from limbeck.methods.prediction_terms import hard_label_term, soft_label_term
from limbeck.models.families import embedding_tables, shape_of
from limbeck.models.heads import has_head
from limbeck.models.packed_linear import PackedLinear
from limbeck.models.packed_rows import Packing, RowStreams, rows_of_tokens
from limbeck.models.packing import plan_packing
from limbeck.models.streams import StreamKey
from limbeck.models.students import build_student
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.training.freezing import freeze_unreached
from limbeck.training.module import DistillationModule
from limbeck.training.read_rows import ReadRows, read_ranges, write_ranges
from limbeck.training.sampler import LengthGroupedSampler
from limbeck.training.teaching.live import LiveTeaching
from limbeck.training.units import UNITS, count_units
from tests.objectives import reference
from tests.support.methods import EQUAL_WIDTHS
from tests.support.models import ALL_FAMILIES, FAMILIES, tiny_config, tiny_model
from tests.support.training import (
    NO_DROPOUT,
    assert_accumulation_changes_nothing,
    collate,
    make_module,
    make_rows,
    make_trainer,
)


def test_the_teacher_is_outside_and_stays_in_eval():
    module = make_module()
    teacher = module.teaching.teacher
    module.train()
    assert not teacher.training
    assert all(not submodule.training for submodule in teacher.modules())
    assert not [name for name in module.state_dict() if "teacher" in name]
    trained = {id(parameter) for parameter in module.parameters()}
    assert not trained & {id(parameter) for parameter in teacher.parameters()}
    batch = collate(make_rows(4))
    torch.stack([total for total, _ in module(**batch).values()]).sum().backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert len(teacher.encoder.layer) == 4  # The default teacher layer is the last.


@pytest.mark.parametrize("side", ["right", "left"])
def test_tagged_words_are_taught_at_their_first_tokens(side):
    """Soft and hard labels against the equations, in float64, over the labelled tokens of batches of any padding."""
    rows = make_rows(4)
    for number, row in enumerate(rows):
        # Two of three tokens are labelled, as of 5 classes.
        row["labels"] = [(place + number) % 5 if place % 3 else -100 for place in range(row["length"])]
    batch = PadCollator(0, side=side, labels="token")(rows)

    student = tiny_model("bert", seed=0, head="token_classification", num_labels=5).double()
    teacher = tiny_model("bert", seed=1, head="token_classification", num_labels=5).double()
    pairing = Pairing(shape_of(student.config), facts_of_shape(shape_of(teacher.config)), "token_classification")
    terms = [soft_label_term(pairing, weight=1.0, temperature=2.0), hard_label_term(pairing, weight=1.0)]
    module = DistillationModule(student, LiveTeaching(teacher, terms), terms)

    is_labelled = batch["labels"] != -100
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    with torch.no_grad():
        outputs = module(**batch)
        student_scores = student(**inputs).logits[is_labelled].tolist()
        teacher_scores = teacher(**inputs).logits[is_labelled].tolist()
    labels = batch["labels"][is_labelled].tolist()
    expected = {
        "soft_label": reference.soft_label_kl([student_scores], [teacher_scores], temperature=2.0),
        "hard_label": reference.hard_label_ce([student_scores], [labels]),
    }
    for name, (expected_total, expected_count) in expected.items():
        total, count = outputs[name]
        assert total.item() == pytest.approx(expected_total, rel=1e-9)
        assert count.item() == expected_count == count_units(batch)[UNITS.index("label")]


def test_the_teacher_is_cut_at_the_layer_that_is_read():
    module = make_module(options={"teacher_layer": 2})
    assert len(module.teaching.teacher.encoder.layer) == 2


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["minilmv2", "sentence_embedding"])
def test_untrained_parameters_are_exactly_those_without_gradient(family, method):
    module = make_module(method, family)
    untrained = freeze_unreached(module, collate(make_rows(2)))
    module.train()
    torch.stack([total for total, _ in module(**collate(make_rows(3, seed=1))).values()]).sum().backward()
    for name, parameter in module.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    assert set(untrained) == {name for name, parameter in module.student.named_parameters() if parameter.grad is None}
    if method == "minilmv2" and family == "bert":
        assert any("layer.1.output.dense" in name for name in untrained)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_the_rows_that_batches_read_are_those_with_a_gradient(family, side):
    model = tiny_model(family).eval()
    generator = torch.Generator().manual_seed(1)
    notes = ReadRows(model)
    tables = embedding_tables(model)
    embeddings = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    # MPNet has a table of relative positions too, which is no table of the input.
    other_tables = 1 if family == "mpnet" else 0
    assert len(tables) == len(embeddings) - other_tables
    for seed in (1, 2):
        batch = PadCollator(model.config.pad_token_id or 0, side=side)(make_rows(3, seed=seed))
        if "segments" in tables and seed == 2:
            batch["token_type_ids"] = torch.randint(0, 2, batch["input_ids"].shape, generator=generator)
        notes.note(batch)
        notes.note({**batch, "input_ids": batch["input_ids"] + 40, FILLER: True})
        hidden = model(**batch).last_hidden_state[batch["attention_mask"].bool()]
        (hidden * torch.randn(hidden.shape, generator=generator)).sum().backward()
        unread = {kind: write_ranges((table.module.weight.grad == 0).all(1).numpy()) for kind, table in tables.items()}
        assert notes.unread() == unread
    restored = ReadRows(model)
    restored.load(unread)
    restored.merge()
    assert restored.unread() == unread
    restored.load(None)
    assert set(restored.unread().values()) == {""}, "every row counts as read"


@given(st.lists(st.booleans(), max_size=30))
def test_ranges_are_read_as_they_were_written(rows):
    text = write_ranges(np.array(rows, dtype=np.bool_))
    assert read_ranges(text, len(rows)).tolist() == rows
    assert re.fullmatch(RANGES, text)


#: So that each has terms of all its kinds.
OPTIONS = {
    "sentence_embedding": {"sample_relation_weight": 1.0},
    "reranker": {"loss": "margin_mse", "hidden_weight": 1},
}


@pytest.mark.parametrize("method", METHODS)
def test_counts_are_proportional_to_their_unit(method):
    options = OPTIONS.get(method, {})
    module = make_module(method, options=options, hidden=48 if method in EQUAL_WIDTHS else 24, heads=4).eval()
    batches = [with_labels(collate(make_rows(count, seed=count))) for count in (2, 5)]
    if method == "reranker":
        batches = [{**batch, "groups": torch.arange(len(batch["labels"])) // 2} for batch in batches]
    for term in module.terms:
        unit = UNITS.index(term.unit)
        ratios = []
        for batch in batches:
            _, count = module(**batch)[term.name]
            ratios.append(float(count / count_units(batch)[unit]))
        assert ratios[0] == pytest.approx(ratios[1]), term.name


def with_labels(batch):
    """Every third token is to be predicted."""
    chosen = (torch.arange(batch["input_ids"].shape[1]) % 3 == 0) & batch["attention_mask"].bool()
    return {**batch, "labels": batch["input_ids"].masked_fill(~chosen, -100)}


@pytest.mark.parametrize("clip", [0.5, 1000.0], ids=["clipped", "whole"])
@pytest.mark.parametrize("method", ["minilmv2", "sentence_embedding"])
def test_accumulation_equals_one_large_batch(method, clip, tmp_path):
    assert_accumulation_changes_nothing(method, clip, tmp_path)


WITH_WORDS = [family for family in ALL_FAMILIES if has_head(tiny_config(family), "masked_lm")]
"""Families with scores over words."""


def losses_and_gradients(module, batch):
    module.zero_grad()
    outputs = module(**batch)
    torch.stack([total / count for total, count in outputs.values()]).sum().backward()
    gradients = {}
    for name, parameter in module.student.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad.clone()
    return outputs, gradients


@pytest.mark.parametrize(
    ("family", "tied"), [(family, True) for family in WITH_WORDS] + [("bert", False), ("roberta", False)]
)
def test_losses_without_logits_are_those_of_logits(family, tied, monkeypatch):
    """Chunks of a few rows; a tied embedding has the gradients of both of its uses."""
    module = make_module("distilbert", family, hidden=48, heads=4, tie_word_embeddings=tied).double().eval()
    module.teaching.teacher.double()
    decoder = module.student.get_output_embeddings()
    batch = with_labels(collate(make_rows(5)))
    assert (decoder.weight is module.student.get_input_embeddings().weight) == tied
    numbers_of_logits = []
    decoder.register_forward_hook(lambda decoder, args, output: numbers_of_logits.append(output.numel()))
    with_logits = losses_and_gradients(module, batch)
    monkeypatch.setattr(soft_label_chunks, "CPU_CHUNK", 7 * len(decoder.weight))
    without_logits = losses_and_gradients(module, batch)
    assert numbers_of_logits == [batch["input_ids"].numel() * len(decoder.weight), 0]
    torch.testing.assert_close(without_logits, with_logits, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["output_distribution", "mlm"])
def test_masked_positions_are_taught_without_logits_too(method, monkeypatch):
    """In a batch that runs packed and under autocast, whose format the products keep."""
    module, batch = make_module(method, hidden=48, heads=4).eval(), with_labels(collate(make_rows(9, longest=120)))
    found = []
    for chunk in (1 << 24, 500):
        monkeypatch.setattr(soft_label_chunks, "CPU_CHUNK", chunk)
        with torch.autocast("cpu", torch.bfloat16):
            found.append(losses_and_gradients(module, batch))
        streams = module.student_tap(**{name: x for name, x in batch.items() if name != "labels"})
        assert ({key.name for key in streams} == {"logits"}) == (chunk > 500)
    (logits, with_logits), (terms, without) = found
    ((name, (total, count)),) = terms.items()
    assert count == logits[name][1] == (batch["labels"] != -100).sum()
    torch.testing.assert_close(total, logits[name][0], rtol=2e-3, atol=0.0)
    assert without.keys() == with_logits.keys()
    for name, gradient in with_logits.items():
        assert (without[name] - gradient).norm() <= 0.02 * gradient.norm() + 1e-7, name


def test_a_step_may_make_the_logits_of_some_batches_only(tmp_path, monkeypatch):
    """Whole batches are too large for logits, single rows are not."""
    monkeypatch.setattr(soft_label_chunks, "CPU_CHUNK", 3000)
    assert_accumulation_changes_nothing("distilbert", 1000.0, tmp_path, options={"hard_label_weight": 0.0}, hidden=48)


def test_held_out_loss_does_not_depend_on_the_batch_size(tmp_path):
    def metrics(batch_size):
        rows = make_rows(13)
        trainer = make_trainer(make_module(), rows, tmp_path, max_steps=1, per_device_eval_batch_size=batch_size)
        return trainer.evaluate(trainer.train_dataset)

    in_parts = metrics(batch_size=2)
    at_once = metrics(batch_size=13)
    for name in ("eval_loss", "eval_query_query"):
        assert in_parts[name] == pytest.approx(at_once[name], rel=1e-5)


def test_the_sampler_is_a_function_of_seed_and_epoch():
    lengths = [index % 17 + 3 for index in range(1003)]
    first = LengthGroupedSampler(lengths, batch_size=8, seed=1)
    second = LengthGroupedSampler(lengths, batch_size=8, seed=1)
    assert list(first) == list(second)
    assert sorted(first) == list(range(1003))
    second.set_epoch(1)
    assert list(first) != list(second)

    # The rows of a batch have nearly the same length.
    order = list(first)
    spreads = []
    for start in range(0, 1000, 8):
        lengths_of_batch = [lengths[index] for index in order[start : start + 8]]
        spreads.append(max(lengths_of_batch) - min(lengths_of_batch))
    assert sum(spreads) / len(spreads) < 1.0


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "distilbert", "electra"])
def test_scoring_only_masked_tokens_changes_nothing(family):
    """`output_distribution` beside `mlm`: values and gradients of scoring all tokens, without their logits."""
    config = tiny_config(family, layers=2, hidden=24, heads=2, ffn=48)
    teacher = tiny_model(family, head="masked_lm")
    pairing = Pairing(shape_of(config), facts_of_shape(shape_of(teacher.config)))
    terms = []
    for name in ("output_distribution", "mlm"):
        method = METHODS[name]
        terms += method.compose(method.options(), pairing)
    batch = with_labels(collate(make_rows(5)))

    def outputs_and_gradients(scores_labelled):
        """Losses and gradients of a new module, and the shape of the student's logits."""
        student = build_student(config, seed=3, head="masked_lm")
        teaching = LiveTeaching(tiny_model(family, head="masked_lm"), terms)
        module = DistillationModule(student, teaching, terms).eval()
        assert module._scores_labelled
        module._scores_labelled = scores_labelled
        shapes = []
        student.get_output_embeddings().register_forward_hook(lambda layer, args, out: shapes.append(out.shape))
        outputs, gradients = losses_and_gradients(module, batch)
        return outputs, gradients, shapes[0]

    outputs, gradients, shape = outputs_and_gradients(scores_labelled=True)
    expected_outputs, expected_gradients, expected_shape = outputs_and_gradients(scores_labelled=False)
    assert len(shape) == 2, "rows of the masked tokens"
    assert len(expected_shape) == 3, "all tokens of the batch"
    for name, (total, count) in expected_outputs.items():
        torch.testing.assert_close(outputs[name][0], total)
        assert outputs[name][1] == count
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-6)


def test_a_batch_without_a_masked_token_is_zero():
    module = make_module("mlm")
    batch = collate(make_rows(3))
    total, count = module(**batch, labels=torch.full_like(batch["input_ids"], -100))["hard_label"]
    total.backward()
    assert (float(total.detach()), float(count)) == (0, 0)


def test_maps_start_as_the_identity():
    """A student that is its teacher has no error from the first step."""
    same = {"layers": 4, "hidden": 48, "heads": 4, "ffn": 96}
    for method in ("hidden_states", "direct_minilm", "tinybert"):
        options = {"teacher_layer": "last"} if method == "direct_minilm" else {}
        module = make_module(method, options=options, **same).eval()
        module.student.load_state_dict(tiny_model("bert").state_dict())
        with torch.no_grad():
            outputs = module(**collate(make_rows(4)))
        for name, (total, count) in outputs.items():
            layers = name.split("_")[1:]
            if method == "direct_minilm" or len(set(layers)) == 1 or name == "embedding":
                assert float(total / count) < 1e-10, name


def test_terms_share_a_learned_map_of_one_size():
    module = make_module("hidden_states")
    first, second = module.terms[:2]
    other = replace(second, learned_map=replace(second.learned_map, name=first.map_name, outputs=96))
    with pytest.raises(RecipeError, match=f"'{second.name}' has a learned map '{first.map_name}', but another term"):
        DistillationModule(module.student, module.teaching, (first, other))


def test_a_teacher_is_packed_where_it_stays_and_plain_again_in_the_end():
    module = make_module()
    freeze_unreached(module, collate(make_rows(2)))
    assert not packed_maps(module)  # it may still move elsewhere
    module.teaching.move("cpu", pack=False)
    assert not packed_maps(module)
    module.teaching.move("cpu")
    assert packed_maps(module)
    module.teaching.move("meta")
    assert not packed_maps(module)
    assert {parameter.device.type for parameter in module.teaching.teacher.parameters()} == {"meta"}
    module = make_module()
    module.teaching.move("cpu")
    module.close()
    assert not packed_maps(module)


def packed_maps(module):
    return [part for part in module.teaching.teacher.modules() if isinstance(part, PackedLinear)]


BY_TOKEN = [("hidden_states", {}), ("sentence_embedding", {"layer_mapping": {1: 2}}), ("direct_minilm", {})]


@pytest.mark.parametrize(("method", "options"), BY_TOKEN, ids=[name for name, _ in BY_TOKEN])
def test_tokens_are_compared_in_the_row_that_both_models_ran_as(method, options, monkeypatch):
    """In bfloat16: the same loss and gradients as in padded batches, of which no stream by token is made."""
    module = make_module(method, options=options, **NO_DROPOUT)
    module.teaching.teacher.bfloat16()
    batch = collate(make_rows(5))
    unpacked_shapes = []
    unpack = Packing.unpack

    def unpack_and_note(self, row):
        unpacked_shapes.append(row.shape)
        return unpack(self, row)

    def terms_and_gradients():
        """Terms, gradients of students and maps, and the number of streams that were put back into batches."""
        unpacked_shapes.clear()
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            terms = module(**batch)
        torch.stack([total for total, _ in terms.values()]).sum().backward()
        gradients = {}
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                gradients[name] = parameter.grad.clone()
        return terms, gradients, len(unpacked_shapes)

    monkeypatch.setattr(Packing, "unpack", unpack_and_note)
    terms, gradients, unpacked = terms_and_gradients()
    monkeypatch.setattr("limbeck.training.term_loss.rows_of_tokens", lambda *_: None)
    expected_terms, expected_gradients, unpacked_in_batches = terms_and_gradients()

    # The pooled vectors of each model are made of padded batches.
    assert unpacked == (2 if method == "sentence_embedding" else 0) < unpacked_in_batches
    for name, (total, count) in expected_terms.items():
        torch.testing.assert_close(terms[name][0], total, rtol=1e-5, atol=1e-6)
        assert torch.equal(terms[name][1], count)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        assert (gradients[name] - gradient).norm() <= 2e-2 * gradient.norm() + 1e-6, name


def test_rows_hold_the_same_tokens_in_16_bits():
    key = StreamKey("hidden", 1)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])

    def streams(mask, dtype=torch.bfloat16):
        packing = plan_packing(mask, torch.bfloat16)
        return RowStreams(packing, {key: torch.ones(1, len(packing.index), 3, dtype=dtype)}, {})

    student = streams(mask, torch.float32)
    _, teacher_rows = rows_of_tokens(student, streams(mask))
    assert teacher_rows[key].shape == (1, 5, 3)
    in_float32 = streams(mask, torch.float32)
    at_other_places = [streams(mask.flip(1)), streams(mask.flip(0))]
    longer = streams(torch.nn.functional.pad(mask, (0, 1)))
    not_packed = {key: torch.ones(2, 4, 3, dtype=torch.bfloat16)}
    for teacher in (in_float32, *at_other_places, longer, not_packed):
        assert rows_of_tokens(student, teacher) is None
    assert rows_of_tokens({key: torch.ones(2, 4, 3)}, streams(mask)) is None
    assert key in student
    assert student[key].shape == (2, 4, 3)
    assert key in student
    assert key not in student.rows, "a stream is kept in one shape"
