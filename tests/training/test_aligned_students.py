"""Aligned students: the map behind their pooling starts near the teacher, is resumed, and is part of the student."""

import shutil
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from onnxruntime import InferenceSession
from rich.console import Console
from safetensors.torch import load_file, save_file

import limbeck
from limbeck.comparison.held_out import pooling_of_student
from limbeck.core.records import RunEvaluation
from limbeck.corpus.batches.batch import read_batch
from limbeck.errors import Interrupted
from limbeck.evaluation import encode
from limbeck.export import ExportRequest, export_model
from limbeck.methods import LearnedMap, Term
from limbeck.models.fingerprint import fingerprint_beside, model_fingerprint
from limbeck.models.loading import load_config, load_model
from limbeck.models.quiet import quiet
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentence_heads import SentenceHead, describe_pooling
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.sentences import SentenceModule, trained_widths
from limbeck.models.streams import StreamKey
from limbeck.models.tokenizers import load_tokenizer
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.learned_maps import Learned
from limbeck.training.module import DistillationModule
from limbeck.training.proxy import Proxy
from limbeck.training.stage import StageTraining
from limbeck.training.student_folder import finished_head
from limbeck.training.teaching.live import LiveTeaching
from limbeck.training.trainer import DistillationTrainer
from tests.support.models import make_teacher, tiny_batch, tiny_model
from tests.support.training import assert_equal, at_step, interrupt
from tests.training.conftest import make_recipe

