"""Whole runs on a tiny teacher: what they leave, how they stop, and how they go on."""

import json
import os
import signal
from importlib import metadata

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

import limbeck
from limbeck.core.files import HEARTBEAT
from limbeck.errors import CorpusError, Interrupted, LimbeckError, ModelError, OutputError, TrainingError
from limbeck.training import stage as stage_module
from tests.support.models import make_teacher
from tests.support.training import AtStep


def student_weights(recipe):
    return load_file(f"{recipe['output']}/student/model.safetensors")


def assert_same_weights(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@pytest.fixture
def at_step(monkeypatch):
    """Hook a callback into every trainer of the test."""

    def install(step, action):
        original = stage_module.DistillationTrainer.__init__

        def initialise(self, model, **arguments):
            original(self, model, **arguments)
            self.add_callback(AtStep(step, action))

        monkeypatch.setattr(stage_module.DistillationTrainer, "__init__", initialise)

    yield install
    monkeypatch.undo()


def test_a_run_leaves_a_student_a_recipe_and_a_record(tiny_recipe):
    result = limbeck.distill(tiny_recipe, ["teacher.name=someone/a-teacher"])
    folder = result.student.parent
    assert {"student", "recipe.yaml", "run.json", "stages"} <= {path.name for path in folder.iterdir()}
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "finished"
    stage = record["stages"][0]
    assert (stage["steps"], stage["method"]) == (4, "minilmv2")
    assert stage["tokens"] > 0
    assert set(stage["final_terms"]) == set(stage["held_out"]) - {"loss", "runtime"} - {
        name for name in stage["held_out"] if "per_second" in name
    }
    assert record["recipe"]["seed"] == 1
    assert record["hardware"]["cores"] >= 1
    assert record["versions"]["torch"] == metadata.version("torch")
    assert record["corpus"]["documents"] > 0
    assert "base_model: someone/a-teacher" in (result.student / "README.md").read_text()


def test_the_student_is_an_ordinary_folder_without_teacher_or_maps(tiny_recipe):
    tiny_recipe["stages"].append(
        {"method": {"name": "sentence_embedding"}, "training": {**tiny_recipe["stages"][0]["training"], "max_steps": 2}}
    )
    result = limbeck.distill(tiny_recipe)
    model = AutoModel.from_pretrained(result.student).eval()
    assert (model.config.num_hidden_layers, model.config.hidden_size) == (2, 24)
    tokenizer = AutoTokenizer.from_pretrained(result.student)
    assert tokenizer("the model")["input_ids"]
    with safe_open(result.student / "model.safetensors", "pt") as file:
        names = list(file.keys())
    assert not [name for name in names if "teacher" in name or "maps" in name or "projection" in name]
    stage = load_file(result.student.parent / "stages" / "2-sentence_embedding" / "model.safetensors")
    assert [name for name in stage if name.startswith("maps.")], "widths differ, so maps were learned"
    for name, tensor in load_file(result.student / "model.safetensors").items():
        if f"student.{name}" in stage:
            assert torch.equal(tensor, stage[f"student.{name}"]), name
    loaded = dict(model.named_parameters())
    assert all(torch.equal(loaded[name], tensor) for name, tensor in student_weights(tiny_recipe).items())


def test_the_loss_falls(tiny_recipe):
    tiny_recipe["stages"][0]["training"] |= {
        "max_steps": 40,
        "learning_rate": 1e-2,
        "save_steps": 100,
        "eval_steps": 100,
    }
    result = limbeck.distill(tiny_recipe)
    log = (result.student.parent / "stages" / "1-minilmv2" / "log.jsonl").read_text().splitlines()
    losses = [entry["loss"] for line in log if "loss" in (entry := json.loads(line))]
    assert len(losses) == 40
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_a_run_is_reproducible(tiny_recipe, tmp_path):
    limbeck.distill(tiny_recipe)
    again = {**tiny_recipe, "output": str(tmp_path / "again")}
    limbeck.distill(again)
    assert_same_weights(student_weights(tiny_recipe), student_weights(again))
    other = {**tiny_recipe, "output": str(tmp_path / "other"), "seed": 2}
    limbeck.distill(other)
    assert not all(
        torch.equal(tensor, student_weights(other)[name]) for name, tensor in student_weights(tiny_recipe).items()
    )


def test_untrained_parameters_are_listed_and_filled_as_asked(tiny_recipe, tmp_path):
    tiny_recipe["student"] = {"shape": {"layers": 2, "hidden": 48, "heads": 4, "ffn": 96}}
    result = limbeck.distill(tiny_recipe)
    names = result.record["untrained"]["names"]
    assert "encoder.layer.1.output.dense.weight" in names
    assert "encoder.layer.1.attention.self.value.weight" not in names
    assert result.record["untrained"]["from_teacher"] == []
    asked = {**tiny_recipe, "output": str(tmp_path / "filled")}
    asked["student"] = {**tiny_recipe["student"], "untrained": "teacher"}
    filled = limbeck.distill(asked)
    assert "encoder.layer.1.output.dense.weight" in filled.record["untrained"]["from_teacher"]
    teacher = load_file(f"{tiny_recipe['teacher']['model']}/model.safetensors")
    prefix = "" if "encoder.layer.3.output.dense.weight" in teacher else "bert."
    expected = teacher[f"{prefix}encoder.layer.3.output.dense.weight"]
    assert torch.equal(student_weights(asked)["encoder.layer.1.output.dense.weight"], expected)


def test_no_stage_keeps_a_truncated_teacher(tiny_recipe, bert_folder):
    tiny_recipe |= {"stages": [], "corpus": None}
    tiny_recipe["student"] = {
        "shape": {"layers": 2, "hidden": 48, "heads": 4, "ffn": 96},
        "initialise": {"layers": "first"},
    }
    limbeck.distill(tiny_recipe)
    weights = student_weights(tiny_recipe)
    teacher = AutoModel.from_pretrained(bert_folder).state_dict()
    assert torch.equal(weights["encoder.layer.1.output.dense.weight"], teacher["encoder.layer.1.output.dense.weight"])


@pytest.mark.parametrize("stop_at", [1, 2, 3])
def test_a_killed_run_resumes_to_the_same_weights(tiny_recipe, tmp_path, at_step, monkeypatch, stop_at):
    tiny_recipe["student"]["dropout"] = 0.1
    tiny_recipe["stages"][0]["augment"] = {"replace_tokens": 0.3}
    tiny_recipe["stages"][0]["training"] |= {"max_steps": 14, "save_steps": 2, "num_train_epochs": 9}
    whole = {**tiny_recipe, "output": str(tmp_path / "whole")}
    limbeck.distill(whole)

    def die():
        raise MemoryError("killed")

    at_step(stop_at * 4, die)  # Also in the second epoch.
    with pytest.raises(MemoryError):
        limbeck.distill(tiny_recipe)
    monkeypatch.undo()
    limbeck.distill(tiny_recipe, resume=True)
    assert_same_weights(student_weights(whole), student_weights(tiny_recipe))


def test_a_second_stage_resumes_from_the_first(tiny_recipe, tmp_path, at_step, monkeypatch):
    training = tiny_recipe["stages"][0]["training"]
    tiny_recipe["stages"].append(
        {"method": {"name": "sentence_embedding"}, "training": {**training, "max_steps": 6, "save_steps": 2}}
    )
    whole = {**tiny_recipe, "output": str(tmp_path / "whole")}
    limbeck.distill(whole)

    def die():
        raise MemoryError("killed")

    at_step(3, die)
    tiny_recipe["stages"][0]["training"] = {**training, "max_steps": 2}
    whole_short = {**tiny_recipe, "output": str(tmp_path / "short")}
    with pytest.raises(MemoryError):
        limbeck.distill(whole_short)
    monkeypatch.undo()
    stages = tmp_path / "short" / "stages"
    assert (stages / "1-minilmv2" / "stage.json").is_file()
    assert not (stages / "2-sentence_embedding" / "stage.json").exists()
    resumed = limbeck.distill(whole_short, resume=True)
    straight = {**tiny_recipe, "output": str(tmp_path / "straight")}
    limbeck.distill(straight)
    assert_same_weights(student_weights(straight), student_weights(whole_short))
    assert [stage["name"] for stage in resumed.record["stages"]] == ["minilmv2", "sentence_embedding"]


def test_a_run_killed_after_its_last_step_is_finished_not_trained_on(tiny_recipe, tmp_path, monkeypatch):
    whole = {**tiny_recipe, "output": str(tmp_path / "whole")}
    limbeck.distill(whole)

    def die(*arguments):
        raise MemoryError("killed")

    monkeypatch.setattr(stage_module.StageTraining, "write", die)
    with pytest.raises(MemoryError):
        limbeck.distill(tiny_recipe)
    monkeypatch.undo()
    record = limbeck.distill(tiny_recipe, resume=True).record
    assert record["stages"][0]["steps"] == 4
    assert_same_weights(student_weights(whole), student_weights(tiny_recipe))
    assert not list(tiny_recipe_stage(tiny_recipe).glob("checkpoint-*"))


def tiny_recipe_stage(recipe):
    from pathlib import Path

    return Path(recipe["output"]) / "stages" / "1-minilmv2"


def test_ctrl_c_saves_and_says_how_to_go_on(tiny_recipe, tmp_path, at_step, monkeypatch):
    tiny_recipe["stages"][0]["training"] |= {"max_steps": 9, "save_steps": 100}
    whole = {**tiny_recipe, "output": str(tmp_path / "whole")}
    limbeck.distill(whole)
    before = signal.getsignal(signal.SIGINT)
    at_step(3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted, match="--resume"):
        limbeck.distill(tiny_recipe)
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is before
    record = json.loads((tiny_recipe_stage(tiny_recipe).parents[1] / "run.json").read_text())
    assert record["status"] == "interrupted"
    limbeck.distill(tiny_recipe, resume=True)
    assert_same_weights(student_weights(whole), student_weights(tiny_recipe))


def test_a_loss_that_is_not_finite_stops_with_its_name_and_step(tiny_recipe, monkeypatch):
    from limbeck.training.module import DistillationModule

    original, calls = DistillationModule._loss, []

    def poisoned(self, term, *streams):
        loss = original(self, term, *streams)
        calls.append(term.name)
        bad = term.name == "key_key" and self.training and calls.count("key_key") > 5
        return type(loss)(loss.total * float("nan"), loss.count) if bad else loss

    monkeypatch.setattr(DistillationModule, "_loss", poisoned)
    tiny_recipe["stages"][0]["training"] |= {"max_steps": 12, "eval_strategy": "no"}
    with pytest.raises(TrainingError, match=r"'key_key' became nan at step [45]"):
        limbeck.distill(tiny_recipe)
    folder = tiny_recipe_stage(tiny_recipe)
    kept = sorted(path.name for path in folder.glob("checkpoint-*"))
    assert kept and all(
        bool(tensor.isfinite().all())
        for name in kept
        for tensor in load_file(folder / name / "model.safetensors").values()
    )


def test_output_folders_are_not_written_over(tiny_recipe, tmp_path):
    limbeck.distill(tiny_recipe)
    before = student_weights(tiny_recipe)
    with pytest.raises(OutputError, match=r"--resume.*--overwrite"):
        limbeck.distill(tiny_recipe)
    with pytest.raises(OutputError, match="seed = 1, this recipe 9"):
        limbeck.distill(tiny_recipe, ["seed=9"], resume=True)
    assert_same_weights(before, student_weights(tiny_recipe))
    limbeck.distill(tiny_recipe, ["seed=9"], overwrite=True)
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "cat.png").write_bytes(b"meow")
    for options in ({"overwrite": True}, {"resume": True}, {}):
        with pytest.raises(OutputError):
            limbeck.distill({**tiny_recipe, "output": str(foreign)}, **options)
    assert (foreign / "cat.png").read_bytes() == b"meow"
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        limbeck.distill({**tiny_recipe, "output": str(tmp_path / "file")})
    with pytest.raises(OutputError, match="no output folder"):
        limbeck.distill({**tiny_recipe, "output": None})


