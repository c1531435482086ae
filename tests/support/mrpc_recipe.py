"""A recipe that distils a tiny classifier on MRPC, with development rows."""

from tokenizers import Tokenizer

from limbeck.evaluation.tasks.registry import TASKS
from tests.support.models import make_teacher
from tests.support.recipes import TRAINING
from tests.support.task_files import write_tasks

STEPS = {"max_steps": 7, "per_device_train_batch_size": 4, "eval_steps": 3, "num_train_epochs": 9}


def mrpc_recipe(folder):
    """The recipe, four steps an epoch, with its teacher and its rows in a folder."""
    names = dict(enumerate(reversed(TASKS["mrpc"].labels)))
    teacher = make_teacher(folder, "bert", seed=3, head="classification", id2label=names, label2id={})
    tokenizer = Tokenizer.from_file(str(teacher / "tokenizer.json"))
    tokenizer.enable_padding(length=64)  # As all-MiniLM's files do.
    tokenizer.save(str(teacher / "tokenizer.json"))
    return {
        "name": "tiny",
        "output": str(folder / "run"),
        "teacher": {"model": str(teacher)},
        "student": {"shape": {"layers": 2, "hidden": 24, "heads": 4, "ffn": 48}, "dropout": 0.1},
        "corpus": {"task": "mrpc", "data": str(write_tasks(folder / "data")), "length": 32},
        "stages": [{"method": {"name": "output_distribution"}, "training": TRAINING | STEPS}],
        "evaluation": {"quality": False, "speed": False},
    }
