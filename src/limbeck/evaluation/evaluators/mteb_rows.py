"""Rows of limbeck's tasks as tasks of mteb: STS, classification, clustering, retrieval and reranking.

limbeck reads the rows, from any file that a task may have, and mteb scores them by the rules of its own tasks. A
*form* is the type of mteb's task that rows become.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.evaluators.document_search import Search
from limbeck.evaluation.tasks.splits import TRAIN
from limbeck.kinds.ranking_scores import queries_of
from limbeck.kinds.task import Task

CLUSTERING = "clustering"
"""What stands before a task of classes whose rows are clustered: `mteb:clustering:reviews.yaml`."""
_NO_LANGUAGE = "und-Zyyy"
"""The language of rows in mteb's records: undetermined, since limbeck does not know the script of texts."""
ONLY_SUBSET = "default"
"""mteb's name of the only subset of a data set."""


@dataclass(frozen=True)
class Form:
    """A type of mteb's tasks that rows become.

    Attributes:
        type: The name of the type in mteb.
        metric: The main score of mteb's tasks of this type.
        base: Name of the class in `mteb.abstasks`.
        make_split: Makes mteb's split of the rows of a split; its second argument names the split for messages.
        is_trained: Whether mteb trains a classifier on the vectors of the rows to train on.
        has_queries: Whether there are queries and documents.
        attributes: Attributes of mteb's class that differ from its defaults.
    """

    type: str
    metric: str
    base: str
    make_split: Callable[[Sequence[LabelledRow], str], Any]
    is_trained: bool = False
    has_queries: bool = False
    attributes: Mapping[str, Any] | None = None


def find_form(task: Task, *, is_clustered: bool) -> Form:
    """Return the form of the rows of a task.

    Args:
        task: The task.
        is_clustered: Whether its rows are to be clustered.

    Raises:
        RecipeError: for a kind of task that mteb does not score.
    """
    if is_clustered:
        if task.kind != "classification":
            raise RecipeError(
                f"{task.title} is a task of {task.kind}, whose rows have no classes to cluster by; give a "
                f"classification task behind mteb:{CLUSTERING}: …"
            )
        return _CLUSTERING
    if task.kind not in _FORM_OF_KIND:
        raise RecipeError(
            f"{task.title} is a task of {task.kind}, which mteb cannot score by sentence vectors; give a task of "
            f"{', '.join(_FORM_OF_KIND)}, or one of mteb's own."
        )
    return _FORM_OF_KIND[task.kind]


def make_mteb_task(name: str, form: Form, task: Task, rows: Mapping[str, Sequence[LabelledRow]], revision: str) -> Any:
    """Return a task of mteb with the rows of a task of limbeck.

    Args:
        name: The name of the task in mteb's records.
        form: The form of the rows.
        task: The task, whose scored splits mteb scores.
        rows: The rows by split; where mteb trains a classifier, those to train on are under `"train"`.
        revision: Fingerprint of the rows, which stands in mteb's records for the revision of a data set.

    Raises:
        CorpusError: for a split without labels, or rows that mteb cannot score.
    """
    import datasets
    import mteb.abstasks
    from mteb.abstasks.task_metadata import TaskMetadata

    splits = [*task.scored]
    if form.is_trained:
        splits.append(TRAIN)
    data = {}
    for split in splits:
        where = f"{task.title} {split}"
        labelled_rows = [row for row in rows.get(split, ()) if row.label is not None]
        if not labelled_rows:
            raise CorpusError(
                f"{where} has no labelled rows, which mteb needs for {form.type}; give rows with labels, or choose "
                "another task."
            )
        data[split] = form.make_split(labelled_rows, where)

    metadata = TaskMetadata(
        name=name,
        description=f"Rows of {task.title}, read by limbeck.",
        dataset={"path": task.name, "revision": revision},
        type=form.type,
        eval_splits=[*task.scored],
        eval_langs=[_NO_LANGUAGE],
        main_score=form.metric,
    )
    # A task of mteb is an instance of a subclass with these attributes.
    attributes = {"metadata": metadata, **(form.attributes or {})}
    base = getattr(mteb.abstasks, form.base)
    task_class = type(form.type, (base,), attributes)
    mteb_task = task_class()
    if form.has_queries:
        # mteb's tasks of queries look splits up in a subset, and the others take the splits themselves.
        mteb_task.dataset = {ONLY_SUBSET: data}
    else:
        mteb_task.dataset = datasets.DatasetDict(data)
    mteb_task.data_loaded = True
    return mteb_task


def _pairs(rows: Sequence[LabelledRow], where: str) -> Any:
    """Return pairs of texts with their similarities.

    Raises:
        CorpusError: for a row of one text.
    """
    from datasets import Dataset

    if any(row.pair is None for row in rows):
        raise CorpusError(
            f"{where} has rows with a single text, but mteb's STS compares two texts a row; choose a task with "
            "pairs of texts."
        )
    return Dataset.from_dict(
        {
            "sentence1": [row.text for row in rows],
            "sentence2": [row.pair for row in rows],
            "score": [row.label for row in rows],
        }
    )


