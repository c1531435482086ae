"""Running one stage: a method on a corpus, from a student to the same student, trained."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors.torch import load_file, save_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, set_seed

from limbeck.corpus import Corpus, LabelKind, LabelledCorpus, PadCollator
from limbeck.errors import Interrupted, TrainingError
from limbeck.methods.composition import Term
from limbeck.models.families import base_model, family_of
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.checkpoints import is_last, newest_checkpoint, remove_checkpoints
from limbeck.training.interrupt import InterruptSaver
from limbeck.training.module import DistillationModule
from limbeck.training.progress import ProgressReporter
from limbeck.training.rows import held_out_rows, training_rows
from limbeck.training.sampling import grouped_padding_share
from limbeck.training.trainer import WEIGHTS, DistillationTrainer
from limbeck.training.untrained import freeze_unreached, untrained_names

DONE = "stage.json"
_PROBE_ROWS = 2


@dataclass(frozen=True)
class StagePlan:
    """Everything that decides what a stage does.

    Args:
        title: The stage's name.
        method: Name of its method.
        terms: What is distilled.
        training: Its training arguments, as the recipe gives them.
        freeze_embeddings: Keep the student's embeddings as they are.
        replace_tokens: Share of tokens replaced by random words.
        mask_tokens: Share of tokens masked, anew every epoch.
        labels: What the rows' labels are, as `PadCollator` names it; "token" for masked tokens.
        pooling: How `pooled` streams are made.
        seed: Seed of its data order and dropout.
        folder: Where its checkpoints and results go.
    """

    title: str
    method: str
    terms: Sequence[Term]
    training: dict[str, Any]
    freeze_embeddings: bool
    replace_tokens: float
    mask_tokens: float
    labels: LabelKind
    pooling: str
    seed: int
    folder: Path


def run_stage(
    plan: StagePlan,
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus | LabelledCorpus,
    console: Console,
) -> dict[str, Any]:
    """Train the student for one stage, continuing from the newest checkpoint in its folder if there is one.

    Args:
        plan: What to do.
        student: Trained in place; its taps are off again at the end.
        teacher: Frozen, and cut at the deepest layer that the stage reads.
        tokenizer: For the padding token and side.
        corpus: Blocks to train on and held-out ones.
        console: Where progress goes.

    Returns:
        The stage's part of the run record. It is also written to the stage's folder, last of all.

    Raises:
        Interrupted: after Ctrl-C, with the state saved.
        TrainingError: if a term is not finite.
    """
    held_out = held_out_rows(corpus, tokenizer, mask_tokens=plan.mask_tokens, seed=plan.seed)
    arguments = build_arguments(plan.training, output=str(plan.folder), seed=plan.seed, evaluates=len(held_out) > 0)
    set_seed(plan.seed)
    student.requires_grad_(True)
    if plan.freeze_embeddings:
        for path in family_of(student.config).embeddings:
            base_model(student).get_submodule(path).requires_grad_(False)
    frozen = untrained_names(student)
    module = DistillationModule(student, teacher, plan.terms, pooling=plan.pooling)
    rows = training_rows(
        corpus, tokenizer, replace_tokens=plan.replace_tokens, mask_tokens=plan.mask_tokens, seed=plan.seed
    )
    collator = PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side, labels=plan.labels)
    probe = collator([rows[index] for index in range(min(_PROBE_ROWS, len(rows)))])
    untrained = [name for name in freeze_unreached(module, probe) if name not in frozen]
    progress, interrupt = ProgressReporter(plan.title, console), InterruptSaver()
    trainer = DistillationTrainer(
        module,
        args=arguments,
        train_dataset=rows,
        eval_dataset=held_out if len(held_out) else None,
        data_collator=collator,
        callbacks=[progress, interrupt],
    )
    trainer.remove_callback(PrinterCallback)  # Progress is reported above.
    checkpoint = newest_checkpoint(plan.folder)
    started = time.monotonic()
    try:
        if checkpoint is not None and is_last(checkpoint):
            trainer.take_up(checkpoint)  # The loop itself would take one step more.
        else:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        held_out_metrics = trainer.evaluate() if len(held_out) and not interrupt.interrupted else {}
        if interrupt.interrupted:
            raise Interrupted(
                f"Stopped at step {trainer.state.global_step} of stage '{plan.title}'; the state is saved. "
                f"Continue with: limbeck distill --resume --output {plan.folder.parents[1]}"
            )
    finally:
        progress.close()
        interrupt.close()
        module.close()
    if trainer.state.global_step == 0:
        raise TrainingError(
            f"Stage '{plan.title}' trained no step: {len(corpus.train)} blocks make no batch of "
            f"{arguments.train_batch_size}; lower per_device_train_batch_size or leave out dataloader_drop_last."
        )
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    last = history[-1] if history else {}
    record = {
        "name": plan.title,
        "method": plan.method,
        "steps": trainer.state.global_step,
        "tokens": int(trainer.tokens_seen),
        "seconds": round(time.monotonic() - started, 1),
        "tokens_per_second": round(trainer.tokens_this_run / max(time.monotonic() - started, 1e-9), 1),
        "padding_share": round(grouped_padding_share(corpus.train["length"][:20_000], arguments.train_batch_size), 4),
        "precision": "bfloat16" if arguments.bf16 else "float16" if arguments.fp16 else "float32",
        "device": str(arguments.device),
        "final_terms": {k.removeprefix("loss_"): v for k, v in last.items() if k.startswith("loss_")},
        "held_out": {
            name: held_out_metrics[f"eval_{name}"]
            for name in ("loss", *(term.name for term in plan.terms))
            if f"eval_{name}" in held_out_metrics
        },
        "untrained": untrained,
        "frozen": frozen,
    }
    _finish(plan.folder, module, trainer.state.log_history, record)
    return record


def _finish(folder: Path, module: DistillationModule, history: list[dict[str, Any]], record: dict[str, Any]) -> None:
    """Write what the stage leaves, `stage.json` after all else: its presence means that the stage is done.

    The checkpoints are of no use from then on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in history)
    save_model(module, str(folder / WEIGHTS), metadata={"format": "pt"})
    partial = folder / (DONE + ".partial")
    partial.write_text(json.dumps(record, indent=2), encoding="utf-8")
    partial.replace(folder / DONE)
    remove_checkpoints(folder)


def load_finished(folder: Path, student: PreTrainedModel) -> dict[str, Any] | None:
    """Take up a stage that an earlier run finished.

    Args:
        folder: The stage's folder.
        student: Gets the weights that the stage left.

    Returns:
        The stage's record, or None if it is not finished.
    """
    if not (folder / DONE).is_file():
        return None
    weights = load_file(str(folder / WEIGHTS))
    prefix = "student."
    own = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    missing, unexpected = student.load_state_dict(own, strict=False)
    # Tied weights are stored once; anything else that is missing would be a damaged file.
    tied = set(getattr(student, "all_tied_weights_keys", {}) or {})
    if unexpected or set(missing) - tied:
        return None
    record: dict[str, Any] = json.loads((folder / DONE).read_text(encoding="utf-8"))
    return record
