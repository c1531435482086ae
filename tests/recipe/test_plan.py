"""Contradictions across fields are refused before any weight is loaded."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from transformers import TrainingArguments

from limbeck.corpus import MixSpec
from limbeck.corpus.settings import CorpusSpec
from limbeck.errors import CorpusError, LimbeckError, RecipeError
from limbeck.models import trial_run
from limbeck.models.family_table import families
from limbeck.models.trial_run import check_runs
from limbeck.recipe import load_recipe, plan_run
from limbeck.recipe.facts import check_corpus, load_checked
from limbeck.recipe.known_by_content import without_places
from limbeck.recipe.training_arguments import build_arguments, check_training
from limbeck.recipe.training_fields import DEFAULTS, MANAGED, OWN_TYPES, RANGES, REFUSED
from tests.support.models import make_teacher, tiny_config


def plan(recipe, *overrides):
    return plan_run(load_recipe(recipe, overrides))


def test_sources_that_may_be_there_pass(tiny_recipe, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    for source in ("hub:someone/texts", "someone/texts", "installed-docs", f"{tmp_path}/*.txt", "https://host/a.jsonl"):
        assert plan(tiny_recipe | {"corpus": {"sources": [source], "length": 32}}).stages


@pytest.mark.parametrize("source", ["x" * 3000, "x" * 3000 + "*", "a/" * 2040], ids=lambda name: name[:9])
def test_names_that_no_file_can_have_are_not_there(tiny_recipe, source):
    with pytest.raises(LimbeckError, match="does not exist; give a file"):
        plan(tiny_recipe | {"corpus": {"sources": [source], "length": 32}})


def test_a_plan_needs_no_weights(tiny_recipe, bert_folder, tmp_path):
    folder = shutil.copytree(bert_folder, tmp_path / "config-only", ignore=shutil.ignore_patterns("*.safetensors"))
    found = plan(tiny_recipe, f"teacher.model={folder}")
    assert (found.student.layers, found.student.hidden, found.student.ffn) == (2, 24, 48)
    assert [term.name for term in found.stages[0].terms] == ["query_query", "key_key", "value_value"]


REFUSALS = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
LONG = [
    ["5,000 characters", f"name={'x' * 5000}"],
    ["only index is 0", f"stages.{'9' * 5000}.name=x"],
    ["no key of a recipe is that deep", f"stages.0.training.{'a.' * 60}b=1"],
    ["levels", f"stages.0.training.optim_args={'[' * 49}{']' * 49}"],
]


@pytest.mark.parametrize("case", [*REFUSALS, *LONG], ids=lambda case: case[-1][:60])
def test_values_that_cannot_be_meant(tiny_recipe, case):
    message, *overrides = case
    with pytest.raises(LimbeckError) as caught:
        plan(tiny_recipe, *overrides)
    assert message in str(caught.value)


def test_arguments_that_are_refused_or_managed_are_in_one_table():
    assert not MANAGED.keys() & REFUSED.keys()
    fields = {field.name for field in dataclasses.fields(TrainingArguments)}
    assert not OWN_TYPES.keys() & fields
    assert REFUSED.keys() | RANGES.keys() <= fields | OWN_TYPES.keys()
    assert not RANGES.keys() & (MANAGED.keys() | REFUSED.keys())


def test_training_arguments_are_converted_to_their_types():
    lenient = {"learning_rate": "1e-4", "max_steps": 4.0, "use_cpu": "Yes", "eval_steps": None, "logging_steps": "3"}
    assert check_training(lenient, "training") == {
        "learning_rate": 1e-4, "max_steps": 4, "use_cpu": True, "eval_steps": None, "logging_steps": 3.0
    }  # fmt: skip


def test_all_mistakes_of_training_arguments_are_told_together():
    with pytest.raises(RecipeError) as caught:
        check_training({"learning_rate": "fast", "lr": 1, "output_dir": "x", "fsdp_config": "x"}, "training")
    assert len(caught.value.mistakes) == 4


def test_the_default_optimizer_and_schedule_can_be_made():
    asked = {name: DEFAULTS[name] for name in ("optim", "lr_scheduler_type")}
    assert build_arguments(asked, output="", seed=0, evaluates=True).optim == DEFAULTS["optim"]


@pytest.mark.parametrize("family", trial_run._RUN_AT_ANY_SIZE)
def test_families_that_are_not_tried_run_at_any_size(family):
    config = tiny_config(family)
    assert (
        trial_run._is_usual(config) and trial_run._problem_of_run(config.to_json_string(use_diff=False), None) is None
    )
    for change in ({"pad_token_id": config.vocab_size}, {"num_attention_heads": 5}, {"position_embedding_type": "x"}):
        assert not trial_run._is_usual(type(config)(**config.to_dict() | change))


def test_what_is_refused_may_be_said_as_it_is_anyhow(tiny_recipe):
    plan(tiny_recipe, "stages.0.training.label_smoothing_factor=0", "stages.0.training.use_liger_kernel=false")


@pytest.mark.parametrize("content", ["texts", "rows"])
def test_sources_that_hold_nothing_to_read_are_refused_as_they_would_be_when_read(tmp_path, content):
    labels = {"kind": "classification"} if content == "rows" else None
    files = {"empty": {}, "blank": {"a.txt": "", "b.jsonl": ""}, "other": {"a.pdf": "x"}, "table": {"a.tsv": "x\ty\n"}}
    for name, texts in files.items():
        (tmp_path / name).mkdir()
        for file, text in texts.items():
            (tmp_path / name / file).write_text(text)
    (tmp_path / "alone.tsv").write_text("x\ty\n")

    def refusal(source):
        corpus = CorpusSpec(sources=[str(tmp_path / source)], task=labels)
        with pytest.raises(CorpusError) as caught:
            check_corpus(corpus)
        return str(caught.value)

    assert "empty' holds no file of a supported type" in refusal("empty")
    assert "other' holds no file of a supported type" in refusal("other")
    assert f"blank' holds no {content}: its files are empty, or of other types." in refusal("blank")
    if content == "texts":
        assert "table' holds no file" in refusal("table") and "give corpus.task" in refusal("table")
        assert "alone.tsv' holds no text: its files have no rows. Give a source that has some." in refusal("alone.tsv")
    else:
        check_corpus(CorpusSpec(sources=[str(tmp_path / "table"), str(tmp_path / "alone.tsv")], task=labels))


def test_a_bare_no_is_a_strategy(tiny_recipe):
    plan(tiny_recipe, "stages.0.training.eval_strategy=no", "stages.0.training.save_strategy=no")


def test_a_teacher_that_cannot_run_is_found_without_its_weights(tiny_recipe, bert_folder, tmp_path):
    folder = shutil.copytree(bert_folder, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_attention_heads": 5}))
    with pytest.raises(
        LimbeckError, match=f"The model of '{folder}' cannot be run .*multiple of the number of attention heads"
    ):
        plan(
            tiny_recipe, f"teacher.model={folder}", "stages.0.method=hidden_states", "student.initialise.layers=random"
        )


def test_a_run_without_weights_draws_nothing_and_takes_any_family():
    before = torch.get_rng_state()
    for family in families:
        check_runs(family, tiny_config(family))
    assert torch.equal(torch.get_rng_state(), before)


def test_sample_terms_are_planned_without_accumulation(tiny_recipe):
    plan(tiny_recipe, "stages.0.method={name: sentence_embedding, sample_relation_weight: 1.0}")


def test_a_checkpoint_of_another_vocabulary_is_refused(tiny_recipe, tmp_path):
    other = make_teacher(tmp_path / "other", "bert")
    vocabulary = (other / "tokenizer.json").read_text(encoding="utf-8")
    (other / "tokenizer.json").write_text(vocabulary.replace('"teacher"', '"pupil"'), encoding="utf-8")
    tiny_recipe["student"] = {"shape": {"layers": 4, "hidden": 48, "heads": 4, "ffn": 96}}
    with pytest.raises(LimbeckError, match="has another tokenizer than .*pupil"):
        plan(tiny_recipe, f"student.initialise.checkpoint={other}")


def test_a_checkpoint_of_another_shape_is_refused(tiny_recipe, bert_folder):
    with pytest.raises(LimbeckError, match="change one of them"):
        plan(tiny_recipe, f"student.initialise.checkpoint={bert_folder}")


def test_stage_text_wins_over_the_corpus(tiny_recipe):
    tiny_recipe["stages"][0]["text"] = {"unit": "sentence", "length": 16}
    settings = plan(tiny_recipe).stages[0].corpus
    assert (settings.unit, settings.length, settings.held_out) == ("sentence", 16, 0.2)


def two_stages(recipe, **second):
    """A recipe whose second stage has a corpus of its own: the recipe's, with some keys changed."""
    (stage,) = recipe["stages"]
    own_corpus = recipe["corpus"] | second
    return recipe | {"stages": [stage | {"name": "general"}, stage | {"name": "vectors", "corpus": own_corpus}]}


