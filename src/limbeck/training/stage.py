"""Running one stage: a method on a corpus, from a student to the same student, trained."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback, set_seed

from limbeck.core.files import atomic_file, atomic_text, read_json, sync
from limbeck.core.machine import bf16_is_fast
from limbeck.core.ranks import on_main_rank, raised_on_all_ranks
from limbeck.corpus import Corpus, LabelKind, LabelledCorpus, PadCollator
from limbeck.errors import RecipeError, TrainingError
from limbeck.methods.composition import Term
from limbeck.models.families import base_model, family_of
from limbeck.recipe.plan import StageChoice
from limbeck.recipe.schema import GuardSpec
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.checkpoints import (
    Warn,
    file_damage,
    file_facts,
    is_last,
    is_sharded,
    newest_checkpoint,
    precision,
    remove_checkpoints,
    remove_leftovers,
    save_weights,
    saving,
    training_facts,
    warn_of_differences,
    whole_weights,
)
from limbeck.training.data import grouped_padding_share, held_out_rows, training_rows
from limbeck.training.interrupt import InterruptSaver
from limbeck.training.module import DistillationModule, freeze_unreached, untrained_names
from limbeck.training.progress import ProgressReporter
from limbeck.training.record import LOG, LastStepLog, LiveLog, log_lines
from limbeck.training.teacher import TeacherReader
from limbeck.training.trainer import WEIGHTS, DistillationTrainer

# What a stage trains and reads, made from its plan: the same for one student and for many side by side.


_PROBE_ROWS = 2


@dataclass(frozen=True)
class StageRows:
    """The rows of a stage.

    Args:
        train: Rows to train on, replaced and masked as the stage says.
        held_out: Held-out rows; may be empty.
        collator: Makes batches of them.
    """

    train: Any
    held_out: Any
    collator: PadCollator

    def probe(self) -> dict[str, Tensor]:
        """Return a batch of a few rows, to see which parameters a gradient reaches."""
        return self.collator([self.train[index] for index in range(min(_PROBE_ROWS, len(self.train)))])


def stage_rows(
    corpus: Corpus | LabelledCorpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    replace_tokens: float,
    mask_tokens: float,
    labels: LabelKind,
    seed: int,
) -> StageRows:
    """Make the rows of a stage.

    Args:
        corpus: Blocks or rows to train on and held-out ones.
        tokenizer: For the padding token and side.
        replace_tokens: Share of tokens replaced by random words.
        mask_tokens: Share of tokens masked, anew every epoch.
        labels: What the rows' labels are, as `PadCollator` names it.
        seed: Decides what is replaced and masked.
    """
    return StageRows(
        train=training_rows(corpus, tokenizer, replace_tokens=replace_tokens, mask_tokens=mask_tokens, seed=seed),
        held_out=held_out_rows(corpus, tokenizer, mask_tokens=mask_tokens, seed=seed),
        collator=PadCollator(tokenizer.pad_token_id, side=tokenizer.padding_side, labels=labels),
    )


def prepare_student(student: PreTrainedModel, *, freeze_embeddings: bool) -> None:
    """Let all of a student be trained, but for its embeddings where the stage freezes them."""
    student.requires_grad_(True)
    if freeze_embeddings:
        for path in family_of(student.config).embeddings:
            base_model(student).get_submodule(path).requires_grad_(False)


def teacher_dtype(choice: StageChoice) -> str:
    """Return the number format that a stage's teacher runs in: what the recipe says, else that of the training."""
    asked = choice.teacher.spec.dtype
    if asked != "auto":
        return asked
    training = choice.spec.training
    return "bfloat16" if training.get("bf16", bf16_is_fast() and not training.get("fp16")) else "float32"


# What a finished stage leaves in its folder, and how a later run takes it up.


DONE = "stage.json"


def write_finished(
    folder: Path,
    module: DistillationModule,
    whole: Mapping[str, Tensor] | None,
    history: list[dict[str, Any]],
    record: dict[str, Any],
) -> None:
    """Write what a stage leaves, `stage.json` after all else: its presence means that the stage is done.

    The checkpoints are of no use from then on.

    Args:
        folder: The stage's folder.
        module: What was trained.
        whole: Its weights, if it is sharded.
        history: What was logged.
        record: The stage's part of the run record.
    """
    with saving(f"What stage '{record['name']}' leaves", folder):
        folder.mkdir(parents=True, exist_ok=True)
        atomic_text(folder / LOG, log_lines(history))
        with atomic_file(folder / WEIGHTS) as weights:
            save_weights(module, weights, whole)
        record["weights"] = file_facts(folder / WEIGHTS)
        atomic_text(folder / DONE, json.dumps(record, indent=2))
        sync(folder)
        remove_checkpoints(folder)


