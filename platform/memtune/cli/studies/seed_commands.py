"""`memtune seeds ...` and `memtune rare-words`: compute the figures of result pages."""

from pathlib import Path
from typing import Annotated

import typer

from memtune.cli.shell_completion import complete_model
from memtune.cli.terminal import ModelName, SplitName, TrustCode, out

MAX_SEED_DIGITS = 18
"""A seed is below 2^63."""
app = typer.Typer(help="Mean and deviation over seeds, as Markdown tables.", no_args_is_help=True)


@app.command("train")
def seeds_train(
    files: Annotated[list[Path], typer.Argument(help="Trials as TOML files.")],
    seeds: Annotated[str, typer.Option(help="The seeds, separated by commas.")] = "0,1,2",
) -> None:
    """Train trial files under several seeds, and print validation and test figures with their deviation.

    Only the accesses to the test split are recorded. Training takes one thread.

    Example: memtune seeds train jobs/trials/grammar_rm.toml --seeds 0,1,2
    """
    # Imported here: importing PyTorch takes seconds, and help does not need it.
    import torch

    from memtune.reports.seed_tables import SPREAD_HEADER, format_spread_row
    from memtune.results.seed_spread import train_seeds
    from memtune.settings import Settings

    numbers = _parse_seeds(seeds)
    settings = Settings.from_environment()
    torch.set_num_threads(1)
    out.print(SPREAD_HEADER, soft_wrap=True)
    for file in files:
        out.print(format_spread_row(train_seeds(file, numbers, settings)), soft_wrap=True)


@app.command("ask")
def seeds_ask(
    models: Annotated[
        list[str],
        typer.Argument(help="models:/NAME/VERSION, one for each seed.", autocompletion=complete_model),
    ],
) -> None:
    """Ask registered models the questions of their corpus, and print the accuracy by corpus and family.

    Example: memtune seeds ask models:/ptb+linzen/1 models:/ptb+linzen/2 models:/ptb+linzen/3
    """
    from memtune.reports.seed_tables import format_answer_spread
    from memtune.results.question_answers import ask

    for line in format_answer_spread(ask(models)):
        out.print(line, soft_wrap=True)


def rare_words(
    model: ModelName,
    split: SplitName = "valid",
    max_count: Annotated[
        int, typer.Option(min=0, help="Highest count of a rare word in the training text.")
    ] = 5,
    trust_code: TrustCode = False,
) -> None:
    """Evaluate a registered model with rare words counted as unknown, to compare with a smaller vocabulary.

    Example: memtune rare-words models:/ptb@champion --split test --max-count 5
    """
    from memtune.results.rare_words import compute_merged_perplexity
    from memtune.settings import Settings

    settings = Settings.from_environment()
    perplexity = compute_merged_perplexity(model, split, max_count, settings, trust_code=trust_code)
    out.print(
        f"{model} on {split}: perplexity {perplexity.full:.2f} over {perplexity.vocabulary_size:,} words, "
        f"{perplexity.merged:.2f} with {perplexity.rare_words:,} rare words as <unk>",
        soft_wrap=True,
        highlight=False,
    )


def _parse_seeds(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) <= MAX_SEED_DIGITS for part in parts):
        raise typer.BadParameter(f"{text} is not a list of seeds such as 0,1,2", param_hint="--seeds")
    return [int(part) for part in parts]
