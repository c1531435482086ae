"""`limbeck.Distiller`: the loss of a method in a training loop that is not limbeck's."""

import copy
from dataclasses import dataclass

import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModel, Trainer, TrainingArguments

import limbeck
from limbeck.core import ranks
from limbeck.errors import LimbeckError, TrainingError
from limbeck.methods import METHODS, Pairing
from limbeck.models.families import shape_of
from limbeck.models.students import build_student
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.recipe.stage_terms import needed_head
from limbeck.training.module import DistillationModule
from limbeck.training.teaching.live import LiveTeaching
from tests.objectives import reference
from tests.support.corpora import documents
from tests.support.models import make_embedding, make_teacher, tiny_batch, tiny_config, tiny_model
from tests.support.together import together
from tests.support.training import NO_DROPOUT, STUDENT, assert_equal, collate, make_rows, make_trainer

STEPS = 20
BATCH = 3
ACCUMULATION = 2
#: 14 rows make batches of 3, 3, 3, 3 and 2, so that a step has two batches of 3, or one of 2.
ROWS = 14
TRAINING = {
    "max_steps": STEPS,
    "per_device_train_batch_size": BATCH,
    "gradient_accumulation_steps": ACCUMULATION,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "learning_rate": 3e-3,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "optim": "adamw_torch",
}
METHODS_OF_STEPS = {
    "minilmv2": {"relation_heads": 4},
    "hidden_states": {},
    "sentence_embedding": {"pooling": "mean"},
    "output_distribution": {"positions": "all"},
}


@dataclass
class Case:
    """A student and a teacher, and what limbeck's trainer makes of the student."""

    student: nn.Module
    teacher: str
    method: str
    options: dict
    rows: list
    trained: dict

    def distiller(self, **changes):
        return limbeck.Distiller(copy.deepcopy(self.student), self.teacher, self.method, **self.options | changes)


@pytest.fixture
def case(request, tmp_path):
    """A method, by default one with learned maps, and the weights of its module after the steps of a trainer."""
    method = getattr(request, "param", "hidden_states")
    options = METHODS_OF_STEPS[method]
    config = tiny_config("bert", **STUDENT, **NO_DROPOUT)
    pairing = Pairing(shape_of(config), facts_of_shape(shape_of(tiny_config("bert"))))
    terms = METHODS[method].compose(METHODS[method].options(**options), pairing)
    head = needed_head(terms, pairing, "student")
    teacher = str(make_teacher(tmp_path, "bert", head=head))
    student = build_student(config, seed=3, head=head)
    rows = make_rows(ROWS)

    teaching = LiveTeaching(tiny_model("bert", head=head), terms)
    module = DistillationModule(copy.deepcopy(student), teaching, terms)
    trainer = make_trainer(module, rows, tmp_path / "trainer", **TRAINING)
    trainer.train()
    assert trainer.state.global_step == STEPS
    return Case(student, teacher, method, options, rows, module.state_dict())


