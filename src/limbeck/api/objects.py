"""Objects in the place of names: models, texts and data sets are saved to files that a recipe can name.

Every call that takes names first replaces objects by names, with `Objects`. A recipe is then always a plain document, a
run can be resumed from its folder alone, and notes say which values were objects.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.api.classes import class_name, is_of
from limbeck.api.kept_files import KeptFiles
from limbeck.api.requests.values import as_list
from limbeck.errors import LimbeckError, RecipeError
from limbeck.models.locating import locate_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MOST_LOOKED_AT = 1000
"""Members at the beginning of a list that decide whether it holds texts or names."""
_ROWS_AT_ONCE = 10_000
"""Rows of a data set that are read at once."""
_DEVELOPMENT_SPLITS = ("validation", "dev", "development")
"""Names of splits with development rows; the first that a data set has is taken."""
TOKENIZER_MISSING = (
    "the model object has no tokenizer, and there is none at '{place}', where it was loaded from; give tokenizer=…, or "
    "(model, tokenizer) instead of the model."
)


class Objects:
    """The names of objects, which it saves in a folder, under names that follow from their content.

    Args:
        output: The folder of a run or evaluation, which gets a folder `inputs`; None is a folder of limbeck's cache.
        before: Called before something is saved; it may raise an error to protect the folder.
    """

    def __init__(self, output: str | Path | None = None, before: Callable[[], object] = lambda: None) -> None:
        self._files = KeptFiles(output, before)

    @property
    def notes(self) -> dict[str, str]:
        """A sentence for every object, by the key of the recipe whose value it is."""
        return self._files.notes

    def model(self, value: Any, place: str = "model", tokenizer: Any = None) -> str:
        """Return the name of a model; for an object, the folder in which it is saved.

        Args:
            value: A name or path, also the folder of a run or a fine-tuning, which stands for its model; or a model of
                transformers, alone or as (model, tokenizer), a pipeline, a `SentenceTransformer` or `CrossEncoder`; or
                a result of limbeck with a model.
            place: Key of the recipe, for messages.
            tokenizer: The tokenizer of a model object, or the name of a model with the same tokenizer.

        Raises:
            RecipeError: for anything else, and a model object without a tokenizer.
            ModelError: for the folder of a run that has no student yet.
        """
        if isinstance(value, str | Path):
            return locate_model(value)
        folder = _folder_of_result(value)
        if folder is not None:
            return str(folder)
        model, own_tokenizer = _model_and_tokenizer(value)
        if is_of(model, "transformers", "PreTrainedModel"):
            tokens = _tokenizer_of(model, own_tokenizer if tokenizer is None else tokenizer, place)

            def save(folder: Path) -> None:
                model.save_pretrained(folder)
                tokens.save_pretrained(folder)

        elif is_of(model, "sentence_transformers"):

            def save(folder: Path) -> None:
                model.save_pretrained(str(folder))

        else:
            raise RecipeError(
                f"{place}: {class_name(model)} is neither the name of a model nor a model of transformers or "
                "sentence-transformers; give a folder, package:NAME, a Hub name, or a model of these libraries."
            )
        return str(self._files.keep_model(class_name(model), save, place))

    def models(self, values: Any, place: str = "models") -> list[str]:
        """Return the names of several models, or of one alone; see `model`."""
        # The pair (model, tokenizer) is one model, any other tuple or list holds several.
        if isinstance(values, tuple) and len(values) == 2:
            _, tokenizer = values
            if hasattr(tokenizer, "save_pretrained"):
                return [self.model(values, place)]
        return [self.model(value, place) for value in as_list(values)]

    def teacher(self, value: Any, tokenizer: Any = None, corpus: Any = None) -> dict[str, Any]:
        """Return a recipe's teacher as a mapping; see `model`, and `table_of_targets` for what a teacher said.

        Args:
            value: The teacher.
            tokenizer: The tokenizer of a model object.
            corpus: The corpus that is given beside it; an array of vectors has a row for each of its texts.
        """
        named = self._teacher(value, "teacher", tokenizer, corpus)
        return {"model": named} if isinstance(named, str) else dict(named)

    def _teacher(self, value: Any, place: str, tokenizer: Any = None, corpus: Any = None) -> Any:
        """Return a recipe's teacher; one that is an object is named in model cards by its folder, without the path."""
        if value is None:
            return None
        if isinstance(value, str | Path):
            return str(value)
        from limbeck.api.target_objects import table_of_targets

        # A teacher may be given by its outputs in place of its model.
        targets = table_of_targets(value, _texts_of(corpus), place)
        if targets is not None:
            return {"targets": self._files.keep_table(targets.tables, f"{place}.targets"), **targets.keys}
        teacher = dict(value) if isinstance(value, Mapping) else {"model": value}
        model = teacher.get("model")
        # A mapping may name its model, or have none, as that of stored outputs.
        if model is None or isinstance(model, str | Path):
            return teacher
        folder = self.model(model, f"{place}.model", tokenizer)
        # A name that the mapping gives takes precedence over that of the folder.
        return {"name": Path(folder).name, **teacher, "model": folder}

    def student(self, value: Any, place: str = "student", tokenizer: Any = None) -> Any:
        """Return a recipe's student.

        A model object, or the path of a model, is a student of the model's shape that starts from its weights. A text
        is a shape, such as "6x384", unless it is the path of a folder or `package:NAME`.
        """
        if value is None or isinstance(value, int):
            return value
        if isinstance(value, str) and not _names_model(value):
            return value
        if isinstance(value, Mapping):
            return self._with_named_checkpoint(value, place, tokenizer)
        from limbeck.models.families import shape_of
        from limbeck.models.loading import load_config

        name = self.model(value, place, tokenizer)
        shape = shape_of(load_config(name))
        # The sizes of a recipe's shape; the width of the embeddings is that of the layers unless it says otherwise.
        sizes = {key: getattr(shape, key) for key in ("layers", "hidden", "heads", "ffn")}
        if shape.embedding != shape.hidden:
            sizes["embedding"] = shape.embedding
        return {"shape": sizes, "initialise": {"checkpoint": name}}

    def _with_named_checkpoint(self, student: Mapping[str, Any], place: str, tokenizer: Any) -> Mapping[str, Any]:
        """Return a recipe's student, with a name in place of a model object in `initialise.checkpoint`."""
        start = student.get("initialise")
        if not isinstance(start, Mapping):
            return student
        checkpoint = start.get("checkpoint")
        if checkpoint is None or isinstance(checkpoint, str | Path):
            return student
        name = self.model(checkpoint, f"{place}.initialise.checkpoint", tokenizer)
        return {**student, "initialise": {**start, "checkpoint": name}}

    def corpus(self, value: Any, place: str = "corpus") -> dict[str, Any]:
        """Return a recipe's corpus: sources, and the development rows of a data set of several splits.

        Args:
            value: A source or several; texts, rows as mappings, a data set, a table of pandas, or an iterable of texts
                or rows; or a corpus as recipes have it, with any of these in it.
            place: Key of the recipe, for messages.

        Raises:
            RecipeError: for anything else, texts that are none, and rows that cannot be written.
        """
        if _is_splits(value):
            return self._splits(value, place)
        if not isinstance(value, Mapping):
            return {"sources": self.sources(value, f"{place}.sources")}
        corpus = dict(value)
        if "sources" in value:
            sources = value["sources"]
            if _is_splits(sources):
                corpus |= self._splits(sources, place)
            else:
                corpus["sources"] = self.sources(sources, f"{place}.sources")
        # Development rows that are given take precedence over those of a data set above.
        if "development" in value:
            corpus["development"] = self.sources(value["development"], f"{place}.development")
        return corpus

    def _splits(self, value: Mapping[Any, Any], place: str) -> dict[str, Any]:
        """Return the corpus of a data set with several splits: "train" as sources, validation rows as development."""
        splits = {str(name): split for name, split in value.items()}
        if "train" not in splits:
            raise RecipeError(
                f"{place}: the data set has the splits {', '.join(splits)}, but no 'train'; give one of its splits."
            )
        corpus = {"sources": self.sources(splits["train"], f"{place}.sources")}
        for name in _DEVELOPMENT_SPLITS:
            if name in splits:
                corpus["development"] = self.sources(splits[name], f"{place}.development")
                break
        return corpus

    def sources(self, value: Any, place: str = "corpus.sources") -> list[Any]:
        """Return the sources that a value names, or the files in which its texts or rows are saved.

        The cases, in their order: a name; a mapping that describes a source; a data set; a table of pandas or Arrow; a
        list of pairs of texts, which become rows with the columns `sentence1` and `sentence2`; a list of sources; texts
        or rows, in a list or any other iterable.
        """
        if isinstance(value, str | Path):
            return [str(value)]
        if isinstance(value, Mapping):
            return [self._described_source(value, place)]
        if _is_data_set(value):
            columns = list(value.column_names)
            # The one column of a data set of texts may have any name, but sources of text have the column "text".
            if len(columns) == 1 and columns[0] != "text":
                return [self._files.keep_lines(value[columns[0]], place)]
            return [self._files.keep_table(value.with_format("arrow").iter(_ROWS_AT_ONCE), place)]
        # A stream of rows is kept as a table only where its columns have names of classes, which lines would lose.
        if _names_its_classes(value):
            return [self._files.keep_table(value.with_format("arrow").iter(_ROWS_AT_ONCE), place)]
        if is_of(value, "pandas") and hasattr(value, "columns"):
            from pyarrow import Table

            return [self._files.keep_table([Table.from_pandas(value, preserve_index=False)], place)]
        if is_of(value, "pyarrow", "Table"):
            return [self._files.keep_table([value], place)]
        if isinstance(value, Sequence) and _are_pairs(value):
            rows = ({"sentence1": first, "sentence2": second} for first, second in value)
            return [self._files.keep_lines(rows, place)]
        if isinstance(value, Sequence) and not _are_contents(value):
            sources_of_members = []
            for member in value:
                sources_of_members += self.sources(member, place)
            return sources_of_members
        # Texts or rows. Bytes can be iterated over too, but are neither.
        if isinstance(value, Iterable) and not isinstance(value, bytes):
            return [self._files.keep_lines(value, place)]
        raise RecipeError(
            f"{place}: {class_name(value)} is not text; give files, folders, a list of texts or a data set."
        )

    def _described_source(self, value: Mapping[str, Any], place: str) -> dict[str, Any]:
        """Return a source that a mapping describes, such as `{source: …, role: query}`, or parallel text as it is."""
        if isinstance(value.get("parallel"), Mapping):
            return dict(value)
        sources = self.sources(value["source"], place) if "source" in value else []
        if len(sources) != 1:
            raise RecipeError(f"{place}: a mapping must describe exactly one source: give {{source: …, role: …}}.")
        return {**value, "source": sources[0]}

    def document(self, data: Mapping[str, Any], place: str = "") -> dict[str, Any]:
        """Return a recipe, a stage or the plan of a comparison with names in the place of its objects.

        Args:
            data: The document.
            place: Where it stands in the recipe, with a period behind it: `stages.0.`; empty for a whole recipe.
        """
        document = dict(data)
        # Only these keys may hold objects. A value of a type that they do not take stays, and the check of the recipe
        # refuses it.
        for key, value in data.items():
            path = f"{place}{key}"
            if key == "teacher":
                document[key] = self._teacher(value, path, corpus=data.get("corpus"))
            elif key == "student":
                document[key] = self.student(value, path)
            elif key == "students" and isinstance(value, list | tuple):
                document[key] = [self.student(student, f"{path}.{index}") for index, student in enumerate(value)]
            elif key == "corpus" and value is not None:
                document[key] = self.corpus(value, path)
            elif key == "stages" and isinstance(value, list | tuple):
                document[key] = [self._stage(stage, f"{path}.{index}.") for index, stage in enumerate(value)]
        return document

    def _stage(self, stage: Any, place: str) -> Any:
        """Return a stage with names; what is no mapping is left to the check of the recipe."""
        return self.document(stage, place) if isinstance(stage, Mapping) else stage