@pytest.mark.parametrize(("share", "printed"), [(0, "0.0"), (0.05, "0.05"), (0.5, "0.5"), (None, "0.01")])
def test_a_stage_does_not_train_on_what_another_one_holds_out_of_the_same_files(tiny_recipe, share, printed):
    (source,) = tiny_recipe["corpus"]["sources"]
    recipe = two_stages(tiny_recipe, unit="sentence", held_out=share)
    with pytest.raises(RecipeError) as caught:
        plan(recipe)
    assert str(caught.value) == (
        f"stages.0 ('general', held_out: 0.2) and stages.1 ('vectors', held_out: {printed}) both read '{source}', "
        "so that one of them would train on documents that the other holds out; give the corpora of both stages the "
        "same held_out."
    )
    assert len(plan(recipe, "stages.1.corpus.held_out=0.2").stages) == 2


def test_a_file_is_the_same_by_whatever_name_a_stage_reads_it(tiny_recipe, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("a.txt", "b.txt", "c.jsonl"):
        (folder / name).write_text('{"text": "text"}')
    (tmp_path / "link.txt").symlink_to(folder / "b.txt")
    tiny_recipe["corpus"]["sources"] = [str(folder)]
    for again in (f"{folder}/a.txt", f"{folder}/*.jsonl", str(tmp_path / "link.txt"), str(folder)):
        sources = ["installed-docs", again]
        with pytest.raises(RecipeError, match="both read '" + re.escape(again)):
            plan(two_stages(tiny_recipe, sources=sources, held_out=0.1))
        assert plan(two_stages(tiny_recipe, sources=sources, unit="sentence")).stages
    with pytest.raises(RecipeError, match=r"separator: not given\) .* separator: line\) .* the same separator"):
        plan(two_stages(tiny_recipe, separator="line"))
    # Other files may be split in another way, and so may the files of a third stage.
    (tmp_path / "other.txt").write_text("text")
    other = two_stages(tiny_recipe, sources=[str(tmp_path / "other.txt")], held_out=0.1, separator="line")
    assert plan(other).stages
    third = other["stages"][0] | {"name": "third", "corpus": tiny_recipe["corpus"] | {"held_out": 0.3}}
    with pytest.raises(RecipeError, match=r"stages\.0 \('general', .* stages\.2 \('third', held_out: 0\.3"):
        plan(other | {"stages": [*other["stages"], third]})


def test_streaming_and_mix_reach_the_corpus(tiny_recipe):
    def chosen(**changes):
        settings = plan(tiny_recipe | {"corpus": tiny_recipe["corpus"] | changes}).stages[0].corpus
        return settings.streaming, settings.shuffle_buffer, settings.mix

    sources = [*tiny_recipe["corpus"]["sources"], "https://example.org/more.jsonl.zst"]
    streamed = {"sources": sources, "streaming": True}
    assert chosen(**streamed, shuffle_buffer=77, mix={"weights": [1, 2]}) == (True, 77, MixSpec(weights=(1.0, 2.0)))
    assert chosen(**streamed, mix={"exponent": 0.3}) == (True, 10_000, MixSpec(exponent=0.3))
    assert chosen() == (False, 10_000, None)


def test_pairs_of_segments_are_summarised(tiny_recipe):
    def pairs_of(**changes):
        return plan(tiny_recipe | changes).summary()[name].endswith("; blocks are pairs of adjacent segments")

    [name] = [name for name in plan(tiny_recipe).summary() if name.startswith("stage 1")]
    assert not pairs_of()
    assert pairs_of(corpus=tiny_recipe["corpus"] | {"pairs": True})
    stage = tiny_recipe["stages"][0]
    assert pairs_of(stages=[stage | {"text": stage.get("text", {}) | {"pairs": True}}])


def test_a_mix_is_summarised_with_its_shares(tiny_recipe, tmp_path):
    def told(**corpus):
        recipe = tiny_recipe | {"corpus": {"length": 32} | corpus}
        return plan(recipe).summary().get("sources of stage 1")

    for name, size in (("de", 90), ("sw", 10)):
        (tmp_path / f"{name}.txt").write_text("x" * size)
    by = f"{tmp_path}/{{language}}.txt"
    assert told(mix={"by": by, "exponent": 0.5}).startswith(
        "de 75.0%, sw 25.0% (about, by the stored sizes of the files"
    )
    listed = ["hub:someone/texts", "installed-docs"]
    assert told(sources=listed, mix={"weights": [1, 3]}) == "hub:someone/texts 25.0%, installed-docs 75.0%"
    assert told(sources=listed, mix={"exponent": 0.3}) == "hub:someone/texts, installed-docs"
    assert told(sources=listed) is None


@pytest.mark.parametrize("text", [{}, {"text": {"lengths": {16: 0.5, 32: 0.5}}}])
def test_a_file_that_comes_while_a_run_goes_on_is_none_of_its_sources(tiny_recipe, tmp_path, text):
    for name in ("de", "sw"):
        (tmp_path / f"{name}.txt").write_text("x")
    tiny_recipe["corpus"] = {"length": 32, "mix": {"by": f"{tmp_path}/{{language}}.txt", "exponent": 0.3}}
    tiny_recipe["stages"][0] |= text
    (stage,) = plan(tiny_recipe).stages
    begun = stage.corpora
    (tmp_path / "ur.txt").write_text("x")
    assert stage.corpora == begun and begun[-1].titles == ("de", "sw")


@pytest.fixture
def rows_recipe(tmp_path):
    """A recipe of labelled rows with copies, whose teacher is a classifier."""
    (tmp_path / "rows.tsv").write_text(
        "text\tlabel\n" + "".join(f"row {number}\t{number % 2}\n" for number in range(9))
    )
    (tmp_path / "glove.txt").write_text("word 1 0\n")
    task = {"sources": [str(tmp_path / "rows.tsv")], "length": 32, "task": {"kind": "classification"}}
    return {
        "output": str(tmp_path / "run"),
        "seed": 7,
        "teacher": {"model": str(make_teacher(tmp_path, head="classification", num_labels=2))},
        "student": {"shape": "2x24"},
        "corpus": task | {"augment": {"masked_lm": "none", "copies": 3}},
        "stages": [{"method": {"name": "output_distribution"}, "training": {"max_steps": 1}}],
    }


def test_copies_are_made_by_the_models_that_are_named_or_the_teacher(rows_recipe, tmp_path):
    teacher = rows_recipe["teacher"]["model"]
    masked = str(make_teacher(tmp_path / "other", head="masked_lm"))
    chosen = plan(rows_recipe).stages[0].corpus.augment
    assert (chosen.masked_lm, chosen.word_vectors, chosen.seed, chosen.copies) == (None, (teacher, None), 7, 3)
    glove = f"corpus.augment.word_vectors={tmp_path}/glove.txt"
    chosen = (
        plan(rows_recipe, f"corpus.augment.masked_lm={masked}", glove, "corpus.augment.seed=1").stages[0].corpus.augment
    )
    assert (chosen.masked_lm, chosen.word_vectors, chosen.seed) == ((masked, None), f"{tmp_path}/glove.txt", 1)
    by_itself = plan(
        rows_recipe, f"teacher.model={masked}", "corpus.augment.masked_lm=null", "stages.0.method=minilmv2"
    )
    assert by_itself.stages[0].corpus.augment.masked_lm == (masked, None)


def test_stop_words_are_english_or_those_that_are_given(rows_recipe, tmp_path):
    (tmp_path / "german.txt").write_text("nicht\nkein\n")

    def summary_of(*overrides):
        planned = plan(rows_recipe, *(f"corpus.augment.{override}" for override in overrides))
        return planned.stages[0].corpus.augment.stop_words, planned.summary()["rows of stage 1"]

    words, summary = summary_of("stop_words=null")
    assert words is None and "up to 3 copies of each text" in summary and "the 173 English stop words stay" in summary
    words, summary = summary_of("stop_words=english", "algorithm=printed")
    assert len(words) == 173 and "the 173 English stop words stay" in summary
    words, summary = summary_of(f"stop_words={tmp_path}/german.txt")
    assert words == ("nicht", "kein") and "the 2 stop words of the recipe stay" in summary
    assert summary_of("stop_words=[pas]")[0] == ("pas",)
    for override in ("stop_words=none", "algorithm=printed"):
        assert "negations may be replaced too" in summary_of(override)[1]


def test_labels_of_copies_that_are_learned_are_told(rows_recipe):
    lines = plan(rows_recipe).summary()
    assert "3 copies of each" in lines["rows of stage 1"] and "carry" not in lines["rows of stage 1"]
    learned = plan(rows_recipe, "stages.0.method={name: bert_pkd, patient_weight: 0}").summary()
    assert "keeps the label of its row, which this stage learns" in learned["rows of stage 1"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "masked_lm=null",
            "masked_lm is missing, and the teacher '.*' has no masked language model head: name a model",
        ),
        ("word_vectors=glove.gz", "there is no file 'glove.gz'; give a text file of word vectors, or a model"),
        ("word_vectors=none", "take new words from masked_lm or word_vectors, but both are 'none'"),
        ("stop_words=german", "there is no file 'german'; give english, none, a list of words, or a text file"),
        ("stop_words=[]", "corpus.augment.stop_words: the list of stop words is empty: list words"),
        ("method=eda", "corpus.augment.method is 'eda'; give 'tinybert'"),
    ],
    ids=lambda text: text[:20],
)
def test_copies_that_cannot_be_made(rows_recipe, override, message):
    with pytest.raises(LimbeckError, match=message):
        plan(rows_recipe, f"corpus.augment.{override}")
    rows_recipe["corpus"].pop("task")
    with pytest.raises(LimbeckError, match="'augment' copies labelled rows, but this corpus has no 'task'"):
        plan(rows_recipe)