def load_finished(folder: Path, student: PreTrainedModel, warn: Warn) -> dict[str, Any] | None:
    """Take up a stage that an earlier run finished.

    Args:
        folder: The stage's folder.
        student: Gets the weights that the stage left.
        warn: Told if they are damaged.

    Returns:
        The stage's record, or None if it is not finished, or has to be trained again.
    """
    record = on_main_rank(lambda: _finished_record(folder, warn))
    if record is None:
        return None
    return record if take_weights(student, load_file(str(folder / WEIGHTS))) else None


def take_weights(student: PreTrainedModel, weights: Mapping[str, Tensor]) -> bool:
    """Give a student its part of a stage's weights, and return whether they were all there."""
    prefix = "student."
    own = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    missing, unexpected = student.load_state_dict(own, strict=False)
    # Tied weights are stored once; anything else that is missing belongs to another student.
    tied = set(getattr(student, "all_tied_weights_keys", {}) or {})
    return not unexpected and not set(missing) - tied


def _finished_record(folder: Path, warn: Warn) -> dict[str, Any] | None:
    if not (folder / DONE).is_file():
        return None
    record = read_json(folder / DONE)
    damage = file_damage(folder / WEIGHTS, record.get("weights"))
    if damage is not None:
        warn(f"Stage '{folder.name}' was finished but is damaged, and is trained again: {damage}.")
        (folder / DONE).unlink()
        return None
    remove_checkpoints(folder)  # If the run was killed while it did this.
    return record


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
        guard: What it does about bad losses and missing memory.
        shards_teacher: Shard the teacher over the processes.
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
    guard: GuardSpec
    shards_teacher: bool = False


