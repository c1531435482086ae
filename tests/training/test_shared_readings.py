"""Methods on tokens for students whose vocabulary is cut: their teachers read the same pieces."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForMaskedLM, AutoTokenizer

import limbeck
from limbeck.errors import CorpusError, LimbeckError, RecipeError
from limbeck.models.vocabulary_cut import Pieces
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.training.held_stage import HeldStage
from tests.support.models import make_embedding, make_teacher, tiny_tokenizer, vocabulary
from tests.support.recipes import recipe_of
from tests.support.training import assert_ends_like, kill_at

FREQUENT = ["student", "layer", "text", "we", "it", "on", "are", "with"]
RARE = ["the", "of", "and"]
LEAST = len(Pieces(tiny_tokenizer("bert")).staying)
MINILMV2 = {"name": "minilmv2", "relation_heads": 4}
HIDDEN_STATES = {"name": "hidden_states"}
DISTRIBUTIONS = {"name": "output_distribution", "positions": "all", "temperature": 2.0}
LEFT_OUT = "text left out that holds other pieces than the student's vocabulary"
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture
def teacher(tmp_path):
    return make_teacher(tmp_path, "bert", head="masked_lm", **NO_DROPOUT)


def write_texts(path, *, rare_every=3):
    """Write forty documents of a paragraph; every so many hold a rare word, or none with 0."""
    path.mkdir()
    for number in range(40):
        words = [FREQUENT[(number * 5 + place * 3 + place // 4) % len(FREQUENT)] for place in range(5 + number % 7)]
        if rare_every and number % rare_every == 0:
            words.insert(2, RARE[number % len(RARE)])
        (path / f"{number:02}.txt").write_text(f"{' '.join(words)} {number}.")
    return path


@pytest.fixture
def texts(tmp_path):
    return write_texts(tmp_path / "texts")


def cut_recipe(teacher, texts, tmp_path, *methods, **vocabulary_keys):
    recipe = recipe_of(teacher, texts, *methods, output=str(tmp_path / "run"))
    recipe["student"] = {"shape": 2, "vocabulary": {"pieces": LEAST + len(FREQUENT), **vocabulary_keys}}
    return recipe


def held(recipe):
    """The stage of a recipe in float64."""
    stage = HeldStage(plan_run(load_recipe(recipe)))
    stage.module.double()
    stage.module.teaching.teacher.double()
    return stage


def batch_of(stage, count=12):
    return stage.rows.collator([stage.rows.train[index] for index in range(count)])


def old_ids_of(stage):
    """For each id of a student its id in the whole vocabulary."""
    names = stage.tokenizer.get_vocab()
    return torch.tensor([vocabulary("bert").index(name) for name in sorted(names, key=names.get)])


@pytest.fixture
def pair(teacher, tmp_path):
    """Make two stages on texts of pieces that all stay: of a student with a cut vocabulary, and with a whole one."""
    plain = write_texts(tmp_path / "plain", rare_every=0)

    def make(method):
        recipe = cut_recipe(teacher, plain, tmp_path, method)
        return held(recipe), held({**recipe, "student": {"shape": 2}})

    return make


@pytest.mark.parametrize("method", [MINILMV2, HIDDEN_STATES, {"name": "tinybert"}])
def test_the_loss_is_that_of_the_whole_vocabulary(pair, method):
    cut, whole = pair(method)
    batch, whole_batch = batch_of(cut), batch_of(whole)
    assert torch.equal(old_ids_of(cut)[batch["input_ids"]], whole_batch["input_ids"])
    assert not torch.equal(batch["input_ids"], whole_batch["input_ids"])
    torch.testing.assert_close(cut.loss(batch), whole.loss(whole_batch), rtol=1e-12, atol=0)
    assert cut.loss(batch) > 0
    cut.close()
    whole.close()


def test_distributions_are_renormalised_over_the_pieces_that_stay(pair, teacher):
    cut, _ = pair(DISTRIBUTIONS)
    batch = batch_of(cut)
    ids = old_ids_of(cut)
    inputs = {name: batch[name] for name in ("attention_mask", "token_type_ids") if name in batch}
    model = AutoModelForMaskedLM.from_pretrained(teacher, dtype=torch.float64).eval()
    with torch.no_grad():
        # A softmax over all pieces, of which those that stay are divided by their sum.
        scores = model(input_ids=ids[batch["input_ids"]], **inputs).logits
        whole = (scores / 2.0).softmax(-1)[..., ids]
        probabilities = whole / whole.sum(-1, keepdim=True)
        of_student = (cut.module.student(input_ids=batch["input_ids"], **inputs).logits / 2.0).log_softmax(-1)
    divergence = (probabilities * (probabilities.log() - of_student)).sum(-1)
    is_token = batch["attention_mask"].bool()
    expected = 4.0 * divergence[is_token].mean()
    assert len(ids) < len(vocabulary("bert"))
    torch.testing.assert_close(cut.loss(batch).detach(), expected, rtol=1e-9, atol=0)
    cut.close()


def test_random_tokens_and_the_mask_are_pieces_of_the_student(teacher, texts, tmp_path):
    recipe = cut_recipe(teacher, texts, tmp_path, {"name": "distilbert"})
    recipe["stages"][0]["augment"] = {"replace_tokens": 0.5}
    stage = held(recipe)
    seen = set()
    for batch in stage.batches():
        assert int(batch["input_ids"].max()) < len(stage.tokenizer)
        chosen = batch["labels"] != -100
        assert chosen.any() and int(batch["labels"].max()) < len(stage.tokenizer)
        seen.update(batch["input_ids"][chosen].tolist())
        assert torch.isfinite(stage.loss(batch))
    assert stage.tokenizer.mask_token_id in seen
    stage.close()


def read_rows(stage):
    rows = [*stage.corpus.train["input_ids"], *stage.corpus.held_out["input_ids"]]
    return sorted(stage.tokenizer.decode(row, skip_special_tokens=True) for row in rows)


def test_texts_with_other_pieces_are_left_out(teacher, texts, tmp_path):
    stage = HeldStage(plan_run(load_recipe(cut_recipe(teacher, texts, tmp_path, MINILMV2))))
    written = [path.read_text() for path in sorted(texts.iterdir())]
    expected = [text for text in written if not set(RARE) & set(text.split())]
    assert 0 < len(expected) < len(written)
    assert stage.corpus.report.counts == {LEFT_OUT: len(written) - len(expected)}
    rows = sorted(row.replace(" ", "") for row in read_rows(stage))
    assert rows == sorted(text.replace(" ", "") for text in expected)
    # Another corpus is read with `keep`, although text and tokenizer are the same.
    kept = HeldStage(plan_run(load_recipe(cut_recipe(teacher, texts, tmp_path, MINILMV2, other_texts="keep"))))
    assert len(kept.corpus.train) + len(kept.corpus.held_out) == len(written)


def test_a_stage_without_a_teacher_reads_all_texts(teacher, texts, tmp_path):
    recipe = cut_recipe(teacher, texts, tmp_path, {"name": "mlm"})
    stage = HeldStage(plan_run(load_recipe(recipe)))
    assert len(stage.corpus.train) + len(stage.corpus.held_out) == 40
    assert "the teacher reads" not in str(limbeck.validate(recipe))


def test_pairs_of_segments_are_cut_by_sentence(teacher, tmp_path):
    folder = tmp_path / "pairs"
    folder.mkdir()
    for number in range(30):
        middle = "the word is in." if number % 2 else "the is in."
        (folder / f"{number}.txt").write_text(f"of the {number}. {middle} to that is for.")
    recipe = cut_recipe(teacher, folder, tmp_path, MINILMV2)
    recipe["corpus"] |= {"unit": "document", "pairs": True}
    # All words but "word" stay.
    recipe["student"]["vocabulary"]["pieces"] = LEAST + 7
    stage = HeldStage(plan_run(load_recipe(recipe)))
    assert len(stage.corpus.train) + len(stage.corpus.held_out) == 15
    stage.close()


def test_kept_texts_are_read_as_by_a_trimmed_teacher(teacher, texts, tmp_path):
    """Keeping all texts is the same as trimming the teacher first, to the bit."""
    keys = {"count": [str(texts)], "other_texts": "keep"}
    for number, method in enumerate((MINILMV2, {"name": "distilbert"})):
        recipe = cut_recipe(teacher, texts, tmp_path, method, **keys)
        recipe["output"] = str(tmp_path / f"cut-{number}")
        result = limbeck.distill(recipe)
        names = set(AutoTokenizer.from_pretrained(result.student).get_vocab())
        trimmed = limbeck.trim(
            teacher, str(texts), pieces=LEAST + len(FREQUENT), output=tmp_path / f"trimmed-{number}"
        ).folder
        assert set(AutoTokenizer.from_pretrained(trimmed).get_vocab()) == names
        other = {**recipe, "teacher": {"model": str(trimmed)}, "student": {"shape": 2}}
        other["output"] = str(tmp_path / f"trimmed-run-{number}")
        of_trimmed = load_file(limbeck.distill(other).student / "model.safetensors")
        of_cut = load_file(result.student / "model.safetensors")
        assert of_cut.keys() == of_trimmed.keys()
        assert all(torch.equal(tensor, of_trimmed[name]) for name, tensor in of_cut.items())
        assert result.record["corpus"]["report"]["counts"] == {}


@pytest.mark.parametrize(
    ("method", "distributions"),
    [(MINILMV2, False), (HIDDEN_STATES, False), ({"name": "output_distribution"}, True), ({"name": "distilbert"}, True),
     ({"name": "hidden_states", "mapping": "contribution"}, False)],
)  # fmt: skip
def test_a_run_says_what_it_leaves_out(teacher, texts, tmp_path, method, distributions):
    recipe = cut_recipe(teacher, texts, tmp_path, method)
    shown = str(limbeck.validate(recipe))
    assert "the teacher reads these too, and texts with other pieces are left out" in shown
    assert ("its distributions over the vocabulary are renormalised over these" in shown) == distributions
    result = limbeck.distill(recipe)
    tokenizer = AutoTokenizer.from_pretrained(result.student)
    config = json.loads((result.student / "config.json").read_text())
    assert len(tokenizer) == config["vocab_size"] == LEAST + len(FREQUENT)
    assert result.record["stages"][0]["final_loss"] > 0
    (problem,) = result.record["corpus"]["report"]["counts"].items()
    assert problem == (LEFT_OUT, 14)
    card = (result.student / "README.md").read_text()
    assert "The teacher reads these too, and texts with other pieces are left out." in card
    assert ("Its distributions over the vocabulary are renormalised over these." in card) == distributions


def test_stages_on_tokens_and_on_whole_texts_follow_each_other(tmp_path, texts):
    teacher = make_embedding(tmp_path / "bert", "bert")
    recipe = cut_recipe(teacher, texts, tmp_path, MINILMV2, {"name": "aligned_embedding"})
    shown = str(limbeck.validate(recipe))
    assert "in minilmv2 the teacher reads these too, and texts with other pieces are left out" in shown
    assert "in aligned_embedding it reads its own, so that terms are of whole texts" in shown
    first, second = limbeck.distill(recipe).record["corpus"]["views"]
    # The second stage reads all texts.
    assert second["blocks"] > first["blocks"]


def test_the_student_of_an_earlier_stage_teaches_tokens(teacher, texts, tmp_path):
    recipe = cut_recipe(teacher, texts, tmp_path, MINILMV2, MINILMV2)
    assistant, last = recipe["stages"]
    assistant |= {"name": "assistant", "student": {"shape": 3}}
    last |= {"name": "last", "teacher": {"stage": "assistant"}}
    result = limbeck.distill(recipe)
    assert len(AutoTokenizer.from_pretrained(result.student)) == LEAST + len(FREQUENT)
    # The assistant has the whole vocabulary and read all texts.
    first, second = result.record["corpus"]["views"]
    assert first["blocks"] > second["blocks"]


def test_a_killed_run_goes_on(teacher, texts, tmp_path):
    recipe = cut_recipe(teacher, texts, tmp_path, {"name": "distilbert"})
    limbeck.distill(recipe)
    killed = {**recipe, "output": str(tmp_path / "killed")}
    kill_at(killed, 3)
    other = {**recipe["student"]["vocabulary"], "other_texts": "keep"}
    with pytest.raises(LimbeckError, match="other_texts"):
        limbeck.distill({**killed, "student": {"shape": 2, "vocabulary": other}}, resume=True)
    limbeck.distill(killed, resume=True)
    assert_ends_like(recipe, killed)


def test_a_share_of_the_text_decides_the_number_of_pieces(teacher, texts, tmp_path):
    recipe = cut_recipe(teacher, texts, tmp_path, MINILMV2)
    recipe["student"]["vocabulary"] = {"coverage": 0.9, "count": [str(texts)], "always": str(tmp_path / "always.txt")}
    (tmp_path / "always.txt").write_text("model\n")
    assert "as many of" in str(limbeck.validate(recipe)) and "cover 0.9 of the tokens" in str(limbeck.validate(recipe))
    result = limbeck.distill(recipe)
    names = AutoTokenizer.from_pretrained(result.student).get_vocab()
    trimmed = limbeck.trim(teacher, str(texts), coverage=0.9, always=["model"], output=tmp_path / "trimmed")
    assert set(names) == set(AutoTokenizer.from_pretrained(trimmed.folder).get_vocab())
    config = json.loads((result.student / "config.json").read_text())
    assert config["vocab_size"] == len(names) < len(vocabulary("bert"))
    assert "model" in names and not set(RARE) <= set(names)
    summary = result.record["student"]["initialisation"]["summary"]
    assert f"the {len(names)} of the {len(vocabulary('bert'))} pieces" in summary


def test_a_step_is_measured_with_as_many_pieces_of_the_teacher(teacher, texts, tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(cut_recipe(teacher, texts, tmp_path, DISTRIBUTIONS)))
    limbeck.benchmark("step", recipe=path, batch=2, length=16, output=tmp_path / "rows.json")


def test_no_text_left_is_told_with_the_way_out(teacher, tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.txt").write_text(f"the word {number} is that student of teacher.")
    recipe = cut_recipe(teacher, folder, tmp_path, MINILMV2)
    recipe["student"]["vocabulary"]["pieces"] = LEAST + 1
    with pytest.raises(CorpusError, match=r"no text to train on is left: .* set student.vocabulary.other_texts: keep"):
        limbeck.distill(recipe)


def test_what_cannot_be_shared_is_refused(teacher, texts, tmp_path):
    plan = partial(lambda recipe: plan_run(load_recipe(recipe)))
    recipe = cut_recipe(teacher, texts, tmp_path, MINILMV2)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"text": f"the {n}", "label": "AB"[n % 2]}) for n in range(20)))
    labelled = {**recipe, "corpus": {"sources": [str(rows)], "length": 32, "task": {"kind": "classification"}}}
    with pytest.raises(RecipeError, match="by limbeck trim"):
        plan(labelled)
    streamed = {**recipe, "corpus": {**recipe["corpus"], "streaming": True}}
    with pytest.raises(RecipeError, match="a stream cannot be counted; set student.vocabulary.other_texts: keep"):
        plan(streamed)
    several = {key: value for key, value in recipe.items() if key != "teacher"}
    several["teachers"] = {"a": {"model": str(teacher)}, "b": {"model": str(teacher)}}
    several["stages"] = [{**recipe["stages"][0], "layers_from": "a"}]
    with pytest.raises(RecipeError, match="by limbeck trim"):
        plan(several)
    train = {**recipe, "student": {"shape": 2, "vocabulary": {"train": 100, "other_texts": "skip"}}}
    with pytest.raises(LimbeckError, match="'other_texts' apply only where pieces are kept"):
        plan(train)
    bad_share = {**recipe, "student": {"shape": 2, "vocabulary": {"coverage": 1.5}}}
    with pytest.raises(LimbeckError, match="coverage"):
        plan(bad_share)


def test_a_student_of_a_tied_output_layer_shares_its_rows(teacher, texts, tmp_path):
    stage = held(cut_recipe(teacher, texts, tmp_path, DISTRIBUTIONS))
    reader = stage.module.teaching.teacher
    assert isinstance(reader.get_output_embeddings(), nn.Module)
    assert reader.get_output_embeddings().weight is reader.get_input_embeddings().weight
    source = AutoModelForMaskedLM.from_pretrained(teacher, dtype=torch.float64)
    ids = old_ids_of(stage)
    assert torch.equal(reader.get_input_embeddings().weight, source.get_input_embeddings().weight[ids])
    assert torch.equal(reader.get_output_embeddings().bias, source.get_output_embeddings().bias[ids])
    assert Path(teacher, "config.json").is_file()
    stage.close()
