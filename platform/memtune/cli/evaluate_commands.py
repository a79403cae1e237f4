"""`memtune evaluate`, `generate` and `ask`: questions to trained models."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memtune.cli.terminal import (
    AsJson,
    Device,
    ModelName,
    ModelNames,
    QuestionCorpus,
    QuestionTask,
    SplitName,
    TrustCode,
    corpus_option,
    out,
    warn,
)
from memtune.errors import ConfigurationError
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.reports.text_console import show_control_characters

if TYPE_CHECKING:
    from memtune.results.model_evaluation import EvaluationResult
    from memtune.results.question_answers import ModelAnswers
    from memtune.tasks import Answers, CacheGrid, ContinuousCache

END_OF_SENTENCE = "<eos>"
INCOMPLETE = "\ufffd"
"""Ends a text whose last character lacks bytes."""


@dataclass(frozen=True)
class CacheOptions:
    """The continuous cache with which a model is evaluated."""

    cache_size: Annotated[
        int | None,
        typer.Option(min=1, help="Add a continuous cache of this many words; default with a cache: 2000."),
    ] = None
    cache_flatness: Annotated[
        float | None, typer.Option(min=0, help="Inverse temperature of the cache; default: 0.3.")
    ] = None
    cache_weight: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Weight of the cache in the mixed probability; default: 0.1."),
    ] = None
    tune_cache: Annotated[
        bool, typer.Option("--tune-cache", help="Choose flatness and weight on the validation split.")
    ] = False

    def resolve(self) -> "ContinuousCache | CacheGrid | None":
        """The cache, a grid when it is to be tuned, None without any option; raises BadParameter."""
        names = {"size": self.cache_size, "flatness": self.cache_flatness, "weight": self.cache_weight}
        given = {name: value for name, value in names.items() if value is not None}
        if not given and not self.tune_cache:
            return None
        if self.tune_cache and given.keys() - {"size"}:
            raise typer.BadParameter("--tune-cache chooses flatness and weight; leave them out")
        # Imported here, as in every command: MLflow and torch load for seconds, which help need not wait for.
        from memtune.tasks import CacheGrid, ContinuousCache
        from memtune.values import parse

        try:
            cache: ContinuousCache | CacheGrid = parse(
                CacheGrid if self.tune_cache else ContinuousCache, given, "the cache"
            )
            return cache
        except ConfigurationError as error:
            raise typer.BadParameter(str(error)) from None


def evaluate(
    model: ModelName,
    split: SplitName = "valid",
    corpus: Annotated[
        str | None, corpus_option("Another text of the store, in the model's vocabulary.")
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
    caches: CacheOptions = CacheOptions(),
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
    cache = caches.resolve()
    if sentences is not None and (cache or corpus or words):
        raise typer.BadParameter("--sentences goes without --corpus, --words and a cache; leave them out")
    if rare_words is not None and (cache or corpus or words or sentences or device != "cpu"):
        raise typer.BadParameter("--rare-words goes with --split and --trust-code; leave the others out")
    _require_model(model)
    if sentences is not None:
        _score_sentences(sentences, model, device, trust_code, json)
        return
    from memtune.results.model_evaluation import compute_merged_perplexity
    from memtune.results.model_evaluation import evaluate as evaluate_model

    if rare_words is not None:
        merged = compute_merged_perplexity(model, split, rare_words, trust_code=trust_code)
        own = f"perplexity {merged.full:.2f} with a vocabulary of {merged.vocabulary_size:,} words"
        other = f"{merged.merged:.2f} with {merged.rare_words:,} rare ones of them as <unk>"
        sentence, data = f"{model} on {split}: {own}, {other}", asdict(merged)
    else:
        found = evaluate_model(
            model, split, device=device, cache=cache, corpus=corpus, words=words, trust_code=trust_code
        )
        sentence = _describe_evaluation(found)
        data = {
            **found.metrics.model_dump(exclude_none=True),
            **found.text_figures,
            "split": found.split,
            "protocol": found.label,
            "model": found.model,
            "ideal": found.ideal_perplexity,
            "cache": found.cache and found.cache.model_dump(),
            "interval": found.interval,
        }
    if json:
        out.print_json(data=data)
    else:
        out.print_line(sentence)


def _require_model(model: str) -> None:
    """Raise TrackingError for an unknown model before torch takes seconds and hundreds of megabytes."""
    from memtune.settings import Settings
    from memtune.tracking import is_package, require_registered

    if not is_package(model):
        require_registered(Settings.from_environment().tracking_uri, model)


def _score_sentences(file: Path, model: str, device: str, trust_code: bool, json: bool) -> None:
    """Print the log probability of each sentence of a file, of its words, and of all sentences together."""
    from memtune.corpora.sources.line_reader import LineReader
    from memtune.results.loaded_models import load, score

    with closing(LineReader(file)) as reader:
        texts = [line.strip() for _, line in reader.read_lines() if line.strip()]
    if not texts:
        raise ConfigurationError(f"{file} has no sentences; write one a line")
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
    total, count = math.fsum(each.log_probability for each in found), sum(len(each.words) for each in found)
    perplexity = Objective.PERPLEXITY.compute_figure(-total / count)
    sentences = format_count(len(found), "sentence")
    typer.echo(f"{total:.4f}\ttotal of {sentences}\tperplexity {perplexity:.3f} per word, <eos> included")


def _describe_evaluation(found: "EvaluationResult") -> str:
    text = f"{found.corpus} {found.split}" if found.corpus else found.split
    sentence = f"{found.model} on {text}: {_describe_figures(found)}"
    if found.interval is not None:
        low, high = found.interval
        is_accuracy = found.metrics.accuracy is not None
        bounds = f"of the accuracy {low:.2%} to {high:.2%}" if is_accuracy else f"{low:.2f} to {high:.2f}"
        sentence += f", 95 % interval {bounds}"
    sentence += f", protocol {found.label}"
    if cache := found.cache:
        sentence += f", cache of {cache.size:,} words, flatness {cache.flatness:g}, weight {cache.weight:g}"
    return sentence + (f", ideal {found.ideal_perplexity:.4f}" if found.ideal_perplexity else "")


def _describe_figures(found: "EvaluationResult") -> str:
    """The accuracy of examples or questions, and the perplexity of a text per token, word and byte."""
    metrics, units = found.metrics, found.text_figures
    tied = f" ({format_count(metrics.ties, 'tie')})" if metrics.ties else ""
    if found.unit == "examples":
        return f"accuracy {metrics.accuracy:.4%} of {metrics.tokens:,} examples{tied}"
    figures = f"perplexity {metrics.perplexity:.2f} over {metrics.tokens:,} tokens"
    if found.units is not None:
        words = units["word_perplexity"]
        differs = not math.isclose(words, metrics.perplexity or 0.0)
        figures += f", {words:.2f} per word" if differs and found.units.has_words else ""
        figures += f", {units['bits_per_byte']:.4f} bits per byte"
        if found.units.lost:
            figures += f", {found.units.lost:,} tokens read as <unk>, so that these are lower bounds"
    asked = f"accuracy {metrics.accuracy:.4%} of {metrics.questions:,}{tied}, " if metrics.questions else ""
    return f"{asked}{figures}"


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
    _require_model(model)
    from memtune.results.loaded_models import GenerationOptions, load, write_tokens

    loaded = load(model, device=device, trust_code=trust_code)
    options = GenerationOptions(tokens=tokens, temperature=temperature, top_k=top_k, seed=seed)
    written = write_tokens(loaded, prompt, options)
    if loaded.rules.tokens == "words":
        _print_tokens([prompt] if prompt else [], written, " ".join, waits=False)
    else:
        given = [loaded.vocabulary[number] for number in loaded.reader.read(prompt).ids]
        _print_tokens(given, written, loaded.reader.join, waits=True)


def _print_tokens(
    given: list[str], tokens: Iterable[str], join: Callable[[Sequence[str]], str], *, waits: bool
) -> None:
    """Print words, characters or parts of words as they come, and a new line for each end of a sentence.

    Where tokens may be parts of characters, one `waits` until its bytes are complete.
    """
    sentence, printed = list(given), join(given)
    typer.echo(show_control_characters(printed), nl=False)
    for token in tokens:
        if token == END_OF_SENTENCE:
            typer.echo()
            sentence, printed = [], ""
            continue
        sentence.append(token)
        text = join(sentence)
        if not (waits and text.endswith(INCOMPLETE)):
            typer.echo(show_control_characters(text[len(printed) :]), nl=False)
            printed = text
    typer.echo()


def ask(
    models: ModelNames,
    questions: QuestionCorpus = None,
    task: QuestionTask = None,
    split: SplitName = "valid",
    unknown: Annotated[
        Literal["count", "skip"] | None,
        typer.Option(help="Completion: words outside the vocabulary."),
    ] = None,
    context: Annotated[
        Literal["sentence", "text"] | None,
        typer.Option(help="Agreement: read each sentence alone, or the text as one sequence."),
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="Folder for one TSV file per model, with one line per question.")
    ] = None,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    json: AsJson = False,
) -> None:
    """Ask language models to complete sentences or to choose verbs, and compare the mistakes of several.

    Example: memtune ask models:/ptb/1 models:/ptb/2 --questions linzen --split valid
    """
    given = (("unknown", "completion", unknown), ("context", "agreement", context))
    options = {name: value for name, _, value in given if value is not None}
    for name, own_task, value in given:
        if value is not None and (task not in (None, own_task) or len(options) > 1):
            raise typer.BadParameter(
                f"only the task {own_task} has this option; leave it out", param_hint=f"--{name}"
            )
    from memtune.reports.answer_tables import draw_mistakes, make_answers_table, make_mistakes_table
    from memtune.reports.figure_files import save_figure
    from memtune.results.question_answers import ask as ask_models
    from memtune.results.question_answers import find_shared_mistakes
    from memtune.settings import Settings

    found = ask_models(models, questions, task, split, options, device=device, trust_code=trust_code)
    if answers is not None:
        answers.mkdir(parents=True, exist_ok=True)
        for model in found:
            name = model.model_uri.removeprefix("models:/").replace("/", "-")
            model.answers.write_tsv(answers / f"{name}.tsv")
    if json:
        out.print_json(data=[_dump_answers(model) for model in found])
        return
    title = f"{found[0].answers.kind}, {questions or 'own questions'}, {split}"
    out.print(make_answers_table(found, title))
    if len(found) > 1:
        shared = find_shared_mistakes(found)
        out.print(make_mistakes_table(shared))
        path = Settings.from_environment().home / "figures" / f"mistakes_{questions or 'own'}.png"
        save_figure(draw_mistakes(shared), path)
        out.print_line(f"figure: {path}")


def _dump_answers(model_answers: "ModelAnswers") -> dict[str, Any]:
    from memtune.reports.answer_tables import group_answers

    groups = {name: _dump_accuracy(answers) for name, answers in group_answers(model_answers.answers)}
    record = {
        "model": model_answers.model_uri,
        "family": model_answers.family,
        "task": model_answers.answers.kind,
        **groups.pop("all"),
    }
    return {**record, "unknown_rate": model_answers.unknown_rate, "by_attractors": groups or None}


def _dump_accuracy(answers: "Answers") -> dict[str, Any]:
    count = answers.question_count
    counts = {"questions": count, "not_asked": len(answers.names) - count, "ties": answers.tie_count}
    low, high = answers.compute_confidence_interval() if count else (None, None)
    return {**counts, "accuracy": answers.accuracy if count else None, "low": low, "high": high}