def run_stage(
    plan: StagePlan,
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus | LabelledCorpus,
    console: Console,
    *callbacks: TrainerCallback,
) -> dict[str, Any]:
    """Train the student for one stage, continuing from the newest checkpoint in its folder if there is one.

    Args:
        plan: What to do.
        student: Trained in place; its taps are off again at the end.
        teacher: Frozen, and cut at the deepest layer that the stage reads.
        tokenizer: For the padding token and side.
        corpus: Blocks to train on and held-out ones.
        console: Where progress goes.
        *callbacks: More to tell about it.

    Returns:
        The stage's part of the run record. It is also written to the stage's folder, last of all.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, with the state saved.
        TrainingError: if the policies stop it, or a checkpoint cannot be written.
        OutputError: if its checkpoint cannot be taken up.
    """
    rows = stage_rows(
        corpus,
        tokenizer,
        replace_tokens=plan.replace_tokens,
        mask_tokens=plan.mask_tokens,
        labels=plan.labels,
        seed=plan.seed,
    )
    measures = len(rows.held_out) > 0
    arguments = build_arguments(plan.training, output=str(plan.folder), seed=plan.seed, evaluates=measures)
    if plan.guard.on_out_of_memory == "split" and arguments.world_size > 1:
        raise RecipeError("guard.on_out_of_memory: split works in one process; leave it out with several.")
    checkpoint = on_main_rank(lambda: _newest_checkpoint(plan.folder, partial(warn, console)))
    set_seed(plan.seed)
    prepare_student(student, freeze_embeddings=plan.freeze_embeddings)
    frozen = untrained_names(student)
    # Sharding changes a model for good; the student itself has to be an ordinary one again afterwards.
    learner = copy.deepcopy(student) if arguments.fsdp else student
    reader = TeacherReader(teacher, plan.terms, pooling=plan.pooling, sharded=plan.shards_teacher)
    module = DistillationModule(learner, reader, plan.terms, pooling=plan.pooling)
    untrained = [name for name in freeze_unreached(module, rows.probe()) if name not in frozen]
    progress, interrupt = ProgressReporter(plan.title, console), InterruptSaver()
    trainer = DistillationTrainer(
        module,
        policy=plan.guard,
        warn=partial(warn, console),
        args=arguments,
        train_dataset=rows.train,
        eval_dataset=rows.held_out if measures else None,
        data_collator=rows.collator,
        interrupt=interrupt,
        callbacks=[LastStepLog(), progress, LiveLog(plan.folder), *callbacks],
    )
    trainer.remove_callback(PrinterCallback)  # Progress is reported above.
    _check_engine(trainer)
    if arguments.world_size > 1:
        console.print(
            f"  {arguments.world_size} processes, {trainer.rows_a_step} rows a step", style="dim", highlight=False
        )
    started = time.monotonic()
    try:
        if checkpoint is not None:
            warn_of_differences(checkpoint, training_facts(arguments), partial(warn, console))
        if checkpoint is not None and is_last(checkpoint):
            trainer.take_up(checkpoint)  # The loop itself would take one step more.
        else:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if interrupt.agree() and trainer.state.global_step < trainer.state.max_steps:
            raise raised_on_all_ranks(
                interrupt.error(
                    f"Stopped at step {trainer.state.global_step} of stage '{plan.title}'; the state is saved. "
                    f"Continue with: limbeck distill --resume --output {plan.folder.parents[1]}"
                )
            )
        held_out_metrics = trainer.evaluate() if measures else {}
    except RuntimeError as error:
        # A signal to the whole process group ends the workers of the data loader before the step.
        if not interrupt.interrupted or "DataLoader worker" not in str(error):
            raise
        raise interrupt.error(
            f"Stopped at step {trainer.state.global_step} of stage '{plan.title}'; the state of its last checkpoint is "
            f"kept. Continue with: limbeck distill --resume --output {plan.folder.parents[1]}"
        ) from None
    finally:
        progress.close()
        interrupt.close()
        module.close()
    if trainer.state.global_step == 0:
        raise raised_on_all_ranks(
            TrainingError(
                f"Stage '{plan.title}' trained no step: {len(corpus.train)} blocks make no batch of "
                f"{arguments.train_batch_size * arguments.world_size}; lower per_device_train_batch_size or leave out "
                "dataloader_drop_last."
            )
        )
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    last = history[-1] if history else {}
    record = {
        "name": plan.title,
        "method": plan.method,
        "steps": trainer.state.global_step,
        "rows_a_step": trainer.rows_a_step,
        "tokens": int(trainer.tokens_seen),
        "seconds": round(time.monotonic() - started, 1),
        "tokens_per_second": round(trainer.tokens_this_run / max(time.monotonic() - started, 1e-9), 1),
        "drawn": trainer.describe_drawn(corpus),
        "padding_share": round(grouped_padding_share(corpus.train["length"][:20_000], arguments.train_batch_size), 4),
        "precision": precision(arguments),
        "device": str(arguments.device),
        "skipped_steps": trainer.guard.skipped,
        "rows_of_a_piece": trainer.splitter.rows,
        "final_loss": last.get("loss"),
        "final_terms": {k.removeprefix("loss_"): v for k, v in last.items() if k.startswith("loss_")},
        "held_out": {
            name: held_out_metrics[f"eval_{name}"]
            for name in ("loss", *(term.name for term in plan.terms))
            if f"eval_{name}" in held_out_metrics
        },
        "untrained": untrained,
        "frozen": frozen,
    }
    whole = whole_weights(module) if is_sharded(module) else None
    on_main_rank(lambda: write_finished(plan.folder, module, whole, trainer.state.log_history, record))
    if whole is not None:
        take_weights(student, whole)
    if interrupt.agree():
        raise raised_on_all_ranks(
            interrupt.error(
                f"Stopped after stage '{plan.title}', which is finished. Continue with: limbeck distill --resume "
                f"--output {plan.folder.parents[1]}"
            )
        )
    return record


def _check_engine(trainer: DistillationTrainer) -> None:
    """Refuse to shard otherwise than the recipe says: by what a launcher was configured for, or not at all."""
    if trainer.args.fsdp and not trainer.is_fsdp_enabled:
        raise raised_on_all_ranks(
            RecipeError("training.fsdp shards over several GPUs, and this run has none or one process; leave it out.")
        )
    if trainer.is_deepspeed_enabled or (trainer.is_fsdp_enabled and not trainer.args.fsdp):
        raise raised_on_all_ranks(
            RecipeError(
                "The launcher is configured for FSDP or DeepSpeed; launch plain processes, and say training.fsdp: true "
                "in the stage to shard the student."
            )
        )


def _newest_checkpoint(folder: Path, warn: Warn) -> Path | None:
    """Clear away what killed writes left, and find where to go on."""
    remove_leftovers(folder)
    return newest_checkpoint(folder, warn)


def warn(console: Console, line: str) -> None:
    """Print a line that matters."""
    console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