TEXTS = ["the old bridge", "the river runs under the old stone bridge", "people near the garden"]
OPTIONS = {"pooling": "mean", "bias": True, "truncate": [8], "hidden_weight": 1.0}
NARROW = {"layers": 2, "hidden": 16, "heads": 2, "ffn": 32}
TRAINING = {"max_steps": 4, "per_device_train_batch_size": 16, "learning_rate": 1e-2, "warmup_steps": 0}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A teacher of vectors 48 wide, pooled by its first tokens."""
    folder = make_teacher(tmp_path_factory.mktemp("aligned"), "bert", layers=2)
    write_sentence_transformers_files(folder, width=48, pooling="cls", normalize=True, max_length=24)
    return folder


def recipe_of(teacher, text, output, **options):
    recipe = make_recipe(teacher, text, output, {"name": "aligned_embedding", **options}, **TRAINING)
    recipe["evaluation"] = {"enabled": False}
    return recipe


def ours(folder):
    head = SentenceHead(sentence_pooling(folder))
    return encode(load_model(folder), load_tokenizer(folder), TEXTS, pooling=head, max_length=24)


@pytest.fixture(scope="module")
def aligned(teacher, text_folder, tmp_path_factory):
    """A student 16 wide that pools by the mean, with a bias."""
    recipe = recipe_of(teacher, text_folder, tmp_path_factory.mktemp("student") / "run", **OPTIONS)
    recipe["evaluation"] = {"speed": False, "pairs": 30, "retrieval_pairs": 10}
    return limbeck.distill(recipe)


def test_the_student_keeps_its_map(aligned):
    said = sentence_pooling(aligned.student)
    assert str(said) == "mean + Dense 16 → 48" and said.normalize and said.max_length == 24
    kept = load_file(aligned.student / "2_Dense" / "model.safetensors")
    trained = load_file(next(aligned.student.parent.glob("stages/*/model.safetensors")))
    assert_equal(kept, {f"linear.{part}": trained[f"maps.vector.{part}"] for part in ("weight", "bias")})
    card = (aligned.student / "README.md").read_text()
    assert "by mean + Dense 16 → 48, which" in card and "SentenceTransformer(" in card and "AutoModel" not in card
    assert trained_widths(load_config(aligned.student)) == (48, 8)
    assert "truncate_dim=8)" in card and "**Methods.**" in card
    stage = aligned.record["stages"][0]
    assert set(stage["final_terms"]) == {"vector", "vector_8", "hidden_mse"}
    assert [link.get("vectors") for link in stage["layers"] if "vector" in link["terms"]] == [True]


def test_a_plan_says_how_vectors_are_made(teacher, bert_folder, text_folder, tmp_path):
    narrow = recipe_of(teacher, text_folder, tmp_path / "run", **OPTIONS)
    lines = plan_run(load_recipe(narrow)).summary()
    whole, cut, *_ = lines["stage 1: aligned_embedding"].split(", ")
    assert cut == whole.removesuffix(")") + "; first 8 numbers)"
    said = lines["vectors of stage 1"]
    assert said == ("the student's by mean + a map 16 → 48 that it keeps + Normalize; the teacher's by cls + Normalize")
    plain = recipe_of(bert_folder, text_folder, tmp_path / "run")
    said = plan_run(load_recipe(plain)).summary()["vectors of stage 1"]
    assert said.endswith("the teacher's by mean + Normalize, since none of its files says how")


def test_it_is_measured_in_the_teachers_documents_and_cut(aligned):
    found = RunEvaluation.read(aligned.record["evaluation"])
    assert not found.unavailable
    assert (found.settings.pooling, found.settings.student_pooling) == ("cls", "mean + Dense 16 → 48")
    assert 0 <= found.asymmetric.ndcg_at_10 <= 1 and [cut.width for cut in found.cut] == [8]
    # The student's layers are 16 wide, and its vectors as wide as the teacher's.
    assert (found.teacher.vector_width, found.student.vector_width) == (48, 48)
    table = (aligned.student.parent / "evaluation.md").read_text()
    assert "| Vector width | 48 | 48 | same |" in table
    assert "made by mean + Dense 16 → 48, are not as wide as its layers" in table
    assert "Vector width" in (aligned.student / "README.md").read_text()
    lines = (aligned.student.parent / "evaluation.md").read_text().splitlines()
    labels = [line.split("|")[1].strip() for line in lines if line.startswith("|")]
    mixed = [labels[place - 1] for place, label in enumerate(labels) if label == "↳ in the teacher's documents"]
    metrics = ("nDCG@10", "MRR@10", "recall@1", "recall@10", "nDCG@10, 8 components")
    named = [f"Passage retrieval {metric}" for metric in metrics]
    assert mixed == named and "Agreement, far to near, 8 components" in labels


def test_sentence_transformers_and_onnx_give_its_vectors(aligned, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    expected = ours(aligned.student)
    assert expected.shape == (3, 48)
    given = library.SentenceTransformer(str(aligned.student), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(given, expected, rtol=0, atol=1e-5)
    with quiet():
        done = export_model(ExportRequest(str(aligned.student), "onnx", output=tmp_path / "onnx", verify=False))
    batch = load_tokenizer(aligned.student)(TEXTS, padding=True, truncation=True, max_length=24, return_tensors="np")
    session = InferenceSession(str(done.folder / "onnx" / "model.onnx"))
    wanted = {each.name: batch[each.name] for each in session.get_inputs()}
    (found,) = session.run(["sentence_embedding"], wanted)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=0, atol=1e-5)


def test_the_map_starts_by_least_squares():
    """Of all maps of the student's pooled vectors, but for the ridge, it is the nearest to the teacher's vectors."""
    own, other = tiny_model("bert", seed=1, layers=1, hidden=16), tiny_model("bert", seed=2, layers=2)
    vector, hidden = (StreamKey("vector", 1),), (StreamKey("vector", 2),)
    learned = LearnedMap(16, 48, name="vector", kept=True, bias=True)
    term = Term("vector", "pooled_distance", vector, hidden, learned_map=learned, normalise=True)
    module = DistillationModule(own, LiveTeaching(other, [term]), [term]).eval()
    batches = [tiny_batch("bert", rows=40, length=9, seed=seed) for seed in range(2)]
    module.start_maps(lambda: batches)
    with torch.no_grad():
        pooled = torch.cat([module.student_tap(**batch)[vector[0]] for batch in batches]).double()
        taught = torch.cat([module.teaching.read(read_batch(batch))[hidden[0]] for batch in batches]).double()
    ones = torch.nn.functional.pad(pooled, (0, 1), value=1.0)
    ridge = torch.diag(torch.cat([torch.full((16,), float(1e-3 * pooled.square().sum(0).mean())), torch.zeros(1)]))
    expected = torch.linalg.solve(ones.T @ ones + ridge, ones.T @ torch.nn.functional.normalize(taught, dim=-1))
    found = torch.cat([module.maps["vector"].weight, module.maps["vector"].bias[:, None]], dim=1)
    torch.testing.assert_close(found.T.double(), expected, rtol=1e-4, atol=1e-5)
    module.take_learned(Learned([replace(term, objective="pooled_cosine")], module.learned().weights))
    assert not module.maps_to_start, "an earlier stage's map goes on, whatever was taught through it"


def test_a_stopped_run_ends_with_the_same_map(aligned, teacher, text_folder, tmp_path):
    recipe = recipe_of(teacher, text_folder, tmp_path / "stopped", **OPTIONS)
    with at_step(3, interrupt), pytest.raises(Interrupted):
        limbeck.distill(recipe)
    again = limbeck.distill(recipe, resume=True)
    for file in ("model.safetensors", "2_Dense/model.safetensors"):
        assert_equal(load_file(again.student / file), load_file(aligned.student / file))


def test_a_student_beside_others_keeps_the_map_that_it_gets_alone(aligned, teacher, text_folder, tmp_path):
    """As searches train and score candidates."""
    plan = plan_run(load_recipe(recipe_of(teacher, text_folder, tmp_path / "run", **OPTIONS)))
    found = Proxy(plan, console=Console(quiet=True)).train([plan])[0]
    head = finished_head(plan.student_sentence, found.learned)
    beside = encode(found.student, load_tokenizer(aligned.student), TEXTS, pooling=head, max_length=24)
    torch.testing.assert_close(beside, ours(aligned.student), rtol=0, atol=1e-6)


@pytest.fixture
def behind(teacher, tmp_path):
    """The teacher with a module behind its pooling."""
    folder = tmp_path / "teacher"
    shutil.copytree(teacher, folder)
    sentence = replace(sentence_pooling(teacher), modules=(dense(tmp_path, 48, 20),))
    write_sentence_transformers_files(folder, width=48, pooling="cls", normalize=True, max_length=24, like=sentence)
    return folder


def test_beside_others_teacher_and_student_make_vectors_by_their_own_files(aligned, behind, text_folder, tmp_path):
    """A narrower student's teacher keeps its modules; a student without files, which they do not fit, has none."""
    plan = plan_run(load_recipe(recipe_of(behind, text_folder, tmp_path / "run", pooling="mean")))
    assert describe_pooling(plan.vectors()) == "cls + Dense 48 → 20"
    assert str(pooling_of_student(aligned.student, plan.vectors()).sentence) == "mean + Dense 16 → 48"
    plain = shutil.copytree(aligned.student, tmp_path / "plain", ignore=shutil.ignore_patterns("modules.json"))
    assert pooling_of_student(plain, plan.vectors()) == "cls" and pooling_of_student(plain, "mean") == "mean"
    classifier = replace(plan.stages[0], student_head="classification")
    assert replace(plan, stages=[plan.stages[0], classifier]).vectors() == "cls", "it makes no vectors in the end"


