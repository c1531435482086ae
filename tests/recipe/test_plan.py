"""Contradictions across fields are refused before any weight is loaded."""

import pytest

from limbeck.errors import LimbeckError
from limbeck.recipe import load_recipe, plan_run
from tests.support.models import make_teacher


def plan(recipe, *overrides):
    return plan_run(load_recipe(recipe, overrides))


def test_sources_that_may_be_there_pass(tiny_recipe, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    for source in ("hub:someone/texts", "someone/texts", "installed-docs", f"{tmp_path}/*.txt", "https://host/a.jsonl"):
        assert plan(tiny_recipe | {"corpus": {"sources": [source], "length": 32}}).stages


@pytest.mark.parametrize("source", ["x" * 3000, "x" * 3000 + "*", "a/" * 2040], ids=lambda name: name[:9])
def test_names_that_no_file_can_have_are_not_there(tiny_recipe, source):
    with pytest.raises(LimbeckError, match="does not exist; give a file") as caught:
        plan(tiny_recipe | {"corpus": {"sources": [source], "length": 32}})
    assert "\n" not in str(caught.value) and "\0" not in str(caught.value)


def test_a_plan_needs_no_weights(tiny_recipe, bert_folder, tmp_path):
    folder = tmp_path / "config-only"
    folder.mkdir()
    for file in bert_folder.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    found = plan(tiny_recipe, f"teacher.model={folder}")
    assert (found.student.layers, found.student.hidden, found.student.ffn) == (2, 24, 48)
    assert [term.name for term in found.stages[0].terms] == ["query_query", "key_key", "value_value"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.0.training.learning_rate", "has no value"),
        ("=3", "names no key"),
        ("stages..name=x", "names no key"),
        ("stages.5.training.max_steps=1", "index from 0 to 0"),
        ("stages.x.name=1", "index from 0 to 0"),
        ("seed=[1", "not valid YAML"),
        ("studnet.shape=3x384", "unknown key 'studnet'. Did you mean 'student'"),
        ("student.initialise.layer=ends", "unknown key 'layer'. Did you mean 'layers'"),
        ("stages.0.method.name=minilm2", "Unknown method 'minilm2'. Did you mean 'minilmv2'"),
        ("stages.0.method.relation_head=4", "unknown key 'relation_head'. Did you mean 'relation_heads'"),
        ("stages.0.method.teacher_layer=top", "stages.0.method: teacher_layer"),
        ("student.initialise.layers=firts", "student.initialise.layers: Input should be 'random', 'first'"),
        ("corpus.length=2", "corpus.length"),
        ("corpus.length=many", "corpus.length"),
        ("corpus.held_out=1.5", "corpus.held_out"),
        ("seed=-1", "seed"),
        ("corpus.unit=word", "corpus.unit"),
        ("corpus.sources=[]", "corpus.sources"),
        ("teacher={}", "teacher.model: is missing"),
        ("corpus=null", "corpus is missing"),
        ("evaluation.pooling=max", "evaluation.pooling"),
        ("student.dropout=1", "student.dropout"),
        ("stages.0.method.relation_heads=5", "relation_heads 5 does not divide"),
        ("stages.0.method.relation_heads=16", "student's"),
        ("stages.0.method.teacher_layer=9", "has 4 layers"),
        ("stages.0.method.student_layer=3", "has 2 layers"),
        ("stages.0.method.relations={query-qery: 1}", "Did you mean 'query-query'"),
        ("stages.0.method.relations={query-query: -1}", "weights are 0 or more"),
        ("stages.0.method.relations={query-query: 0}", "weight 0"),
        ("stages.0.method.relations={}", "weight 0"),
        ("student.shape=6by384", "6by384"),
        ("student.shape={layers: 2, hidden: 24, heads: 5}", "5 heads"),
        ("student.initialise.embeddings=copied", "24"),
        ("corpus.length=4096", "positions"),
        ("stages.0.training.learning_rat=1", "Did you mean 'learning_rate'"),
        ("stages.0.training.learning_rate=fast", "learning_rate"),
        ("stages.0.training.output_dir=/tmp/x", "managed by limbeck; use output"),
        ("stages.0.training.learning_rate=-1", "more than 0"),
        ("stages.0.training.learning_rate=.nan", "finite"),
        ("stages.0.training.per_device_train_batch_size=0", "at least 1"),
        ("stages.0.training.gradient_accumulation_steps=0", "at least 1"),
        ("stages.0.training.max_steps=0", "1 or more"),
        ("stages.0.training.gradient_checkpointing=true", "managed by limbeck"),
        ("stages.0.training.report_to=nowhere", "not installed"),
        ("stages.0.name=../../x", "name"),
        ("corpus.sources=[./not-there.txt]", "'./not-there.txt' does not exist; give a file"),
        ("corpus.sources=[not-there/]", "'not-there/' does not exist"),
        ("corpus.sources=[not-there]", "'not-there' does not exist"),
        ("corpus.sources=['not-there/*.txt']", "does not exist"),
        ("corpus.sources=[installed-docs:/not/there]", "does not exist"),
        ("teacher.model=./not-there", "not-there"),
        ("name=''", "name: is empty"),
        ('name="a\\x85b"', "no name has"),
        ('name="a\\u202eb"', "no name has"),
        ('name="\\ud800"', "no name has"),
        ("teacher.model=~no-such-user/x", "not known here"),
        ("corpus.sources=['']", "is empty"),
        (f"name={'x' * 5000}", "5,000 characters"),
        ("seed=true", "seed is true"),
        ("corpus.length=yes", "length is true"),
        ("evaluation.batch_sizes=[true]", "true is no number"),
        ("evaluation.batch_sizes=[0]", "batch_sizes.0"),
        ("evaluation.batch_sizes=[-1]", "batch_sizes.0"),
        (f"evaluation.pairs={10**30}", "evaluation.pairs"),
        (f"corpus.max_documents={10**30}", "corpus.max_documents"),
        (f"stages.0.guard.skips_in_a_row={10**30}", "skips_in_a_row"),
        ("stages.0.training.learning_rate=1e308", "up to 3.40282e"),
        ("stages.0.training.learning_rate=.nan", "finite"),
        ("stages.0.training.adam_beta1=1", "adam_beta1 is 1"),
        ("stages.0.training.adam_epsilon=-1", "adam_epsilon is -1"),
        ("stages.0.training.adam_beta2=.inf", "finite"),
        ("stages.0.training.max_steps=true", "max_steps is true"),
        (f"stages.0.training.max_steps={10**30}", "max_steps"),
        ("stages.0.training.label_smoothing_factor=1e300", "up to"),
        ("stages.0.training.optim=''", "optim is empty"),
        ("stages.².name=x", "index from 0 to 0"),
        (f"stages.{'9' * 5000}.name=x", "index from 0 to 0"),
        (f"stages.0.training.{'a.' * 60}b=1", "nothing is that deep"),
        (f"stages.0.training.optim_args={'[' * 49}{']' * 49}", "levels"),
    ],
)
def test_values_that_cannot_be_meant(tiny_recipe, override, message):
    with pytest.raises(LimbeckError) as caught:
        plan(tiny_recipe, override)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("layers", "message"), [("[1, 9]", "9"), ("[1]", "2")])