def test_copies_are_known_by_what_they_are_made_with(rows_recipe):
    places = ["corpus.augment.word_vectors=package:some", "corpus.augment.stop_words=words.txt"]
    recipe = load_recipe(rows_recipe, places)
    known = without_places(recipe.model_dump(mode="json"))["corpus"]["augment"]
    assert (known["masked_lm"], known["word_vectors"], known["stop_words"]) == ("none", "a place", "a place")
    assert known["copies"] == 3
    without = load_recipe(rows_recipe).model_dump(mode="json")["corpus"]["augment"]
    assert not {"algorithm", "context", "stop_words"} & {*without}
    assert "augment" not in load_recipe(rows_recipe, ["corpus.augment=null"]).model_dump(mode="json")["corpus"]


def test_a_table_is_no_mistake_where_only_the_task_of_its_rows_is_one(tiny_recipe, tmp_path):
    (tmp_path / "rows.tsv").write_text("text\tlabel\na\t1\n")
    tiny_recipe["corpus"] = {"sources": [str(tmp_path / "rows.tsv")], "task": {"kind": "classificaton"}}
    with pytest.raises(LimbeckError) as caught:
        load_checked(tiny_recipe)
    assert "corpus.task.kind: Unknown kind 'classificaton'" in str(caught.value) and "give corpus.task" not in str(
        caught.value
    )
