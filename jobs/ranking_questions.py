"""A corpus of questions about another one's validation and test sentences: its words, or others as frequent?

python jobs/ranking_questions.py CORPUS NAME [SEED [MOST]], then train on CORPUS+NAME with [task]
kind = "completion"; MOST bounds the questions of each split.
"""

import sys
from itertools import islice

from memtune.corpora import ImportOptions, import_corpus, open_corpus
from memtune.corpora.ranking import ranking_questions
from memtune.execution.settings import Settings


def main(corpus: str, name: str, seed: str = "0", most: str = "1000000") -> None:
    """Import the questions and say how many there are."""
    store = Settings.read().store
    opened = open_corpus(corpus, store)
    splits = {
        split: list(islice(ranking_questions(opened, split, int(seed)), int(most)))
        for split in ("valid", "test")
    }
    import_corpus(name, splits, store, ImportOptions(vocabulary="all"), replace=True)
    counts = ", ".join(f"{len(questions):,} for {split}" for split, questions in splits.items())
    print(f"{name}: {counts}")


if __name__ == "__main__":
    main(*sys.argv[1:])