def test_an_assistant_is_read_as_it_was_taught(teacher, text_folder, tmp_path):
    recipe = recipe_of(teacher, text_folder, tmp_path / "run")
    stage, wide = recipe["stages"][0], {"layers": 1, "hidden": 48, "heads": 4, "ffn": 96}
    of_assistant = {**stage, "name": "assistant", "student": {"shape": wide}}
    recipe["stages"] = [of_assistant, {**stage, "name": "own", "teacher": {"stage": "assistant"}}]
    plan = plan_run(load_recipe(recipe))
    assert [str(choice.teacher_vectors) for choice in plan.stages] == ["cls", "cls"] and str(
        plan.student_sentence
    ) == "cls"


def test_a_run_that_knows_its_teacher_without_its_modules_goes_on(behind):
    now, earlier = (model_fingerprint(str(behind), modules=modules) for modules in (True, False))
    assert now != earlier
    assert [fingerprint_beside(known, str(behind)) for known in (None, now, earlier, "other")] == [
        now, now, earlier, now
    ]  # fmt: skip


def test_a_student_of_the_teachers_width_takes_its_modules(behind, text_folder, tmp_path):
    recipe = recipe_of(behind, text_folder, tmp_path / "run")
    recipe["student"]["shape"] = {"layers": 1, "hidden": 48, "heads": 4, "ffn": 96}
    student = limbeck.distill(recipe).student
    assert str(sentence_pooling(student)) == "cls + Dense 48 → 20"
    assert ours(student).shape == (3, 20)
    recipe["student"]["shape"] = NARROW
    kept = plan_run(load_recipe(recipe)).aligned_stage.kept_map
    assert (kept.inputs, kept.outputs) == (16, 20), "a narrower one maps onto the finished vectors"


