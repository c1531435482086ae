"""`FileTeaching`: a teacher that is a file of texts and targets, such as the vectors that a service computed."""

from dataclasses import replace

from limbeck.corpus.messages import safe_name
from limbeck.targets.file_store import store_of_file
from limbeck.targets.stored_teaching import StoredTeaching
from limbeck.targets.target_file import TargetFile


class FileTeaching(StoredTeaching):
    """Gives what a file says of the texts of a batch. A recipe has it by `teacher: {targets: FILE, ...}`.

    The file is read and checked when the teaching is made, unless its content is in limbeck's cache already.

    Args:
        file: The file.

    Raises:
        CorpusError: for a file that cannot be read, and the first row that no student could learn.
    """

    remedy = "add them to the file, or leave them out of the corpus, whose unit has to be that of the file's texts"

    def __init__(self, file: TargetFile) -> None:
        store = store_of_file(file)
        super().__init__(str(store.folder))
        self.summary = store.summary
        self.facts = replace(self.facts, title=f"the targets of {safe_name(file.place)}")
