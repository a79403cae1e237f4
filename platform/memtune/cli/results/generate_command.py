"""`memtune generate`: text that a trained model writes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import typer

from memtune.cli.terminal import Device, ModelName, TrustCode, warn
from memtune.reports.text_console import show_control_characters

END_OF_SENTENCE = "<eos>"
INCOMPLETE = "\ufffd"
"""Ends a text whose last character lacks bytes."""


def generate(
    model: ModelName,
    prompt: Annotated[str, typer.Option(help="Words before the text; default: none.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Words and ends of sentences to write.")] = 50,
    temperature: Annotated[
        float,
        typer.Option(min=0, help="Below 1 for likelier words, above 1 for others; 0: the likeliest."),
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from this many likeliest words.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed writes the same text.")] = 0,
    device: Device = "cpu",
    trust_code: TrustCode = False,
) -> None:
    """Write text with a registered model or a trial, word by word, one sentence a line.

    Example: memtune generate models:/ptb@champion --prompt "the company said" --temperature 0.8
    """
    # Imported here: pydantic and MLflow take up to a second, and help and wrong usage need neither.
    from memtune.settings import Settings
    from memtune.tracking import require_registered

    # Before torch is imported, which takes seconds and hundreds of megabytes.
    require_registered(Settings.from_environment().tracking_uri, model)
    from memtune.results.loaded_models import GenerationOptions, load, write_tokens

    loaded = load(model, device=device, trust_code=trust_code)
    unknown = loaded.reader.read(prompt).unknown_words
    if unknown:
        warn(f"the model does not know {', '.join(unknown)} and reads <unk> instead")
    written = write_tokens(loaded, prompt, GenerationOptions(tokens, temperature, top_k, seed))
    if loaded.rules.tokens == "words":
        _print_words(prompt, written)
    else:
        given = [loaded.vocabulary[number] for number in loaded.reader.read(prompt).ids]
        _print_tokens(given, written, loaded.reader.join)


def _print_tokens(given: list[str], tokens: Iterable[str], join: Callable[[Sequence[str]], str]) -> None:
    """Print characters or parts of words as they come; a character waits until its bytes are complete."""
    sentence, printed = list(given), join(given)
    typer.echo(show_control_characters(printed), nl=False)
    for token in tokens:
        if token == END_OF_SENTENCE:
            typer.echo()
            sentence, printed = [], ""
            continue
        sentence.append(token)
        text = join(sentence)
        if not text.endswith(INCOMPLETE):
            typer.echo(show_control_characters(text[len(printed) :]), nl=False)
            printed = text
    typer.echo()


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