def dense(folder, inputs, outputs):
    place = folder / "dense"
    place.mkdir()
    torch.manual_seed(0)
    save_file({"linear.weight": torch.randn(outputs, inputs)}, place / "model.safetensors")
    return SentenceModule("Dense", place, in_width=inputs, out_width=outputs, bias=False, activation="Tanh")


@pytest.mark.parametrize(("trained", "read"), [(100, 128), (5_000, 500), (10**6, 2048)])
def test_starting_a_map_reads_a_tenth_of_what_is_trained_on(trained, read):
    rows = [{"input_ids": number} for number in range(5_000)]
    batches, told = [], []

    @contextmanager
    def activity(what):
        yield lambda *now: told.append(now)

    module = SimpleNamespace(to=lambda device: None, start_maps=lambda read_all: batches.extend(read_all()))
    trainer = SimpleNamespace(
        train_dataset=rows,
        args=SimpleNamespace(max_steps=trained // 10, device=torch.device("cpu")),
        loader=SimpleNamespace(rows_a_step=10),
        data_collator=lambda picked: {"input_ids": torch.tensor([row["input_ids"] for row in picked])},
        module=module,
        activity=activity,
    )
    trainer._rows_to_train_on = lambda: DistillationTrainer._rows_to_train_on(trainer)
    DistillationTrainer.start_maps(trainer)
    numbers = torch.cat([batch["input_ids"] for batch in batches])
    assert len(numbers) == read and told[-1] == (read, read, "rows")
    # They are spread over all of the text.
    assert numbers[0] == 0 and numbers[-1] > 4_000


MEASURED = [{"step": 10, "loss": 1.0}, {"step": 10, "eval_loss": 2.0}, {"step": 10, "development_accuracy": 0.5}]


@pytest.mark.parametrize(
    ("history", "best_step", "measures"),
    [
        (MEASURED, None, False),
        (MEASURED, 10, False),
        (MEASURED, 5, True),  # The weights are those of the best step.
        ([{"step": 5, "eval_loss": 2.0}, {"step": 10, "loss": 1.0}], None, True),
        ([], None, True),
    ],
)
def test_held_out_text_is_measured_once_after_the_last_step(history, best_step, measures):
    state = SimpleNamespace(log_history=history, global_step=10)
    checkpoints = SimpleNamespace(best_step=best_step)
    trainer = SimpleNamespace(
        eval_dataset=[1], state=state, checkpoints=checkpoints, evaluate=lambda: {"eval_loss": 3.0}
    )
    metrics = StageTraining._measure_held_out(SimpleNamespace(trainer=trainer, ends_early=False))
    assert metrics["eval_loss"] == (3.0 if measures else 2.0)
