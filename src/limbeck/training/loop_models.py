"""The student and the teacher of a loop of your own: names and objects of several libraries, in one form.

A model may be a name, a model of `transformers`, a `SentenceTransformer`, or a module of your own whose blocks are
named (`limbeck.models.named_modules`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.errors import ModelError
from limbeck.methods.teaching import Teaching
from limbeck.models.families import Shape, base_model, shape_of
from limbeck.models.heads import Head, check_has_head, model_class
from limbeck.models.loading import load_config, load_model
from limbeck.models.named_modules import NamedModules
from limbeck.models.sentence_reader import check_pooling_named, sentence_pooling
from limbeck.models.sentences import SentencePooling
from limbeck.models.teaching_facts import TeachingFacts, facts_of_shape
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vocabularies import vocabulary_difference

_PADDED_TO = 128
"""Vocabularies are padded to multiples of up to so many tokens, so two sizes may be of one vocabulary."""


def _no_tokenizer() -> PreTrainedTokenizerBase | None:
    """Return no tokenizer, for a model that is known without one."""
    return None


@dataclass(frozen=True)
class LoopModel:
    """A student or a teacher, before it is known which head its terms read.

    Args:
        title: Its name in messages.
        facts: What methods read of it.
        load: Returns the model with a head or without.
        sentence: How it makes sentence vectors; None where it does not say.
        module: The object of the user's through which other code may run it; None for a model that is loaded here.
        readable: Names of the streams that can be read; None for all.
        teaching: The source of what is taught, where that is no model.
        tokenizer: Returns its tokenizer; None where none is known.
    """

    title: str
    facts: TeachingFacts
    load: Callable[[Head | None], PreTrainedModel]
    sentence: SentencePooling | None = None
    module: nn.Module | None = None
    readable: tuple[str, ...] | None = None
    teaching: Teaching | None = None
    tokenizer: Callable[[], PreTrainedTokenizerBase | None] = _no_tokenizer

    @property
    def shape(self) -> Shape:
        """Its numbers."""
        return self.facts.model_shape


def find_teacher(teacher: Any, streams: Mapping[str, str] | None) -> LoopModel:
    """Find out what is known of a teacher: a model, see `find_model`, or a `Teaching`."""
    if not isinstance(teacher, Teaching):
        return find_model(teacher, "teacher", streams)

    def load(head: Head | None) -> PreTrainedModel:
        raise ModelError(f"{teacher.facts.title} is no model.")

    return LoopModel(teacher.facts.title, teacher.facts, load, teaching=teacher)


def find_model(model: Any, owner: Literal["student", "teacher"], streams: Mapping[str, str] | None) -> LoopModel:
    """Find out what is known of a model without loading it.

    Args:
        model: A folder, `package:NAME` or Hub name; a model of transformers; a `SentenceTransformer`; or any module.
        owner: Its part in the distillation.
        streams: For any other module, the paths of its parts by stream, see `NamedModules`.

    Raises:
        ModelError: one line, for a model that cannot be read.
    """
    title = f"the {owner}"
    if isinstance(model, str | Path):
        return _named_model(str(model))
    if _is_sentence_transformer(model):
        transformer = model.transformers_model
        if not isinstance(transformer, PreTrainedModel):
            raise ModelError(
                f"{title} is a SentenceTransformer without a Transformer module; give a model that has one."
            )
        loop_model = _transformers_model(transformer, title, _sentence_of(model, title))
        return replace(loop_model, tokenizer=lambda: cast(PreTrainedTokenizerBase, model.tokenizer))
    if isinstance(model, PreTrainedModel):
        return _transformers_model(model, title, sentence=None)
    if isinstance(model, nn.Module):
        return _own_model(model, title, streams)
    raise ModelError(
        f"{title} is of the class {type(model).__name__}; give a folder, package:NAME, a Hub name, or a "
        "model of transformers, sentence-transformers or torch.nn."
    )


def check_streams_are_used(streams: Mapping[str, str] | None, models: Sequence[LoopModel]) -> None:
    """Refuse named modules where all models are read without names.

    Raises:
        ModelError: one line.
    """
    if streams is not None and all(model.readable is None for model in models):
        raise ModelError(
            "'streams' names modules of a model that is not from transformers, but all given models are from "
            "transformers; leave 'streams' out."
        )


def reading_difference(student: LoopModel, teacher: LoopModel) -> str:
    """Return the first difference of the tokens that two models read, as a sentence without its period.

    It is empty where they read the same tokens, or where nothing is known of a tokenizer and the sizes of the
    vocabularies agree.
    """
    student_tokenizer = student.tokenizer()
    teacher_tokenizer = teacher.tokenizer()
    if student_tokenizer is not None and teacher_tokenizer is not None:
        return vocabulary_difference(student_tokenizer, teacher_tokenizer)
    # A teaching that is no model, such as stored outputs, has no vocabulary to compare.
    if teacher.teaching is not None:
        return ""
    # Without both tokenizers only the sizes are left to compare. Models may pad the rows of one vocabulary.
    student_size = student.shape.vocabulary
    teacher_size = teacher.shape.vocabulary
    if math.ceil(student_size / _PADDED_TO) != math.ceil(teacher_size / _PADDED_TO):
        return f"The student has a vocabulary of {student_size:,} tokens, and the teacher one of {teacher_size:,}"
    return ""


def entry(model: PreTrainedModel) -> nn.Module:
    """Return the module through which all runs of a model go."""
    if isinstance(model, NamedModules):
        return model.module
    return base_model(model)


def _named_model(name: str) -> LoopModel:
    """Describe a model that is loaded by its name."""
    config = load_config(name)

    # Without a description of its pooling the mean is assumed, unless the model's folder was copied in part.
    sentence = sentence_pooling(name)
    if sentence is None:
        check_pooling_named(name)

    def load(head: Head | None) -> PreTrainedModel:
        if head is not None:
            check_has_head(name, config, head)
        return load_model(name, head=head)

    facts = facts_of_shape(shape_of(config), name)
    return LoopModel(name, facts, load, sentence=sentence, tokenizer=partial(_tokenizer_of, name))


def _tokenizer_of(name: str) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer in the folder of a model; None where the folder has none that can be read."""
    try:
        return load_tokenizer(name)
    except ModelError:
        return None


