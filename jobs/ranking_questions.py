"""A corpus of questions about another one's validation and test sentences: its words, or others as frequent?

python jobs/ranking_questions.py CORPUS NAME [SEED [MOST]], then train on CORPUS+NAME with [task]
kind = "completion"; MOST bounds the questions of each split.
"""

from itertools import islice
from typing import Annotated

import typer

from memtune.cli import run_script
from memtune.corpora import ImportOptions, import_corpus, open_corpus
from memtune.corpora.ranking import ranking_questions
from memtune.execution.settings import Settings


def main(
    corpus: str,
    name: str,
    seed: Annotated[int, typer.Argument()] = 0,
    most: Annotated[int, typer.Argument(min=1)] = 1_000_000,
) -> None:
    """Import the questions and say how many there are."""
    store = Settings.read().store
    opened = open_corpus(corpus, store)
    splits = {
        split: list(islice(ranking_questions(opened, split, seed), most)) for split in ("valid", "test")
    }
    import_corpus(name, splits, store, ImportOptions(vocabulary="all"), replace=True)
    counts = ", ".join(f"{len(questions):,} for {split}" for split, questions in splits.items())
    print(f"{name}: {counts}")


if __name__ == "__main__":
    run_script(main)