def batches_of_steps(rows):
    """The batches of each step, epoch by epoch."""
    batches = [collate(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]
    steps = [batches[start : start + ACCUMULATION] for start in range(0, len(batches), ACCUMULATION)]
    return [steps[number % len(steps)] for number in range(STEPS)]


def plain_steps(distiller, steps, *, backward=torch.Tensor.backward, optimizer=None):
    """The steps of a loop of one's own."""
    if optimizer is None:
        optimizer = torch.optim.AdamW(distiller.parameters(), lr=TRAINING["learning_rate"], weight_decay=0.0)
    for batches in steps:
        divisor = distiller.count(batches)
        for batch in batches:
            backward(distiller(batch, divisor))
        nn.utils.clip_grad_norm_(distiller.parameters(), TRAINING["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()


def assert_close(distiller, trained):
    weights = distiller.distillation.state_dict()
    assert weights.keys() == trained.keys()
    for name, tensor in trained.items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", METHODS_OF_STEPS, indirect=True)
def test_twenty_steps_of_a_plain_loop_are_those_of_the_trainer(case):
    distiller = case.distiller()
    before = copy.deepcopy(distiller.distillation.state_dict())
    plain_steps(distiller, batches_of_steps(case.rows))
    assert_close(distiller, case.trained)
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, case.trained[name])]
    assert any(name.startswith("student.") for name in changed)


def test_steps_with_accelerate_are_those_of_the_trainer(case):
    accelerator = Accelerator(cpu=True)
    distiller = case.distiller()
    optimizer = torch.optim.AdamW(distiller.parameters(), lr=TRAINING["learning_rate"], weight_decay=0.0)
    distiller, optimizer = accelerator.prepare(distiller, optimizer)
    plain_steps(distiller, batches_of_steps(case.rows), backward=accelerator.backward, optimizer=optimizer)
    assert_close(distiller, case.trained)


class OwnTrainer(Trainer):
    """A trainer of transformers as docs/training_loop.md has it."""

    loss_is_scaled_for_ga = True

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        return batches, self.model.count(batches) if batches else None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(inputs, num_items_in_batch)

    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def test_steps_of_an_own_trainer_are_those_of_the_trainer(case, tmp_path):
    distiller = case.distiller()
    arguments = TrainingArguments(
        output_dir=str(tmp_path), save_strategy="no", report_to=[], use_cpu=True, remove_unused_columns=False,
        disable_tqdm=True, **TRAINING,
    )  # fmt: skip
    rows = Dataset.from_list(case.rows)
    OwnTrainer(distiller, arguments, train_dataset=rows, data_collator=collate).train()
    assert_close(distiller, case.trained)


def test_two_processes_share_a_step(case, tmp_path):
    """Each process reads one of the two batches of a step; both end with the weights of one process.

    Neither clipping nor AdamW would notice a gradient of another length.
    """
    steps = [batches for batches in batches_of_steps(case.rows) if len(batches) == ACCUMULATION][:4]
    whole = case.distiller()
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.05)
    for batches in steps:
        divisor = whole.count(batches)
        for batch in batches:
            whole(batch, divisor).backward()
        optimizer.step()
        optimizer.zero_grad()

    def job(index, console):
        ranks.connect()
        distiller = case.distiller()
        distiller.freeze_unreached(steps[0][0])
        wrapped = DistributedDataParallel(distiller)
        optimizer = torch.optim.SGD(distiller.parameters(), lr=0.05)
        for batches in steps:
            wrapped(batches[index], distiller.count(batches[index])).backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.save(distiller.state_dict(), tmp_path / f"{index}.pt")

    assert together(ACCUMULATION, job) == [(0, "")] * ACCUMULATION
    for index in range(ACCUMULATION):
        weights = torch.load(tmp_path / f"{index}.pt")
        for name, tensor in whole.state_dict().items():
            torch.testing.assert_close(weights[name], tensor, rtol=0, atol=1e-6)


def test_the_teacher_is_outside_and_in_eval_mode():
    student = tiny_model("bert", seed=3, **STUDENT)
    teacher = tiny_model("bert").train()
    distiller = limbeck.Distiller(student, teacher, "hidden_states")
    distiller.train()
    distiller(tiny_batch()).backward()
    assert student.training
    assert not teacher.training
    assert all(parameter.grad is None for parameter in teacher.parameters())
    of_distiller = {id(parameter) for parameter in distiller.parameters()}
    of_student = {id(parameter) for parameter in student.parameters()}
    of_maps = {id(parameter) for parameter in distiller.distillation.maps.parameters()}
    assert of_maps
    assert of_distiller == of_student | of_maps
    assert not [name for name in distiller.state_dict() if "teach" in name]
    assert len(teacher.encoder.layer) == 4
    assert distiller.student is student