def _texts_of(corpus: Any) -> list[str] | None:
    """Return the texts that a corpus is given by as objects; None where it is given by the names of its sources."""
    sources = corpus
    if isinstance(corpus, Mapping):
        sources = corpus.get("sources")
    # Texts come in anything that has items: a column of pandas or `datasets` is no `Sequence`.
    has_items = hasattr(sources, "__getitem__")
    if not has_items or isinstance(sources, str | Path | Mapping):
        return None
    texts = list(sources)
    if all(isinstance(text, str) for text in texts) and _are_contents(texts):
        return texts
    return None


def _names_model(text: str) -> bool:
    """Return whether a text names a model: a folder that exists, also with `~`, or `package:NAME`."""
    return text.startswith("package:") or os.path.isdir(os.path.expanduser(text))  # noqa: PTH111, PTH112 - any text


def _folder_of_result(value: Any) -> Path | None:
    """Return the folder of the model in a result of `distill` or `finetune`; None for anything else."""
    if not is_of(value, "limbeck"):
        return None
    for name in ("student", "model"):
        folder = getattr(value, name, None)
        if isinstance(folder, Path):
            return folder
    return None


def _model_and_tokenizer(value: Any) -> tuple[Any, Any]:
    """Return a model and its tokenizer; None where an object has no tokenizer of its own."""
    if isinstance(value, tuple | list) and len(value) == 2:
        model, tokenizer = value
        return model, tokenizer
    is_pipeline = is_of(value, "transformers") and hasattr(value, "model") and hasattr(value, "tokenizer")
    if is_pipeline:
        return value.model, value.tokenizer
    return value, None


