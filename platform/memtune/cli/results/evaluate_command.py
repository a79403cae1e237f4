"""`memtune evaluate`: a model on a split of its corpus or on another text."""

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memtune.cli.shell_completion import complete_corpus
from memtune.cli.terminal import AsJson, Device, ModelName, SplitName, TrustCode, out, warn
from memtune.errors import ConfigurationError
from memtune.number_format import format_count
from memtune.reports.text_console import show_control_characters

if TYPE_CHECKING:
    from memtune.results.model_evaluation import EvaluationResult
    from memtune.tasks import ContinuousCache


def evaluate(
    model: ModelName,
    split: SplitName = "valid",
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Another text of the store, in the model's vocabulary.", autocompletion=complete_corpus
        ),
    ] = None,
    words: Annotated[
        Path | None, typer.Option(help="Parquet file for the log probability of each word, in nats.")
    ] = None,
    sentences: Annotated[
        Path | None,
        typer.Option(help="Score these instead: a text file with one sentence a line, or - for a pipe."),
    ] = None,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    cache_size: Annotated[
        int | None,
        typer.Option(min=1, help="Add a continuous cache of this many words; default with a cache: 2000."),
    ] = None,
    cache_flatness: Annotated[
        float | None, typer.Option(min=0, help="Inverse temperature of the cache; default: 0.3.")
    ] = None,
    cache_weight: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Weight of the cache in the mixed probability; default: 0.1."),
    ] = None,
    tune_cache: Annotated[
        bool, typer.Option("--tune-cache", help="Choose flatness and weight on the validation split.")
    ] = False,
    rare_words: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Count words that training has at most this often as <unk>, as a smaller vocabulary does.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Evaluate a registered model or a trial on a split of its corpus, or score sentences.

    Example: memtune evaluate models:/ptb@champion --split test --tune-cache
    """
    # Imported here: pydantic and MLflow take up to a second, and help and wrong usage need neither.
    from memtune.settings import Settings
    from memtune.tracking import require_registered

    given = {"size": cache_size, "flatness": cache_flatness, "weight": cache_weight}
    options = {name: value for name, value in given.items() if value is not None}
    cache = _parse_cache(options, tune_cache) if options or tune_cache else None
    if sentences is not None and (cache or corpus or words):
        raise typer.BadParameter("--sentences goes without --corpus, --words and a cache; leave them out")
    if rare_words is not None and (cache or corpus or words or sentences):
        raise typer.BadParameter("--rare-words goes with --split and --trust-code; leave the others out")
    # Before torch is imported, which takes seconds and hundreds of megabytes.
    require_registered(Settings.from_environment().tracking_uri, model)
    if sentences is not None:
        _score_sentences(sentences, model, device, trust_code, json)
        return
    if rare_words is not None:
        _merge_rare_words(model, split, rare_words, trust_code, json)
        return
    from memtune.results.model_evaluation import evaluate_model

    found = evaluate_model(
        model, split, device=device, cache=cache, corpus=corpus, words=words, trust_code=trust_code
    )
    if json:
        out.print_json(data=_summarise_evaluation(found, split))
        return
    out.print(_describe_evaluation(found, split), soft_wrap=True)


def _score_sentences(file: Path, model: str, device: str, trust_code: bool, json: bool) -> None:
    """Print the log probability of each sentence of a file, and of its words."""
    from memtune.corpora.sources.line_reader import LineReader
    from memtune.results.loaded_models import load, score

    with closing(LineReader(file)) as reader:
        texts = [line.strip() for _, line in reader.read_lines() if line.strip()]
    found = score(load(model, device=device, trust_code=trust_code), texts)
    if json:
        out.print_json(data=[asdict(each) | {"log_probability": each.log_probability} for each in found])
        return
    for each in found:
        rows = zip(each.words, each.log_probabilities, strict=True)
        words = " ".join(f"{word} {value:.3f}" for word, value in rows)
        typer.echo(show_control_characters(f"{each.log_probability:.4f}\t{each.sentence}\t{words}"))
        if each.unknown_words:
            warn(f"the model does not know {', '.join(each.unknown_words)} and reads <unk> instead")


def _merge_rare_words(model: str, split: str, max_count: int, trust_code: bool, json: bool) -> None:
    """Print the perplexity with the whole vocabulary, and with its rare words as <unk>."""
    from memtune.results.rare_words import compute_merged_perplexity
    from memtune.settings import Settings

    found = compute_merged_perplexity(
        model, split, max_count, Settings.from_environment(), trust_code=trust_code
    )
    if json:
        out.print_json(data=asdict(found))
        return
    out.print(
        f"{model} on {split}: perplexity {found.full:.2f} over {found.vocabulary_size:,} words, "
        f"{found.merged:.2f} with {found.rare_words:,} rare words as <unk>",
        soft_wrap=True,
    )


def _summarise_evaluation(found: "EvaluationResult", split: str) -> dict[str, Any]:
    """The figures of an evaluation by name, as JSON has them."""
    return {
        **found.metrics.model_dump(exclude_none=True),
        **found.text_figures,
        "split": split,
        "protocol": found.label,
        "model": found.model,
        "ideal": found.ideal_perplexity,
        "cache": found.cache and found.cache.model_dump(),
        "interval": found.interval,
    }


def _describe_evaluation(found: "EvaluationResult", split: str) -> str:
    """The figures of an evaluation in one sentence."""
    ideal = f", ideal {found.ideal_perplexity:.4f}" if found.ideal_perplexity else ""
    used = f", {_describe_cache(found.cache)}" if found.cache else ""
    text = f"{found.corpus} {split}" if found.corpus else split
    figures = _describe_figures(found) + _describe_interval(found)
    return f"{found.model} on {text}: {figures}, protocol {found.label}{used}{ideal}"


def _describe_figures(found: "EvaluationResult") -> str:
    """The accuracy of examples or questions, and the perplexity of a text."""
    metrics = found.metrics
    tied = f" ({format_count(metrics.ties, 'tie')})" if metrics.ties else ""
    if found.unit == "examples":
        return f"accuracy {metrics.accuracy:.4%} of {metrics.tokens:,} examples{tied}"
    perplexity = f"perplexity {metrics.perplexity:.6f} over {metrics.tokens:,} tokens"
    figures = perplexity + _describe_text_figures(found)
    if not metrics.questions:
        return figures
    return f"accuracy {metrics.accuracy:.4%} of {metrics.questions:,}{tied}, {figures}"


def _describe_interval(found: "EvaluationResult") -> str:
    """The interval of the accuracy or, without one, of the perplexity, in words."""
    if found.interval is None:
        return ""
    low, high = found.interval
    if found.metrics.accuracy is None:
        return f", 95 % interval {low:.2f} to {high:.2f}"
    return f", 95 % interval of the accuracy {low:.2%} to {high:.2%}"


def _describe_text_figures(found: "EvaluationResult") -> str:
    """The figures that compare over tokenisations, in words; nothing where they are not known."""
    if found.units is None:
        return ""
    figures, lost = found.text_figures, found.units.lost
    text = f", {figures['word_perplexity']:.2f} per word, {figures['bits_per_byte']:.4f} bits per byte"
    return text + (f", {lost:,} tokens read as <unk>" if lost else "")


def _parse_cache(given: dict[str, Any], is_tuned: bool) -> Any:
    """The cache that the options describe, a grid when it is to be tuned, None without any option."""
    from memtune.tasks import CacheGrid, ContinuousCache
    from memtune.values import parse

    if is_tuned and (set(given) - {"size"}):
        raise typer.BadParameter("--tune-cache chooses flatness and weight; leave them out")
    kind = CacheGrid if is_tuned else ContinuousCache
    try:
        return parse(kind, given, "the cache") if given or is_tuned else None
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None


def _describe_cache(cache: "ContinuousCache") -> str:
    return f"cache of {cache.size:,} words, flatness {cache.flatness:g}, weight {cache.weight:g}"
