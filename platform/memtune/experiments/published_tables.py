"""The tables of papers as data: `jobs/papers/PAPER.toml`.

A table has a corpus, base settings and rows; a row has published values and the settings of its trial.
Settings are values by dotted name, such as `"training.epochs" = 15`. A row's settings replace those of its
trial file, which replace those of the table, and a scale's settings replace all of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from memtune.errors import ConfigurationError
from memtune.experiments.single_trial import TrialFile, parse_trial
from memtune.library import FileKind, find_file, find_packaged
from memtune.objective import Objective
from memtune.studies.definition.toml_files import override_fields, read_toml
from memtune.values import Value, parse

ScaleName = Literal["paper", "cpu", "tiny"]
UNITS = {"k": 1_000, "M": 1_000_000}


class PublishedRow(Value):
    """One model of a table with its published values."""

    name: str
    trial: str | None = None
    """A packaged file of jobs/trials, without its suffix."""
    changes: dict[str, Any] = Field(default_factory=dict)
    valid: int | float | None = None
    """Published validation value, a perplexity or an accuracy in per cent, with its digits: 141 or 30.0."""
    test: int | float | None = None
    """Published test value."""
    parameters: str | None = Field(None, pattern=r"^\d+(\.\d+)?[kM]$")
    """Published number of parameters, such as 2.3M or 330k."""
    reason: str = ""
    """What is known of the difference at the scale of the paper."""


class Scale(Value):
    """How much smaller than the paper's the trainings of a table are."""

    tokens: int | None = Field(None, gt=0)
    """Predicted tokens, or examples, of each trial, in place of the paper's epochs."""
    epochs: float | None = Field(None, gt=0)
    width: int | None = Field(None, gt=0)
    """Units of every layer and of the embeddings."""
    changes: dict[str, Any] = Field(default_factory=dict)
    row_changes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of single rows, by the row's name."""
    rows: tuple[str, ...] | None = None
    """The rows that are trained; None for all."""
    rates: tuple[float, ...] = ()
    """Learning rates, of which validation chooses one for each row; without any, each row has its own."""
    seeds: int = Field(1, ge=1)
    """Trainings of each row at its rate; its figures are their means."""
    corpora: tuple[str, ...] = ()
    """The corpora over which the figures of a row are averaged; default: the table's."""
    note: str = ""
    """How the trainings depart from the paper."""


class PublishedTable(Value):
    """One table of a paper, or the part of it on one corpus."""

    name: str
    title: str
    corpus: str
    import_command: str
    """The command that imports the corpus."""
    text_source: str
    """The public source of the text."""
    counts_words: bool = True
    """Whether the published numbers of parameters include those of the words."""
    base: dict[str, Any] = Field(default_factory=dict)
    scales: dict[ScaleName, Scale]
    solved: float | None = None
    """The validation figure from which a row has learned the task: where none has, the budget is too small
    and no row counts."""
    figure: Objective | None = None
    """What the published values are; default: what the task compares trials by."""
    rows: tuple[PublishedRow, ...]

    def on_corpus(self, corpus: str) -> "PublishedTable":
        """The table with rows that train on `corpus`, without published values if that is not its own."""
        if corpus == self.corpus:
            return self
        unpublished = {"valid": None, "test": None, "parameters": None}
        reason = f"the table's corpus is {self.corpus}"
        return self.model_copy(
            update={
                "title": f"{self.title}; trained on {corpus} instead",
                "corpus": corpus,
                "scales": {n: each.model_copy(update={"corpora": ()}) for n, each in self.scales.items()},
                "rows": tuple(row.model_copy(update={**unpublished, "reason": reason}) for row in self.rows),
            }
        )

    def covers(self, row: PublishedRow, scale: ScaleName) -> bool:
        """Whether a scale trains a row."""
        chosen = self.scales[scale].rows
        return chosen is None or row.name in chosen

    def make_trial(self, row: PublishedRow, scale: ScaleName) -> TrialFile:
        """The trial of a row.

        Raises ConfigurationError that names table and row where the settings make no trial.
        """
        where = f"table {self.name}, row {row.name}"
        document: dict[str, Any] = {}
        override_fields(document, self.base)
        if row.trial is not None:
            document |= read_toml(find_packaged(FileKind.TRIAL, row.trial))
        override_fields(document, row.changes)
        _apply_scale(document, self.scales[scale], row.name)
        document |= {"corpus": self.corpus, "question": f"{where}: is the published value reached?"}
        return parse_trial(document, where)

    def count_parameters(self, row: PublishedRow, vocabulary_size: int) -> int:
        """The parameters of a row's model at the scale of the paper, as the paper counts them."""
        trial = self.make_trial(row, "paper").trial
        return trial.parameter_count(vocabulary_size if self.counts_words else 0)


class Paper(Value):
    """A paper's tables."""

    title: str
    tables: tuple[PublishedTable, ...]


def load_paper(name: str) -> Paper:
    """The user's paper, or a packaged one; raises StudyError for an unknown name."""
    path = find_file(FileKind.PAPER, Path(name))
    paper: Paper = parse(Paper, read_toml(path), str(path))
    return paper


def select_tables(paper: Paper, number: str | None) -> list[PublishedTable]:
    """The tables of a number, such as 2 for 2-de and 2-it, or the one of a full name; all without a number.

    Raises ConfigurationError where there is none.
    """
    chosen = [t for t in paper.tables if number in (None, t.name, t.name.partition("-")[0])]
    if not chosen:
        names = [table.name for table in paper.tables]
        raise ConfigurationError(f'no table "{number}"; the tables are {", ".join(names)}')
    return chosen


def select_rows(tables: Sequence[PublishedTable], names: Sequence[str]) -> frozenset[str] | None:
    """The rows with these names, None for all; raises ConfigurationError for a name that no table has."""
    known = dict.fromkeys(row.name for table in tables for row in table.rows)
    for name in names:
        if name not in known:
            listed = ", ".join(f'"{row}"' for row in known)
            raise ConfigurationError(f'no row "{name}"; the rows are {listed}')
    return frozenset(names) or None


def has_printed_size(count: int, printed: str) -> bool:
    """Whether a number of parameters, rounded or cut off to the printed digits, is the printed one, such as
    2.3M.

    A number in thousands that ends in 0 counts as printed to the ten thousand: papers print two digits.
    """
    digits, unit = printed[:-1], UNITS[printed[-1]]
    decimals = len(digits.partition(".")[2])
    step = unit // 10**decimals * (10 if unit == UNITS["k"] and digits.endswith("0") else 1)
    return is_rounded_or_cut_off(count, round(float(digits) * unit), step)


def is_rounded_or_cut_off(count: int, printed: int, unit: int) -> bool:
    """Whether `printed`, a multiple of `unit`, is `count` rounded to it (a half upwards) or cut off to it."""
    return printed in (count // unit * unit, (count + unit // 2) // unit * unit)


def _apply_scale(document: dict[str, Any], scale: Scale, row: str) -> None:
    """Make a trial smaller. A counting model has no training, and no width."""
    model, training = document.get("model", {}), document.get("training")
    if model.get("family") == "kneser_ney":
        document.pop("training", None)
        return
    if scale.width is not None:
        model["width"] = scale.width  # and not that of the embeddings, which pretrained vectors decide
    if training is not None and scale.tokens is not None:
        training.pop("epochs", None)
        training |= {"tokens": scale.tokens, "report_every": scale.tokens}
    if training is not None and scale.epochs is not None:
        training["epochs"] = scale.epochs
    override_fields(document, scale.changes)
    override_fields(document, scale.row_changes.get(row, {}))
