"""Whole runs on a tiny teacher: what they leave, how they stop, and how they go on."""

import json
import signal
from importlib import metadata
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, TrainerCallback

import limbeck
from limbeck.core.paths import HEARTBEAT
from limbeck.core.run_status import find_runs, status_of
from limbeck.errors import CorpusError, Interrupted, LimbeckError, ModelError, OutputError, TrainingError
from limbeck.training.heartbeat import Heartbeat
from limbeck.training.stage import StageTraining
from tests.support import training as support
from tests.support.models import make_teacher
from tests.support.recipes import MINILMV2
from tests.training.conftest import make_recipe, refused

WIDE = {"layers": 2, "hidden": 48, "heads": 4, "ffn": 96}


@pytest.fixture(scope="module")
def finished(bert_folder, text_folder, tmp_path_factory):
    """A run of two stages that logs to TensorBoard, its result, and its heartbeats."""
    folder, beats = tmp_path_factory.mktemp("finished"), []
    methods = MINILMV2, {"name": "sentence_embedding"}
    recipe = make_recipe(bert_folder, text_folder, folder / "run", *methods, max_steps=2, report_to="tensorboard")
    recipe["student"]["dropout"] = 0.0
    recipe["stages"][1]["training"] |= {"max_steps": 1, "report_to": "none"}
    original = Heartbeat._write

    def write(self):
        original(self)
        if self._folder is not None:
            beats.append(json.loads((self._folder / HEARTBEAT).read_text()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMBECK_CACHE", str(folder / "cache"))
        patch.setenv("TENSORBOARD_LOGGING_DIR", str(folder / "logs"))
        patch.setattr(Heartbeat, "_write", write)
        patch.setattr(Heartbeat.__init__, "__defaults__", (0.0,))
        result = limbeck.distill(recipe, ["teacher.name=someone/a-teacher"])
    recipe["teacher"]["name"] = "someone/a-teacher"
    return recipe, result, beats


def test_the_record_of_a_run(finished):
    recipe, result, _ = finished
    record = support.record_of(recipe)
    stage = record["stages"][0]
    assert (record["status"], stage["steps"], stage["method"]) == ("finished", 2, "minilmv2")
    assert {"loss", *stage["final_terms"]} == set(stage["held_out"])
    assert stage["tokens"] > 0 and record["hardware"]["cores"] >= 1 and record["corpus"]["documents"] > 0
    assert record["versions"]["torch"] == metadata.version("torch")
    assert record["teacher"]["kind"] == "folder" and record["teacher"]["hub_id"] == "someone/a-teacher"
    assert "base_model: someone/a-teacher" in (result.student / "README.md").read_text()


def test_the_student_is_an_ordinary_folder_without_teacher_or_maps(finished, bert_folder):
    recipe, result, _ = finished
    model, info = AutoModel.from_pretrained(result.student, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert "pooler.dense.weight" in result.record["untrained"]["names"]
    assert (model.config.num_hidden_layers, model.config.hidden_size) == (2, 16)
    assert AutoTokenizer.from_pretrained(result.student)("the model")["input_ids"]
    weights = support.student_of(recipe)
    assert not [name for name in weights if "teacher" in name or "maps" in name or "projection" in name]
    stage = load_file(result.student.parent / "stages" / "2-sentence_embedding" / "model.safetensors")
    assert [name for name in stage if name.startswith("maps.")], "widths differ, so maps were learned"
    loaded = dict(model.named_parameters())
    for name, tensor in weights.items():
        assert torch.equal(loaded[name], tensor)
        assert torch.equal(tensor, stage.get(f"student.{name}", tensor)), name
    saved, theirs = (json.loads((path / "config.json").read_text()) for path in (result.student, bert_folder))
    assert saved["hidden_dropout_prob"] == theirs["hidden_dropout_prob"], "that of the training is not the model's"


def test_tensorboard_gets_every_term(finished):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    files = Path(finished[0]["output"]).parent.rglob("events.out.tfevents*")
    events = event_accumulator.EventAccumulator(str(next(files).parent))
    events.Reload()
    assert set(events.Tags()["scalars"]) >= {"train/loss", "train/loss_query_query", "eval/loss", "train/tokens"}


def test_building_the_corpus_is_a_sign_of_life(finished):
    building = [fields for fields in finished[2] if fields.get("activity") == "corpus" and fields.get("done")]
    assert {fields["step_of_corpus"].split()[0] for fields in building} >= {"reading", "tokenising"}


class DiesAtSecondStep(TrainerCallback):
    """Ends a run as a kill would."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            support.die()


def test_a_run_that_ended_before_its_first_checkpoint_says_that_it_begins_again(
    bert_folder, text_folder, tmp_path, capsys
):
    recipe = make_recipe(bert_folder, text_folder, tmp_path / "run", max_steps=4, save_steps=100)
    with pytest.raises(MemoryError):
        limbeck.distill(recipe, callbacks=[DiesAtSecondStep])
    limbeck.distill(recipe, resume=True, console=Console(width=200))
    line = "No checkpoint was saved before the run ended, so the training begins again at step 0."
    assert capsys.readouterr().out.count(line) == 1


def test_a_finished_run_is_returned_as_it_is_and_never_written_over(finished, tmp_path, capsys):
    recipe, first, _ = finished
    weights = first.student / "model.safetensors"
    stamp = weights.stat().st_mtime_ns
    capsys.readouterr()
    assert limbeck.distill(recipe, resume=True, console=Console()).student == first.student
    assert "The run is finished, so that nothing is trained; this is its result:" in capsys.readouterr().out
    picture = tmp_path / "photos" / "cat.png"
    picture.parent.mkdir()
    picture.write_bytes(b"meow")
    (tmp_path / "file").write_text("x")
    for line, output, options in (
        ("continue that run with resume=True, replace it with overwrite=True", recipe["output"], {}),
        ("seed = 1, but this recipe has 9", recipe["output"], {"overrides": ["seed=9"], "resume": True}),
        ("resume=True and overwrite=True cannot be combined", recipe["output"], {"resume": True, "overwrite": True}),
        ("was not made by limbeck", str(picture.parent), {"overwrite": True}),
        ("holds no run to resume", str(picture.parent), {"resume": True}),
        ("is not empty; choose another folder", str(picture.parent), {}),
        ("is a file", str(tmp_path / "file"), {}),
        ("no output folder", None, {}),
        # The teacher would be removed before it teaches.
        ("overwrite=True would remove", recipe["output"], {"overwrite": True, "teacher": recipe["output"]}),
        ("overwrite=True would remove", recipe["output"], {"overwrite": True, "teacher": str(first.student)}),
    ):
        with refused(line):
            limbeck.distill({**recipe, "output": output}, **options)
    assert weights.stat().st_mtime_ns == stamp and picture.read_bytes() == b"meow"


def test_another_seed_gives_another_student_also_over_a_finished_run(whole, tmp_path):
    again = support.elsewhere(whole, tmp_path / "again")
    again["stages"][0]["training"]["max_steps"] = 1
    limbeck.distill(again)
    before = support.student_of(again)
    limbeck.distill(again, ["seed=9"], overwrite=True)
    after = support.student_of(again)
    assert not all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_untrained_parameters_are_listed_and_filled_as_asked(recipe, bert_folder):
    recipe["student"] = {"shape": WIDE, "untrained": "teacher"}
    recipe["stages"][0]["training"]["max_steps"] = 1
    untrained = limbeck.distill(recipe).record["untrained"]
    assert "encoder.layer.1.output.dense.weight" in untrained["names"]
    assert "encoder.layer.1.attention.self.value.weight" not in untrained["names"]
    assert "encoder.layer.1.output.dense.weight" in untrained["from_teacher"]
    expected = AutoModel.from_pretrained(bert_folder).encoder.layer[3].output.dense.weight
    assert torch.equal(support.student_of(recipe)["encoder.layer.1.output.dense.weight"], expected)


def test_parameters_stay_untrained_where_nothing_is_asked(whole):
    untrained = support.record_of(whole)["untrained"]
    assert "encoder.layer.1.output.dense.weight" in untrained["names"] and untrained["from_teacher"] == []


def test_a_run_killed_before_its_first_checkpoint_resumes_to_the_same_weights(recipe, whole):
    """In its first epoch and in its second see `test_checkpoints`."""
    support.kill_at(recipe, 1)
    support.assert_ends_like(recipe, whole)


def test_a_run_killed_after_its_last_step_is_finished_not_trained_on(recipe, whole, monkeypatch):
    monkeypatch.setattr(StageTraining, "write", support.die)
    with pytest.raises(MemoryError):
        limbeck.distill(recipe)
    monkeypatch.undo()
    assert support.assert_ends_like(recipe, whole).record["stages"][0]["steps"] == 6
    assert not list(support.stage_folder(recipe).glob("checkpoint-*"))


def test_missing_text_and_weights_are_refused_and_leave_the_folder_free(recipe, tmp_path, bert_folder):
    empty, bare = tmp_path / "empty", tmp_path / "bare"
    empty.mkdir()
    bare.mkdir()
    for file in bert_folder.iterdir():
        if file.suffix != ".safetensors":
            (bare / file.name).write_bytes(file.read_bytes())
    for source in (empty, tmp_path / "nowhere" / "*.txt"):
        with pytest.raises(CorpusError):
            limbeck.distill(recipe, [f"corpus.sources=[{source}]"])
    with pytest.raises(ModelError, match="weights|safetensors"):
        limbeck.distill(recipe, [f"teacher.model={bare}"])
    # A mistake is no run that failed: its folder is gone, and `limbeck status` does not list it.
    output = Path(recipe["output"])
    assert not output.exists()
    with pytest.raises(OutputError, match="holds no run"):
        find_runs([output.parent])
    with pytest.raises(LimbeckError):
        limbeck.distill(recipe, ["teacher.model=./nowhere"])
    recipe["stages"][0]["training"]["max_steps"] = 1
    record = limbeck.distill(recipe).record
    assert record["status"] == "finished" and "problem" not in record


@pytest.mark.parametrize("family", ["bert", "modernbert", "llama"])
def test_frozen_embeddings_stay_and_are_not_called_untrained(recipe, tmp_path, family):
    folder = make_teacher(tmp_path / "teacher", family)
    recipe["teacher"] = {"model": str(folder)}
    recipe["student"] = {"shape": WIDE, "initialise": {"layers": "ends", "embeddings": "copied"}}
    recipe["stages"][0] |= {"method": {"name": "sentence_embedding"}, "freeze": ["embeddings"]}
    recipe["stages"][0]["training"] |= {"max_steps": 1, "warmup_steps": 0}
    result = limbeck.distill(recipe)
    frozen = result.record["untrained"]["frozen"]
    assert frozen and not set(frozen) & set(result.record["untrained"]["names"])
    teacher, student = (AutoModel.from_pretrained(path).state_dict() for path in (folder, result.student))
    for name in frozen:
        assert torch.equal(student[name], teacher[name]), name
    trained = set(student) - set(frozen) - set(result.record["untrained"]["names"])
    assert any(name in teacher and not torch.equal(student[name], teacher[name]) for name in trained)


def test_a_run_is_not_resumed_on_other_text(recipe, tmp_path, text_folder):
    folder = tmp_path / "texts"
    folder.mkdir()
    text = (text_folder / "some.txt").read_text()
    (folder / "some.txt").write_text(text)
    recipe["corpus"]["sources"] = [str(folder)]
    with (
        support.at_step(1, support.send(signal.SIGINT)),
        pytest.raises(Interrupted, match=r"limbeck\.distill\(resume=True, output="),
    ):
        limbeck.distill(recipe)
    (folder / "some.txt").write_text(text + "\n\nOne more document for the student to read.")
    before = status_of(Path(recipe["output"]))
    with pytest.raises(OutputError, match="has changed since"):
        limbeck.distill(recipe, resume=True)
    after = status_of(Path(recipe["output"]))
    assert (after.status, after.stop, after.checkpoint) == ("interrupted", before.stop, before.checkpoint)


def test_a_stage_without_a_step_is_an_error(recipe):
    recipe["stages"][0]["training"] |= {"per_device_train_batch_size": 5000, "dataloader_drop_last": True}
    with pytest.raises(TrainingError, match="would train no step"):
        limbeck.distill(recipe)
    assert not Path(recipe["output"], "student").exists()


def test_the_last_loss_is_a_mean_of_as_many_steps_as_the_others(recipe):
    """The loss of step 7 alone depends on its rows, so it is averaged with the steps of the log before."""

    def means_by_step(logging_steps):
        recipe["stages"][0]["training"] |= {"max_steps": 7, "logging_steps": logging_steps}
        limbeck.distill(recipe, overwrite=True)
        return {line["step"]: line for line in support.log_of(recipe) if "loss" in line}

    single = means_by_step(1)
    every_third = means_by_step(3)
    assert list(every_third) == [3, 6, 7]
    for step, averaged in {3: (1, 2, 3), 6: (4, 5, 6), 7: (4, 5, 6, 7)}.items():
        for name in ("loss", *(name for name in single[1] if name.startswith("loss_"))):
            mean = sum(single[number][name] for number in averaged) / len(averaged)
            assert every_third[step][name] == pytest.approx(mean, rel=1e-4), (step, name)


@pytest.mark.parametrize(("steps", "logged_at"), [(2, [2]), (5, [3, 5])], ids=str)
def test_the_last_step_is_always_logged_and_once(recipe, steps, logged_at):
    recipe["stages"][0]["training"] |= {"max_steps": steps, "logging_steps": 3}
    done = limbeck.distill(recipe)
    losses = [(line["step"], line["loss"]) for line in support.log_of(recipe) if "loss" in line]
    assert [step for step, _ in losses] == logged_at
    (stage_record,) = done.record["stages"]
    assert stage_record["final_loss"] == losses[-1][1] and stage_record["final_terms"]
    assert (done.student / "model.safetensors").stat().st_mode == (done.student / "config.json").stat().st_mode
    assert done.record["teacher"]["hub_id"] is None