def test_a_finished_run_is_returned_as_it_is(tiny_recipe):
    first = limbeck.distill(tiny_recipe)
    stamp = (first.student / "model.safetensors").stat().st_mtime_ns
    again = limbeck.distill(tiny_recipe, resume=True)
    assert again.student == first.student
    assert (first.student / "model.safetensors").stat().st_mtime_ns == stamp


def test_missing_text_and_weights_are_refused(tiny_recipe, tmp_path, bert_folder):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CorpusError):
        limbeck.distill(tiny_recipe, [f"corpus.sources=[{empty}]"])
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in bert_folder.iterdir():
        if file.suffix != ".safetensors":
            (bare / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ModelError, match="weights|safetensors"):
        limbeck.distill({**tiny_recipe, "output": str(tmp_path / "r2")}, [f"teacher.model={bare}"])
    with pytest.raises(LimbeckError):
        limbeck.distill({**tiny_recipe, "output": str(tmp_path / "r3")}, ["teacher.model=./nowhere"])


def test_dropout_of_training_is_not_saved(tiny_recipe, bert_folder):
    tiny_recipe["student"]["dropout"] = 0.0
    limbeck.distill(tiny_recipe)
    saved = json.loads((tiny_recipe_stage(tiny_recipe).parents[1] / "student" / "config.json").read_text())
    teacher = json.loads((bert_folder / "config.json").read_text())
    assert saved["hidden_dropout_prob"] == teacher["hidden_dropout_prob"]


