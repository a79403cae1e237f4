"""`memtune generate`: text that a trained model writes."""

from collections.abc import Iterable
from typing import Annotated

import typer

from memtune.cli.terminal import Device, warn
from memtune.reports.text_console import show_control_characters

__all__ = ["generate"]

END_OF_SENTENCE = "<eos>"


def generate(
    model: Annotated[
        str, typer.Argument(help="models:/NAME@champion, models:/NAME/VERSION, STUDY#7 or a run's id.")
    ],
    prompt: Annotated[str, typer.Option(help="Words before the text; default: none.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Words and ends of sentences to write.")] = 50,
    temperature: Annotated[
        float,
        typer.Option(min=0, help="Below 1 for likelier words, above 1 for others; 0: the likeliest."),
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from this many likeliest words.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed writes the same text.")] = 0,
    device: Device = "cpu",
) -> None:
    """Write text with a registered model or a trial, word by word, one sentence a line.

    Example: memtune generate models:/ptb@champion --prompt "the company said" --temperature 0.8
    """
    from memtune.settings import Settings
    from memtune.tracking import require_registered

    # Before torch is imported, which takes seconds and hundreds of megabytes.
    require_registered(Settings.from_environment().tracking_uri, model)
    from memtune.results.loaded_models import GenerationOptions, load
    from memtune.results.loaded_models import generate as write_text

    loaded = load(model, device=device)
    unknown = loaded.reader.read(prompt).unknown_words
    if unknown:
        warn(f"the model does not know {', '.join(unknown)} and reads <unk> instead")
    _print_words(prompt, write_text(loaded, prompt, GenerationOptions(tokens, temperature, top_k, seed)))


def _print_words(prompt: str, words: Iterable[str]) -> None:
    """Print words as they come, and a new line for each end of a sentence."""
    separator = ""
    if prompt:
        typer.echo(show_control_characters(prompt), nl=False)
        separator = " "
    for word in words:
        if word == END_OF_SENTENCE:
            typer.echo()
            separator = ""
        else:
            typer.echo(separator + show_control_characters(word), nl=False)
            separator = " "
    typer.echo()