def _transformers_model(model: PreTrainedModel, title: str, sentence: SentencePooling | None) -> LoopModel:
    """Return a model of transformers that is there already."""
    load = partial(_with_head, model, title)
    facts = facts_of_shape(shape_of(model.config), title)
    # A model that was loaded from a folder of this machine keeps its name. A Hub name would need the network.
    tokenizer = _no_tokenizer
    if model.name_or_path and Path(model.name_or_path).is_dir():
        tokenizer = partial(_tokenizer_of, model.name_or_path)
    return LoopModel(title, facts, load, sentence, module=model, tokenizer=tokenizer)


def _own_model(model: nn.Module, title: str, streams: Mapping[str, str] | None) -> LoopModel:
    """Describe a module whose class is not from transformers, by the names of its blocks.

    Args:
        model: The module.
        title: Its name in messages.
        streams: The paths of its parts by stream, such as `encoder.layers.{i}` for `hidden`; None where they are not
            given, which is refused.
    """
    if streams is None:
        raise ModelError(
            f"{title} is of the class {type(model).__name__}, which is not from transformers: name its blocks, for "
            'example by streams={"hidden": "encoder.layers.{i}"}.'
        )
    named = NamedModules(model, streams, title)

    def load(head: Head | None) -> PreTrainedModel:
        # The head needs no loading: its scores are one of the named streams, which `NamedModules` has checked. A method
        # that reads scores which are not named was refused before, see `compose_for_loop`.
        return named

    facts = facts_of_shape(shape_of(named.config), title)
    return LoopModel(title, facts, load, module=model, readable=named.readable)


def _with_head(model: PreTrainedModel, title: str, head: Head | None) -> PreTrainedModel:
    """Return a model that is there already, or refuse it where it lacks a head; None asks for no head."""
    if head is not None:
        needed_class = model_class(model.config, head)
        if not isinstance(model, needed_class):
            raise ModelError(
                f"{title} is of the class {type(model).__name__}, but the method reads the scores of a "
                f"{needed_class.__name__}; load the model as {needed_class.__name__}, or choose a method on hidden "
                "states or relations."
            )
    return model


def _is_sentence_transformer(model: Any) -> bool:
    """Whether an object is a model of sentence-transformers, without importing that."""
    return any(cls.__module__.startswith("sentence_transformers.") for cls in type(model).__mro__)


def _sentence_of(model: Any, title: str) -> SentencePooling:
    """Return how a `SentenceTransformer` makes its vectors.

    Raises:
        ModelError: for modules that an object alone does not describe.
    """
    modules = list(model.children())
    names = [type(module).__name__ for module in modules]
    poolings = [module for module in modules if type(module).__name__ == "Pooling"]
    if names[1:] not in (["Pooling"], ["Pooling", "Normalize"]):
        raise ModelError(
            f"{title} is a SentenceTransformer of {', '.join(names)}, of which only a Transformer with Pooling and "
            "Normalize can be given as an object; give the folder or the name of the model in its place."
        )
    (pooling,) = poolings
    if not pooling.include_prompt:
        raise ModelError(
            f"{title} leaves prompts out of its pooling, which is not possible in a training loop of your own; use "
            "limbeck.distill."
        )
    mode = pooling.pooling_mode
    if not isinstance(mode, str):
        mode = "+".join(mode)
    return SentencePooling(
        mode,
        normalize=names[-1] == "Normalize",
        max_length=model.max_seq_length,
        truncate_dim=model.truncate_dim,
    )
