"""`memtune demo`: a corpus, a study and its leaderboard, without any file."""

from pathlib import Path

from memtune.cli.corpora.corpus_commands import corpus_demo
from memtune.cli.results.compare_command import compare
from memtune.cli.studies.search_command import Trials, search

DEMO = "demo"
"""The packaged study on the embedded corpus."""


def demo(trials: Trials = None) -> None:
    """Import the embedded corpus, run the study `demo` on it here, and show the leaderboard.

    It takes minutes and needs neither files nor a network. `memtune study new demo` copies the study; in that
    folder, this command runs the copy.

    Example: memtune demo
    """
    corpus_demo()
    search(Path(DEMO), trials=trials)
    compare("grammar", study=DEMO)