def _classes(rows: Sequence[LabelledRow], where: str) -> Any:
    """Return texts with their classes.

    Raises:
        CorpusError: for rows of two texts.
    """
    from datasets import Dataset

    if any(row.pair is not None for row in rows):
        raise CorpusError(
            f"{where} has rows with two texts, but mteb classifies and clusters single texts; choose a task with "
            "one text a row."
        )
    return Dataset.from_dict({"text": [row.text for row in rows], "label": [row.label for row in rows]})


def _search(rows: Sequence[LabelledRow], where: str) -> Any:
    """Return queries that look for their documents among all of a split."""
    search = Search.of(rows, where)
    document_ids = [f"d{number}" for number in range(len(search.documents))]
    queries = {}
    relevance_of_query = {}
    for number, relevance in enumerate(search.relevance):
        # A query must not find the document that is its own text. mteb leaves the document that has a query's id out of
        # the query's results, so the query gets this id.
        query_id = f"q{number}"
        if number in search.own_documents:
            query_id = document_ids[search.own_documents[number]]
        queries[query_id] = search.queries[number]
        gains = {document_ids[document]: _whole(gain, where) for document, gain in relevance.items()}
        if not gains:
            # mteb drops queries without judged documents, which limbeck scores with 0. So one is judged irrelevant.
            gains = {document_ids[0]: 0}
        relevance_of_query[query_id] = gains
    documents = dict(zip(document_ids, search.documents, strict=True))
    return _split_of_queries(queries, documents, relevance_of_query)


def _candidates(rows: Sequence[LabelledRow], where: str) -> Any:
    """Return queries with the documents that are put in order for each of them."""
    # Documents with the same text are one document.
    id_of_document: dict[str, str] = {}
    for row in rows:
        document = row.pair or ""
        if document not in id_of_document:
            id_of_document[document] = f"d{len(id_of_document)}"

    queries = {}
    relevance_of_query = {}
    candidates_of_query = {}
    for number, place_of_rows in enumerate(queries_of(rows)):
        rows_of_query = rows[place_of_rows]
        query_id = f"q{number}"
        queries[query_id] = rows_of_query[0].text
        gains = {}
        for row in rows_of_query:
            document_id = id_of_document[row.pair or ""]
            gains[document_id] = max(_whole(row.label, where), 0)
        relevance_of_query[query_id] = gains
        candidates_of_query[query_id] = list(gains)
    documents = {document_id: document for document, document_id in id_of_document.items()}
    return _split_of_queries(queries, documents, relevance_of_query, candidates_of_query)


def _split_of_queries(
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    relevance_of_query: Mapping[str, Mapping[str, int]],
    candidates_of_query: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return a split as mteb has it.

    Args:
        queries: Texts of the queries by their ids.
        documents: Texts of the documents by their ids.
        relevance_of_query: Id of a query to the relevance of documents by their ids.
        candidates_of_query: Id of a query to the ids of the documents that are put in order for it; None searches all.
    """
    from datasets import Dataset

    return {
        "queries": Dataset.from_dict({"id": list(queries), "text": list(queries.values())}),
        "corpus": Dataset.from_dict({"id": list(documents), "text": list(documents.values())}),
        "relevant_docs": relevance_of_query,
        "top_ranked": candidates_of_query,
    }


def _whole(relevance: Any, where: str) -> int:
    """Return a relevance as the whole number that mteb needs.

    Raises:
        CorpusError: for a fraction.
    """
    if relevance != int(relevance):
        raise CorpusError(
            f"{where} has the relevance {relevance:g}, but mteb takes only whole numbers, such as 0, 1 and 2; "
            "change the relevances."
        )
    return int(relevance)


_STS = Form(type="STS", metric="cosine_spearman", base="AbsTaskSTS", make_split=_pairs)
_CLUSTERING = Form(
    type="Clustering",
    metric="v_measure",
    base="AbsTaskClustering",
    make_split=_classes,
    attributes={
        # By default mteb clusters a part of the rows: one in 25, of data sets with many thousands.
        "max_fraction_of_documents_to_embed": None,
        "input_column_name": "text",
        "label_column_name": "label",
    },
)
_CLASSIFICATION = Form(
    type="Classification", metric="accuracy", base="AbsTaskClassification", make_split=_classes, is_trained=True
)
_RETRIEVAL = Form(
    type="Retrieval",
    metric="ndcg_at_10",
    base="AbsTaskRetrieval",
    make_split=_search,
    has_queries=True,
    attributes={"ignore_identical_ids": True},
)
_RERANKING = Form(
    type="Reranking", metric="map_at_1000", base="AbsTaskRetrieval", make_split=_candidates, has_queries=True
)
_FORM_OF_KIND: Mapping[str, Form] = {
    "similarity": _STS,
    "regression": _STS,
    "classification": _CLASSIFICATION,
    "retrieval": _RETRIEVAL,
    "ranking": _RERANKING,
}
"""Kind of a task to the form of its rows."""