def test_models_that_are_called_between_two_steps_run_whole():
    """The method needs only a part of a low layer of both models."""
    student = tiny_model("bert", seed=3)
    teacher = tiny_model("bert")
    batch = tiny_batch()

    def outputs():
        return [model.eval()(**batch).last_hidden_state.detach() for model in (student, teacher)]

    before = outputs()
    distiller = limbeck.Distiller(student, teacher, "minilmv2", student_layer=2, teacher_layer=2, relation_heads=4)
    loss = distiller.eval()(batch)
    for found, expected in zip(outputs(), before, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert distiller(batch).item() == loss.item()
    with pytest.raises(AttributeError):
        student(**batch, position_ids="no tensor")
    assert distiller(batch).item() == loss.item()
    distiller.close()
    assert not student._forward_pre_hooks
    assert all("forward" not in block.__dict__ for block in (*student.encoder.layer, *teacher.encoder.layer))


@pytest.mark.parametrize("columns", [("text",), ("anchor", "positive")], ids=["texts", "pairs"])
def test_it_is_a_loss_of_the_trainer_of_sentence_transformers(columns, tmp_path):
    folder = str(make_embedding(tmp_path))
    teacher = SentenceTransformer(folder, device="cpu")
    model = SentenceTransformer(folder, device="cpu")
    student = model.transformers_model
    with torch.no_grad():
        for parameter in student.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    texts = documents(24, 1)
    rows = {name: texts[number:] + texts[:number] for number, name in enumerate(columns)}
    distiller = limbeck.Distiller(model, teacher, "sentence_embedding")

    def distance():
        vectors = model.encode(texts, convert_to_tensor=True)
        return (1 - torch.cosine_similarity(vectors, teacher.encode(texts, convert_to_tensor=True))).mean().item()

    before = distance()
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "run"), max_steps=30, per_device_train_batch_size=8, learning_rate=5e-3,
        save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    SentenceTransformerTrainer(model, arguments, train_dataset=Dataset.from_dict(rows), loss=distiller).train()
    assert distance() < before / 2


def test_the_loss_of_two_columns_is_that_of_all_their_rows(tmp_path):
    distiller = limbeck.Distiller(
        tiny_model("bert", seed=3), tiny_model("bert"), "sentence_embedding", pooling="mean"
    ).eval()
    first, second = tiny_batch(rows=3, length=12), tiny_batch(rows=2, length=12, seed=1)
    both = {name: torch.cat([first[name], second[name]]) for name in first}
    # The trainer's features may hold what is no tensor.
    features = [first | {"modality": "text"}, second]
    torch.testing.assert_close(distiller(features, None), distiller(both))


