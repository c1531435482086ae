"""Running one stage: a method on a corpus, from a student to the same student, trained."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback, set_seed

from limbeck.core.ranks import from_main, same_everywhere
from limbeck.corpus import Corpus, LabelKind, LabelledCorpus
from limbeck.errors import RecipeError, TrainingError
from limbeck.methods.composition import Term
from limbeck.recipe.schema import GuardSpec
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.checkpoint_facts import precision, training_facts, warn_of_differences
from limbeck.training.checkpoints import Warn, is_last, newest_checkpoint, remove_leftovers
from limbeck.training.interrupt import InterruptSaver
from limbeck.training.live_log import LastStepLog, LiveLog
from limbeck.training.module import DistillationModule
from limbeck.training.progress import ProgressReporter
from limbeck.training.sampling import grouped_padding_share
from limbeck.training.saved_weights import is_sharded, whole_weights
from limbeck.training.stage_results import take_weights, write_finished
from limbeck.training.stage_setup import prepare_student, stage_rows
from limbeck.training.teacher_reader import TeacherReader
from limbeck.training.trainer import DistillationTrainer
from limbeck.training.untrained import freeze_unreached, untrained_names


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
    checkpoint = from_main(lambda: _newest_checkpoint(plan.folder, partial(warn, console)))
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
            raise same_everywhere(
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
        raise same_everywhere(
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
    from_main(lambda: write_finished(plan.folder, module, whole, trainer.state.log_history, record))
    if whole is not None:
        take_weights(student, whole)
    if interrupt.agree():
        raise same_everywhere(
            interrupt.error(
                f"Stopped after stage '{plan.title}', which is finished. Continue with: limbeck distill --resume "
                f"--output {plan.folder.parents[1]}"
            )
        )
    return record


def _check_engine(trainer: DistillationTrainer) -> None:
    """Refuse to shard otherwise than the recipe says: by what a launcher was configured for, or not at all."""
    if trainer.args.fsdp and not trainer.is_fsdp_enabled:
        raise same_everywhere(
            RecipeError("training.fsdp shards over several GPUs, and this run has none or one process; leave it out.")
        )
    if trainer.is_deepspeed_enabled or (trainer.is_fsdp_enabled and not trainer.args.fsdp):
        raise same_everywhere(
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