def _tokenizer_of(model: "PreTrainedModel", tokenizer: Any, place: str) -> Any:
    """Return the tokenizer of a model: the given one, that of the named model, or that of the model's own origin."""
    if hasattr(tokenizer, "save_pretrained"):
        return tokenizer
    from limbeck.models.tokenizers import load_tokenizer

    origin = tokenizer if isinstance(tokenizer, str | Path) else model.name_or_path
    try:
        return load_tokenizer(str(origin))
    except LimbeckError as error:
        raise RecipeError(f"{place}: {TOKENIZER_MISSING.format(place=origin)}") from error


def _is_splits(value: Any) -> bool:
    """Whether a value is a data set of several splits, by their names."""
    return isinstance(value, Mapping) and is_of(value, "datasets")


def _is_data_set(value: Any) -> bool:
    """Whether a value is a data set, or one split of one, of the library `datasets`."""
    return hasattr(value, "column_names") and hasattr(value, "with_format") and hasattr(value, "num_rows")


def _are_pairs(values: Sequence[Any]) -> bool:
    """Whether the members of a list are pairs of texts, such as premise and hypothesis."""
    if isinstance(values, str) or not values:
        return False
    texts: list[str] = []
    for member in values[:_MOST_LOOKED_AT]:
        is_pair = isinstance(member, tuple | list) and len(member) == 2
        if not is_pair or not all(isinstance(text, str) for text in member):
            return False
        texts += member
    return _are_mostly_texts(texts)