def test_layers_that_cannot_be_copied(tiny_recipe, layers, message):
    with pytest.raises(LimbeckError, match=message):
        plan(tiny_recipe, f"student.initialise.layers={layers}", "student.shape=2x48")


def test_a_bare_no_is_a_strategy(tiny_recipe):
    plan(tiny_recipe, "stages.0.training.eval_strategy=no", "stages.0.training.save_strategy=no")


def test_sample_terms_refuse_accumulation(tiny_recipe):
    tiny_recipe["stages"][0] |= {"method": {"name": "sentence_embedding", "sample_relation_weight": 1.0}}
    with pytest.raises(LimbeckError, match="gradient_accumulation_steps to 1"):
        plan(tiny_recipe, "stages.0.training.gradient_accumulation_steps=2")
    plan(tiny_recipe)


def test_a_checkpoint_of_another_vocabulary_is_refused(tiny_recipe, tmp_path):
    other = make_teacher(tmp_path / "other", "bert")
    vocabulary = (other / "tokenizer.json").read_text(encoding="utf-8")
    (other / "tokenizer.json").write_text(vocabulary.replace('"teacher"', '"pupil"'), encoding="utf-8")
    tiny_recipe["student"] = {"shape": {"layers": 4, "hidden": 48, "heads": 4, "ffn": 96}}
    with pytest.raises(LimbeckError, match="pupil|teacher"):
        plan(tiny_recipe, f"student.initialise.checkpoint={other}")


def test_a_checkpoint_of_another_shape_is_refused(tiny_recipe, bert_folder):
    with pytest.raises(LimbeckError, match="change one of them"):
        plan(tiny_recipe, f"student.initialise.checkpoint={bert_folder}")


def test_stage_text_wins_over_the_corpus(tiny_recipe):
    tiny_recipe["stages"][0]["text"] = {"unit": "sentence", "length": 16}
    settings = plan(tiny_recipe).stages[0].corpus
    assert (settings.unit, settings.length, settings.held_out) == ("sentence", 16, 0.2)
