"""Fine-tuning gives the weights and predictions of a plain `transformers` script, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset, Sequence, Value
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback

from limbeck.corpus.rows.labelled_rows import WORD_GAP
from limbeck.evaluation.evaluators.fine_tuning import (
    FineTuner,
    changed_keywords,
    load_task_model,
    training_arguments,
)
from limbeck.evaluation.evaluators.head_outputs import EVALUATION_BATCH
from limbeck.evaluation.plan.cell import Cell
from limbeck.kinds.scoring import score
from limbeck.models.quiet import quiet
from limbeck.models.tokenizers import load_tokenizer
from tests.support.tasks import KEYS, POINT, QUESTION_POINT, make_data, prepare, run_cell, tiny_folder

SEED = 7


def plain_arguments(point, output):
    """What a script would write: the settings of the protocol, and nothing else that changes numbers."""
    return TrainingArguments(
        output_dir=str(output),
        seed=SEED,
        learning_rate=point.learning_rate,
        num_train_epochs=point.epochs,
        per_device_train_batch_size=point.batch_size,
        per_device_eval_batch_size=EVALUATION_BATCH,
        warmup_steps=point.warmup,
        weight_decay=point.weight_decay,
        train_sampling_strategy="group_by_length" if point.group_by_length else "random",
        use_cpu=not torch.accelerator.is_available(),
        dataloader_pin_memory=torch.accelerator.is_available(),
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def test_recorded_keywords_are_those_of_a_script(tmp_path):
    point = replace(POINT, epochs=3.0, batch_size=32, group_by_length=True)
    recorded, script = changed_keywords(point, SEED), plain_arguments(point, tmp_path)
    assert recorded == {name: getattr(script, name) for name in recorded}
    assert {"seed", "train_sampling_strategy", "per_device_train_batch_size"} <= set(recorded)
    assert "num_train_epochs" not in recorded, "3 is the default of transformers"
    made = TrainingArguments(**recorded, output_dir=str(tmp_path))
    names = ["learning_rate", "num_train_epochs", "warmup_steps", "weight_decay", "lr_scheduler_type", "bf16"]
    assert [getattr(made, name) for name in names] == [getattr(script, name) for name in names]


def plain_training(model, arguments, dataset, tokenizer, collator=None, callbacks=()):
    with quiet():
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=dataset,
            data_collator=collator or DataCollatorWithPadding(tokenizer),
            processing_class=tokenizer,
            callbacks=list(callbacks),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer


def sequences(rows, tokenizer, length, *, labelled=True):
    texts, pairs = [row.text for row in rows], [row.pair for row in rows]
    encoded = tokenizer(texts, pairs if pairs[0] is not None else None, truncation=True, max_length=length)
    columns = dict(encoded)
    if labelled:
        columns["labels"] = [row.label for row in rows]
    return Dataset.from_dict(columns)


@torch.no_grad()
def row_by_row(model, dataset):
    model.eval()
    return torch.cat([model(**{k: torch.tensor([v]) for k, v in row.items()}).logits.cpu() for row in dataset])


def ours(folder, data, point, tmp_path):
    tokenizer = load_tokenizer(folder)
    prepared = prepare(data, point, tokenizer, keys=KEYS, cache_dir=tmp_path / "cache")
    with quiet():
        model = load_task_model(str(folder), data.task, seed=SEED)
        tuner = FineTuner(model, tokenizer, prepared, training_arguments(point, SEED))
        tuner.train(lambda *_: None)
        return model, {split: tuner.predict(prepared, split) for split in ("validation", "test")}, prepared


def assert_same_weights(model, other):
    weights, others = model.state_dict(), other.state_dict()
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor.cpu(), others[name].cpu()), name


@pytest.mark.parametrize(("kind", "paired", "grouped"), [("classification", False, True), ("regression", True, False)])
def test_sequence_tasks(kind, paired, grouped, tmp_path):
    folder, data, point = tiny_folder(tmp_path), make_data(kind, paired=paired), replace(POINT, group_by_length=grouped)
    model, predictions, _ = ours(folder, data, point, tmp_path)

    set_seed(SEED)
    with quiet():
        plain = AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=2 if kind == "classification" else 1
        )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = data.splits["train"]
    dataset = sequences(rows, tokenizer, point.length)
    plain_training(plain, plain_arguments(point, tmp_path / "plain"), dataset, tokenizer)

    assert_same_weights(model, plain)
    for split, found in predictions.items():
        # Row by row, since the plain loop returns predictions in the order of its batches.
        scores = row_by_row(plain, sequences(data.splits[split], tokenizer, point.length, labelled=False))
        if kind == "classification":
            assert found == scores.argmax(-1).tolist()
        else:
            np.testing.assert_allclose(found, scores[:, 0].numpy(), rtol=1e-5, atol=1e-6)


def test_question_answering(tmp_path):
    folder, data = tiny_folder(tmp_path), make_data("question_answering", train=24)
    model, predictions, _ = ours(folder, data, QUESTION_POINT, tmp_path)

    set_seed(SEED)
    with quiet():
        plain = AutoModelForQuestionAnswering.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    dataset = windows_with_answers(data.splits["train"], tokenizer, QUESTION_POINT)
    assert len(dataset) > len(data.splits["train"]), "some context must need several windows"
    arguments = plain_arguments(QUESTION_POINT, tmp_path / "plain")
    plain_training(plain, arguments, dataset, tokenizer)
    assert_same_weights(model, plain)
    assert predictions["validation"].keys() == {row.id for row in data.splits["validation"]}


def test_tagged_words(tmp_path):
    """As scripts do: words split before, the label at the first token of each, -100 elsewhere."""
    folder, data = tiny_folder(tmp_path), make_data("token_classification", train=24)
    model, predictions, _ = ours(folder, data, POINT, tmp_path)

    set_seed(SEED)
    with quiet():
        plain = AutoModelForTokenClassification.from_pretrained(folder, num_labels=3)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def encoded(row):
        found = tokenizer(row.text.split(WORD_GAP), is_split_into_words=True)
        words = found.word_ids()
        firsts = [w is not None and w != before for w, before in zip(words, [None, *words], strict=False)]
        return dict(found), words, firsts

    rows = []
    for row in data.splits["train"]:
        columns, words, firsts = encoded(row)
        rows.append({**columns, "labels": [row.label[w] if f else -100 for w, f in zip(words, firsts, strict=True)]})
    collator = DataCollatorForTokenClassification(tokenizer)
    plain_training(plain, plain_arguments(POINT, tmp_path / "plain"), Dataset.from_list(rows), tokenizer, collator)
    assert_same_weights(model, plain)
    for split, found in predictions.items():
        for row, tags in zip(data.splits[split], found, strict=True):
            columns, _, firsts = encoded(row)
            assert tags == row_by_row(plain, [columns])[0].argmax(-1)[firsts].tolist()


def test_a_sentence_of_several_windows_has_a_tag_for_each_word(tmp_path):
    folder, data = tiny_folder(tmp_path), make_data("token_classification", train=8)
    wide, narrow = (ours(folder, data, replace(POINT, length=n, epochs=1), tmp_path / str(n))[1] for n in (64, 8))
    assert [*map(len, narrow["validation"])] == [*map(len, wide["validation"])]
    assert [*map(len, wide["test"])] == [len(row.text.split(WORD_GAP)) for row in data.splits["test"]]


def windows_with_answers(rows, tokenizer, point):
    """Cut and label windows as SQuAD scripts do, with the tokenizer's own overflow."""
    encoded = tokenizer(
        [row.pair for row in rows],
        [row.text for row in rows],
        truncation="only_second",
        max_length=point.length,
        stride=point.stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    sources = encoded.pop("overflow_to_sample_mapping")
    offsets = encoded.pop("offset_mapping")
    starts, ends = [], []
    for window, source in enumerate(sources):
        row = rows[source]
        first, after = row.answer_starts[0], row.answer_starts[0] + len(row.answers[0])
        inside = [i for i, text in enumerate(encoded.sequence_ids(window)) if text == 1]
        held = offsets[window][inside[0]][0] <= first and offsets[window][inside[-1]][1] >= after
        tokens = [i for i in inside if offsets[window][i][0] < after and offsets[window][i][1] > first] if held else [0]
        starts.append(tokens[0])
        ends.append(tokens[-1])
    return Dataset.from_dict({**encoded, "start_positions": starts, "end_positions": ends})


class Weighted(Trainer):
    """As scripts weigh classes."""

    loss = None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        return self.loss(model(**inputs).logits, labels)


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_weights_of_classes_are_those_of_a_plain_script(kind, tmp_path):
    folder, data, short = tiny_folder(tmp_path), make_data(kind, paired=False), replace(POINT, epochs=1)
    tokenizer = load_tokenizer(folder)
    prepared = prepare(data, short, tokenizer, keys=KEYS, cache_dir=tmp_path / "cache")
    model = load_task_model(str(folder), data.task, seed=SEED)
    tuner = FineTuner(model, tokenizer, prepared, training_arguments(short, SEED), "balanced")
    tuner.train(lambda *_: None)

    labels = torch.tensor([row.label for row in data.splits["train"]])
    given = {"num_labels": len(data.task.labels)}
    if kind == "classification":
        counts = torch.bincount(labels)
        loss = torch.nn.CrossEntropyLoss(len(labels) / (2 * counts))
    else:
        counts = labels.sum(0)
        loss = torch.nn.BCEWithLogitsLoss(pos_weight=(len(labels) - counts) / counts)
        given["problem_type"] = "multi_label_classification"
    set_seed(SEED)
    with quiet():
        plain = AutoModelForSequenceClassification.from_pretrained(folder, **given)
        dataset = sequences(data.splits["train"], tokenizer, short.length)
        if kind == "multi_label":
            dataset = dataset.cast_column("labels", Sequence(Value("float32")))
        trainer = Weighted(
            model=plain,
            args=plain_arguments(short, tmp_path / "plain"),
            train_dataset=dataset,
            processing_class=AutoTokenizer.from_pretrained(folder),
        )
        trainer.loss = loss
        trainer.train()
    assert_same_weights(model, plain)
    if kind == "multi_label":
        rows = sequences(data.splits["validation"], tokenizer, short.length, labelled=False)
        expected = row_by_row(plain, rows).double().sigmoid()
        torch.testing.assert_close(torch.tensor(tuner.predict(prepared, "validation")).double(), expected)


class Snapshots(TrainerCallback):
    """Copies the weights after every epoch and touches nothing else."""

    def __init__(self):
        self.weights = []

    def on_epoch_end(self, args, state, control, model=None, **kwargs):
        self.weights.append({name: tensor.clone() for name, tensor in model.state_dict().items()})


def test_the_best_epoch_is_that_of_a_training_that_was_never_scored(tmp_path):
    folder, data = tiny_folder(tmp_path), make_data("regression")
    point = replace(POINT, epochs=4, learning_rate=5e-2, best_epoch_by="pearson")
    tokenizer = load_tokenizer(folder)
    prepared = prepare(data, point, tokenizer, keys=KEYS, cache_dir=tmp_path / "cache")
    result = run_cell(Cell(str(folder), "tiny", point, SEED), prepared)

    set_seed(SEED)
    with quiet():
        plain = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    snapshots = Snapshots()
    dataset = sequences(data.splits["train"], tokenizer, point.length)
    trainer = plain_training(
        plain, plain_arguments(point, tmp_path / "plain"), dataset, tokenizer, callbacks=[snapshots]
    )
    rows = data.splits["validation"]
    held_out = sequences(rows, tokenizer, point.length, labelled=False)
    found = []
    for weights in snapshots.weights:
        plain.load_state_dict(weights)
        found.append(score(data.task, "validation", rows, trainer.predict(held_out).predictions[:, 0].tolist()))
    pearson = [scores["pearson"] for scores in found]
    assert pearson.index(max(pearson)) < 3, "the last epoch must not be the best, or nothing is shown"
    assert result.epoch == pearson.index(max(pearson)) + 1
    assert result.scores["validation"] == found[pearson.index(max(pearson))]