@pytest.mark.parametrize("family", ["bert", "modernbert", "llama"])
def test_frozen_embeddings_stay_and_are_not_called_untrained(tiny_recipe, tmp_path, family):
    folder = make_teacher(tmp_path / "teacher", family)
    tiny_recipe["teacher"] = {"model": str(folder)}
    tiny_recipe["student"] = {
        "shape": {"layers": 2, "hidden": 48, "heads": 4, "ffn": 96},
        "initialise": {"layers": "ends", "embeddings": "copied"},
    }
    tiny_recipe["stages"][0] |= {"method": {"name": "sentence_embedding"}, "freeze": ["embeddings"]}
    result = limbeck.distill(tiny_recipe)
    frozen = result.record["untrained"]["frozen"]
    assert frozen and not set(frozen) & set(result.record["untrained"]["names"])
    teacher, student = (AutoModel.from_pretrained(path).state_dict() for path in (folder, result.student))
    for name in frozen:
        assert torch.equal(student[name], teacher[name]), name
    trained = set(student) - set(frozen) - set(result.record["untrained"]["names"])
    assert any(name in teacher and not torch.equal(student[name], teacher[name]) for name in trained)


def test_tensorboard_gets_every_term(tiny_recipe, monkeypatch, tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    tiny_recipe["stages"][0]["training"]["report_to"] = "tensorboard"
    limbeck.distill(tiny_recipe)
    found = [path.parent for path in tmp_path.rglob("events.out.tfevents*")]
    assert found
    events = event_accumulator.EventAccumulator(str(found[0]))
    events.Reload()
    tags = events.Tags()["scalars"]
    for name in ("train/loss", "train/loss_query_query", "eval/loss", "train/tokens"):
        assert name in tags


def test_a_saved_student_loads_without_anything_at_random(tiny_recipe):
    result = limbeck.distill(tiny_recipe)
    _, info = AutoModel.from_pretrained(result.student, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert "pooler.dense.weight" in result.record["untrained"]["names"]


def test_a_run_is_not_resumed_on_other_text(tiny_recipe, tmp_path, text_folder, at_step, monkeypatch):
    folder = tmp_path / "texts"
    folder.mkdir()
    text = (text_folder / "some.txt").read_text()
    (folder / "some.txt").write_text(text)
    tiny_recipe["corpus"]["sources"] = [str(folder)]
    at_step(3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted, match="limbeck distill --resume --output"):
        limbeck.distill(tiny_recipe)
    monkeypatch.undo()
    (folder / "some.txt").write_text(text + "\n\nOne more document for the student to read.")
    with pytest.raises(OutputError, match="has changed since"):
        limbeck.distill(tiny_recipe, resume=True)


def test_a_run_that_trained_nothing_leaves_its_folder_free(tiny_recipe, tmp_path):
    with pytest.raises(CorpusError):
        limbeck.distill(tiny_recipe, [f"corpus.sources=[{tmp_path / 'nowhere'}/*.txt]"])
    record = limbeck.distill(tiny_recipe).record
    assert record["status"] == "finished" and "problem" not in record
    with pytest.raises(OutputError, match="exclude each other"):
        limbeck.distill(tiny_recipe, resume=True, overwrite=True)


def test_a_stage_without_a_step_is_an_error(tiny_recipe):
    tiny_recipe["stages"][0]["training"] |= {"per_device_train_batch_size": 5000, "dataloader_drop_last": True}
    with pytest.raises(TrainingError, match="would train no step"):
        limbeck.distill(tiny_recipe)
    assert not (tiny_recipe_stage(tiny_recipe).parents[1] / "student").exists()


def test_building_the_corpus_is_a_sign_of_life(tiny_recipe, monkeypatch, tmp_path):
    from limbeck.training import record as heartbeat

    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    seen = []
    original = heartbeat.Heartbeat._write

    def write(self):
        original(self)
        seen.append(json.loads((self._folder / HEARTBEAT).read_text()))

    monkeypatch.setattr(heartbeat.Heartbeat, "_write", write)
    monkeypatch.setattr(heartbeat.Heartbeat.__init__, "__defaults__", (0.0,))
    limbeck.distill(tiny_recipe)
    building = [fields for fields in seen if fields["activity"] == "corpus" and fields.get("done")]
    assert {fields["step_of_corpus"].split()[0] for fields in building} >= {"reading", "tokenising"}