class OwnEncoder(nn.Module):
    """A model that transformers does not know."""

    def __init__(self, width, layers, classes=0):
        super().__init__()
        self.words = nn.Embedding(60, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width))
        if classes:
            self.head = nn.Linear(width, classes)

    def forward(self, input_ids, attention_mask):
        hidden = self.encoder(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        return self.head(hidden[:, 0]) if hasattr(self, "head") else hidden


NAMES = {"hidden": "encoder.layers.{i}", "last_hidden": "encoder.norm"}


@pytest.fixture
def own_models():
    torch.manual_seed(0)
    return OwnEncoder(16, 2), OwnEncoder(24, 4)


@pytest.fixture
def batch():
    return tiny_batch(rows=3, length=9)


def own_hidden_states(model, batch):
    """The hidden states of each layer, without a tap; the last one is normed."""
    states = [model.words(batch["input_ids"])]
    for layer in model.encoder.layers:
        states.append(layer(states[-1], src_key_padding_mask=batch["attention_mask"] == 0))
    states[-1] = model.encoder.norm(states[-1])
    return states


def test_hidden_states_of_an_own_model_are_compared(own_models, batch):
    student, teacher = own_models
    batch["input_ids"] = batch["input_ids"] % 60
    with torch.no_grad():
        student_states = own_hidden_states(student.eval(), batch)
        teacher_states = own_hidden_states(teacher.eval(), batch)
    distiller = limbeck.Distiller(student, teacher, "hidden_states", streams=NAMES, mapping={1: 2, 2: 4})
    loss = distiller.eval()(batch).item()
    expected = 0.0
    for layer, teacher_layer in ((1, 2), (2, 4)):
        projection = distiller.distillation.maps[f"hidden_{layer}_{teacher_layer}"].weight.T.double().tolist()
        streams = student_states[layer].double().tolist(), teacher_states[teacher_layer].double().tolist()
        total, count = reference.hidden_mse(*streams, batch["attention_mask"].tolist(), projection)
        expected += total / count
    assert loss == pytest.approx(expected, rel=1e-5)


def test_an_own_model_learns(own_models, batch):
    student, teacher = own_models
    batch["input_ids"] = batch["input_ids"] % 60
    distiller = limbeck.Distiller(student, teacher, "sentence_embedding", streams=NAMES, pooling="mean")
    optimizer = torch.optim.AdamW(distiller.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = distiller(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert distiller.student is student
    assert not teacher.training
    assert len(distiller.state_dict()) == len(student.state_dict()) + 2
    distiller.close()


def test_an_own_model_that_is_called_between_two_steps_runs_whole(own_models, batch):
    student, teacher = own_models
    batch["input_ids"] = batch["input_ids"] % 60
    expected = own_hidden_states(student.eval(), batch)[-1]
    distiller = limbeck.Distiller(student, teacher, "hidden_states", streams=NAMES, mapping={1: 1}).eval()
    distiller(batch)
    torch.testing.assert_close(student(**batch), expected)


def test_the_scores_of_an_own_model_are_taught():
    torch.manual_seed(0)
    student, teacher = OwnEncoder(16, 2, classes=3), OwnEncoder(16, 4, classes=3)
    names = NAMES | {"logits": "head"}
    batch = tiny_batch(rows=3, length=9)
    batch["input_ids"] = batch["input_ids"] % 60
    scores = [model.eval()(**batch).double().tolist() for model in (student, teacher)]
    distiller = limbeck.Distiller(student, teacher, "output_distribution", task="classification", streams=names)
    loss = distiller.eval()(batch)
    total, count = reference.soft_label_kl(
        [scores[0]], [scores[1]], temperature=distiller.terms[0].options["temperature"]
    )
    assert loss.item() == pytest.approx(total / count, rel=1e-5)


def test_an_own_student_learns_from_a_model_of_transformers(batch):
    torch.manual_seed(0)
    student = OwnEncoder(16, 2)
    batch["input_ids"] = batch["input_ids"] % 60
    distiller = limbeck.Distiller(student, tiny_model("bert"), "hidden_states", streams=NAMES)
    # The student has no segments, and does not get those of the tokenizer.
    distiller(batch | {"token_type_ids": torch.zeros_like(batch["input_ids"])}).backward()
    assert student.words.weight.grad.abs().sum() > 0


class Blocks(nn.Module):
    """Blocks that return tuples and are numbered from 1, outside of any list."""

    def __init__(self, returned=2, shared=False):
        super().__init__()
        self.words = nn.Embedding(60, 8)
        self.block1 = nn.Linear(8, 8)
        self.block2 = self.block1 if shared else nn.Linear(8, 8)
        self.returned = returned

    def forward(self, input_ids, attention_mask):
        hidden = self.words(input_ids)
        for block in (self.block1, self.block2):
            hidden = block(hidden)
        return hidden


class Pairs(nn.Linear):
    def forward(self, hidden):
        return super().forward(hidden), None


def test_blocks_may_return_tuples_and_stand_outside_of_a_list(batch):
    class WithPairs(Blocks):
        def __init__(self):
            super().__init__()
            self.block1, self.block2 = Pairs(8, 8), Pairs(8, 8)

        def forward(self, input_ids, attention_mask):
            hidden = self.words(input_ids)
            for block in (self.block1, self.block2):
                hidden, _ = block(hidden)
            return hidden

    batch["input_ids"] = batch["input_ids"] % 60
    names = {"hidden": "block{i}"}
    student = WithPairs()
    distiller = limbeck.Distiller(student, WithPairs(), "hidden_states", streams=names, mapping={1: 2})
    distiller(batch).backward()
    assert student.block1.weight.grad is not None
    assert student.block2.weight.grad is None


class Lengthwise(OwnEncoder):
    def __init__(self):
        super().__init__(16, 2)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, input_ids, attention_mask):
        hidden = self.encoder(self.words(input_ids).transpose(0, 1), src_key_padding_mask=attention_mask == 0)
        return hidden.transpose(0, 1)


class OtherInputs(OwnEncoder):
    def forward(self, tokens):
        return self.words(tokens)


REFUSED_MODELS = {
    "no names": (lambda: OwnEncoder(16, 2), None, "name its blocks, for example by streams="),
    "no blocks": (lambda: OwnEncoder(16, 2), {}, "the layers (blocks) of the student are not named"),
    "a name of nothing": (lambda: OwnEncoder(16, 2), {"hiden": "x"}, "Did you mean 'hidden'"),
    "no pattern": (lambda: OwnEncoder(16, 2), {"hidden": "encoder.layers"}, "a pattern needs {i} exactly once"),
    "no text": (lambda: OwnEncoder(16, 2), {"hidden": 3}, "not int"),
    "another path": (lambda: OwnEncoder(16, 2), {"hidden": "encoder.layer.{i}"}, "Did you mean 'encoder.layers.0'"),
    "no such head": (lambda: OwnEncoder(16, 2), NAMES | {"logits": "scores"}, "Its parts: words, encoder."),
    "another norm": (lambda: OwnEncoder(16, 2), NAMES | {"last_hidden": "encoder.layers.0.linear1"}, "[2, 5, 32]"),
    "length first": (Lengthwise, {"hidden": "encoder.layers.{i}"}, "batch_first=True"),
    "other inputs": (lambda: OtherInputs(16, 2), NAMES, "wrap it in a module"),
    "a shared block": (lambda: Blocks(shared=True), {"hidden": "block{i}"}, "at several places"),
    "a number": (lambda: 3, NAMES, "is of the class int"),
    "streams of no own model": (lambda: tiny_model("bert"), NAMES, "leave 'streams' out"),
}


@pytest.mark.parametrize("name", REFUSED_MODELS)
def test_models_that_cannot_be_read_are_refused_in_a_line(name):
    make, streams, message = REFUSED_MODELS[name]
    with pytest.raises(LimbeckError) as caught:
        limbeck.Distiller(make(), tiny_model("bert"), "hidden_states", streams=streams)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_terms_that_cannot_be_read_are_refused_with_the_methods_that_can(own_models):
    with pytest.raises(LimbeckError) as caught:
        limbeck.Distiller(*own_models, streams=NAMES)
    message = str(caught.value)
    assert "'query_query' reads query of the student" in message
    assert "embedding, hidden, cls, pooled, vector can be read" in message
    assert message.endswith("Methods that can be used: aligned_embedding, hidden_states, sentence_embedding.")


def test_methods_and_models_that_do_not_suit_are_refused_in_a_line():
    student, teacher = tiny_model("bert", seed=3, layers=2), tiny_model("bert")
    refusals = [
        (lambda: limbeck.Distiller(student, teacher, "hidden_stats"), "Did you mean 'hidden_states'"),
        (lambda: limbeck.Distiller(student, teacher, "minilmv2", heads=3), "Did you mean 'relation_heads'"),
        (lambda: limbeck.Distiller(student, teacher, "reranker"), "made for the tasks ranking"),
        (lambda: limbeck.Distiller(student, teacher, "output_distribution"), "scores of a BertForMaskedLM"),
        (lambda: limbeck.Distiller(student, student, "hidden_states"), "share the weights"),
        (lambda: limbeck.Distiller(student, "no/folder", "hidden_states"), "Cannot get 'no/folder'"),
    ]
    for make, message in refusals:
        with pytest.raises(LimbeckError) as caught:
            make()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_model_that_another_distiller_reads_is_refused():
    """Two taps on one model would let it stop for one of them too early."""
    student, teacher = tiny_model("bert", seed=3, layers=2), tiny_model("bert")
    first = limbeck.Distiller(student, teacher, "hidden_states")
    for models in ((student, tiny_model("bert")), (tiny_model("bert", seed=3), teacher)):
        with pytest.raises(LimbeckError, match="is in use by another Distiller; call close"):
            limbeck.Distiller(*models, "hidden_states")
    first.close()
    limbeck.Distiller(student, teacher, "hidden_states")(tiny_batch()).backward()


def test_another_pooling_than_the_models_use_is_refused(tmp_path):
    mean = SentenceTransformer(str(make_embedding(tmp_path / "mean")), device="cpu")
    cls = SentenceTransformer(
        str(make_embedding(tmp_path / "cls", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)), device="cpu"
    )
    with pytest.raises(LimbeckError, match="pools by 'cls', but its teacher's vectors are pooled by 'mean'"):
        limbeck.Distiller(cls, mean, "sentence_embedding")
    with pytest.raises(LimbeckError, match="pooling is 'cls', but the teacher already pools by 'mean'"):
        limbeck.Distiller(tiny_model("bert", seed=3), mean, "sentence_embedding", pooling="cls")


def test_batches_that_cannot_be_read_are_refused_in_a_line(batch):
    student, teacher = tiny_model("bert", seed=3, layers=2), tiny_model("bert")
    distiller = limbeck.Distiller(student, teacher, "hidden_states")
    couple = tiny_model("bert", seed=3, layers=2), tiny_model("bert")
    coupled = limbeck.Distiller(*couple, "sentence_embedding", sample_relation_weight=1.0)
    scored = [tiny_model("bert", seed=seed, head="masked_lm") for seed in (3, 0)]
    untapped = copy.deepcopy(scored)
    labelled = limbeck.Distiller(*scored, "mlm")
    masked = limbeck.Distiller(*copy.deepcopy(untapped), "output_distribution", positions="masked")
    rankers = [tiny_model("bert", seed=seed, head="ranking", num_labels=1) for seed in (3, 0)]
    ranked = limbeck.Distiller(*rankers, "reranker", task="ranking", loss="listwise_kl")
    classifiers = [tiny_model("bert", seed=seed, head="classification") for seed in (3, 0)]
    annealed = limbeck.Distiller(*classifiers, "output_distribution", task="classification", annealing=4)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    refusals = [
        (lambda: distiller({"input_ids": ids}), "no tensor 'attention_mask'"),
        (lambda: distiller({"input_ids": ids.tolist(), "attention_mask": mask}), "no tensor 'input_ids'"),
        (lambda: distiller("text"), "a mapping from column names to tensors, not str"),
        (lambda: distiller(["text"]), "a mapping from column names to tensors, not str"),
        (lambda: distiller(batch, 3), "the result of distiller.count"),
        (lambda: distiller.count([]), "without batches"),
        (lambda: coupled.count([batch, batch]), "give one larger batch"),
        (lambda: labelled(batch), "reads the column 'labels', but the batch has no such column"),
        (lambda: masked(batch), "reads the column 'labels', but the batch has no such column"),
        (lambda: ranked(batch), "reads the column 'groups', but the batch has no such column"),
        (lambda: annealed(batch), "call distiller.set_course"),
        (lambda: annealed.set_course(share=1.5), "share from 0 to 1"),
        (
            lambda: distiller(batch | {"teacher_input_ids": ids[:, :4], "teacher_attention_mask": mask[:, :4]}),
            "token by token",
        ),
    ]
    for call, message in refusals:
        with pytest.raises(LimbeckError) as caught:
            call()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    annealed.set_course(epoch=0, share=0.5)
    annealed(batch).backward()


@pytest.mark.parametrize("kind", ["folders", "objects", "sentence-transformers"])
def test_ids_of_other_tokens_are_refused(kind, tmp_path):
    teacher = make_embedding(tmp_path, "roberta")
    student = make_embedding(tmp_path, "bert")
    rows = {"input_ids": torch.tensor([[2, 5, 6, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
    models = {
        "folders": lambda folder: folder,
        "objects": AutoModel.from_pretrained,
        "sentence-transformers": lambda folder: SentenceTransformer(str(folder), device="cpu"),
    }
    load = models[kind]
    distiller = limbeck.Distiller(load(student), load(teacher), "sentence_embedding", hidden_weight=0, pooling="mean")
    with pytest.raises(TrainingError, match="differ in .* tokens: .* give the teacher's tokens of the same texts"):
        distiller(rows)
    # With tokens of its own the teacher reads what is meant for it.
    distiller(rows | {f"teacher_{name}": value for name, value in rows.items()})


def test_vocabularies_of_other_sizes_are_refused_where_no_tokenizer_is_known():
    student = tiny_model(vocab_size=1000)
    teacher = tiny_model(vocab_size=2000)
    distiller = limbeck.Distiller(student, teacher, "hidden_states")
    with pytest.raises(TrainingError, match="vocabulary of 1,000 tokens, and the teacher one of 2,000"):
        distiller(tiny_batch())


def test_a_kept_map_starts_by_least_squares(tmp_path):
    teacher = SentenceTransformer(str(make_embedding(tmp_path)), device="cpu")
    student = tiny_model("bert", seed=3, hidden=24, heads=2)
    distiller = limbeck.Distiller(student, teacher, "aligned_embedding").eval()
    batches = [tiny_batch(rows=8, length=12, seed=seed) for seed in range(8)]
    before = sum(distiller(batch).item() for batch in batches)
    distiller.start_maps(batches)
    assert sum(distiller(batch).item() for batch in batches) < before / 1.5


def test_the_trained_weights_are_loaded_again(case, tmp_path):
    distiller = case.distiller()
    plain_steps(distiller, batches_of_steps(case.rows)[:2])
    torch.save(distiller.state_dict(), tmp_path / "distiller.pt")
    other = case.distiller()
    other.load_state_dict(torch.load(tmp_path / "distiller.pt"))
    assert_equal(other.state_dict(), distiller.state_dict())