def _names_its_classes(value: Any) -> bool:
    """Whether a value is a stream of rows of the library `datasets` that names the numbers of its classes."""
    if not is_of(value, "datasets") or not getattr(value, "features", None):
        return False
    from limbeck.corpus.files.parquet_files import class_names

    return bool(class_names(value.features))


def _are_contents(values: Sequence[Any]) -> bool:
    """Whether the members of a list are texts or rows, and not the names of sources.

    In a list of strings the majority decides. A string with a blank is a text, unless it is the path of a file.
    """
    members = values[:_MOST_LOOKED_AT]
    rows = [member for member in members if isinstance(member, Mapping) and not _describes_source(member)]
    are_all_rows = bool(rows) and len(rows) == len(members)
    if are_all_rows:
        return True
    # A path names a source, and a mapping that is not among rows alone describes one.
    if any(isinstance(member, Path | Mapping) for member in members):
        return False
    return _are_mostly_texts([member for member in members if isinstance(member, str)])


def _describes_source(member: Mapping[Any, Any]) -> bool:
    """Whether a mapping describes a source, and is no row; a row may have a text in a column `parallel`."""
    return "source" in member or isinstance(member.get("parallel"), Mapping)


def _are_mostly_texts(values: Sequence[str]) -> bool:
    """Whether most strings are texts, and not names of sources; never of none."""
    count = sum(_is_text(value) for value in values)
    return 2 * count > len(values)


def _is_text(value: str) -> bool:
    """Whether a string of a list is a text, and not the name of a source."""
    from limbeck.corpus.files.addresses import is_remote
    from limbeck.corpus.files.file_readers import names_file

    # A single word is a name. An address, and a path with the suffix of a file, may have blanks too.
    words = value.split(maxsplit=1)
    if len(words) < 2 or is_remote(words[0]) or names_file(value):
        return False
    try:
        return not Path(value).exists()
    except (OSError, ValueError):
        # The string is longer than a path may be, or has a NUL character, so it is no path.
        return True
