"""Registered models that differ by their seeds, asked the questions of their corpus: means with their spread.

A line for each corpus and family; number agreement by attractors too. Accuracies in per cent.

python jobs/asking_seeds.py models:/ptb+linzen/1 models:/ptb+linzen/2 models:/ptb+linzen/3
"""

import statistics
from collections.abc import Sequence

from memtune.cli import run_script
from memtune.execution.asking import Asked, ask
from memtune.reports.questions import answer_groups


def corpus_and_family(asked: Asked) -> tuple[str, str]:
    """What a line of the table is of: the corpus by the name its models are registered under."""
    return asked.model.removeprefix("models:/").rpartition("/")[0].partition("@")[0], asked.family


def mean(shares: Sequence[float]) -> str:
    """The mean in per cent, with the standard deviation where there is one."""
    told = f"{100 * statistics.mean(shares):.1f}"
    return f"{told} ± {100 * statistics.stdev(shares):.1f}" if len(shares) > 1 else told


def row(corpus: str, family: str, asked: Sequence[Asked], groups: Sequence[str]) -> str:
    """A line of the table."""
    by_seed = [dict(answer_groups(one.answers)) for one in asked]
    answers = asked[0].answers
    cells = [
        corpus,
        family,
        str(len(asked)),
        *(mean([answered[name].accuracy for answered in by_seed]) for name in groups),
        f"{len(answers.names) - answers.questions:,} of {len(answers.names):,}",
        f"{asked[0].unknown_rate:.1%}",
    ]
    return f"| {' | '.join(cells)} |"


def main(models: list[str]) -> None:
    """Print the table."""
    by_line: dict[tuple[str, str], list[Asked]] = {}
    for one in ask(models):
        by_line.setdefault(corpus_and_family(one), []).append(one)
    groups = [
        name for name, answers in answer_groups(next(iter(by_line.values()))[0].answers) if answers.questions
    ]
    head = ["corpus", "family", "seeds", *groups, "not asked", "unknown words"]
    print(f"| {' | '.join(head)} |\n|---|---|{'---:|' * (len(head) - 2)}")
    for (corpus, family), asked in by_line.items():
        print(row(corpus, family, asked, groups))


if __name__ == "__main__":
    run_script(main)
