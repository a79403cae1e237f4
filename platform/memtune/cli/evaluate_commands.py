"""`memtune evaluate`, `generate` and `ask`: questions to trained models."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memtune.cli.shell_completion import complete_corpus
from memtune.cli.terminal import (
    AsJson,
    Device,
    ModelName,
    ModelNames,
    QuestionCorpus,
    QuestionTask,
    SplitName,
    TrustCode,
    out,
    warn,
)
from memtune.errors import ConfigurationError
from memtune.number_format import format_count
from memtune.reports.text_console import show_control_characters

if TYPE_CHECKING:
    from memtune.results.model_evaluation import EvaluationResult
    from memtune.results.question_answers import ModelAnswers
    from memtune.tasks import Answers, ContinuousCache


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
    from memtune.results.model_evaluation import compute_merged_perplexity
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
    task_options = {"unknown": unknown, "context": context}
    options = {name: value for name, value in task_options.items() if value is not None}
    _check_options(task, options)
    # Imported here: importing PyTorch takes seconds, and help and wrong usage do not need it.
    from memtune.reports.answer_tables import make_answers_table
    from memtune.results.question_answers import ask as ask_models
    from memtune.settings import Settings

    model_answers = ask_models(models, questions, task, split, options, device=device, trust_code=trust_code)
    if answers is not None:
        answers.mkdir(parents=True, exist_ok=True)
        for model in model_answers:
            model.answers.write_tsv(
                answers / f"{model.model_uri.removeprefix('models:/').replace('/', '-')}.tsv"
            )
    if json:
        out.print_json(data=[_dump_answers(model) for model in model_answers])
        return
    kind = model_answers[0].answers.kind
    out.print(make_answers_table(model_answers, f"{kind}, {questions or 'own questions'}, {split}"))
    if len(model_answers) > 1:
        _print_overlap(
            model_answers, Settings.from_environment().home / "figures" / f"mistakes_{questions or 'own'}.png"
        )


def _check_options(task: str | None, options: Collection[str]) -> None:
    """Raise BadParameter for an option of a task that is not `task`, and for options of two tasks."""
    tasks = {"unknown": "completion", "context": "agreement"}
    for name in options:
        if task not in (None, tasks[name]) or len(options) > 1:
            raise typer.BadParameter(
                f"only the task {tasks[name]} has this option; leave it out", param_hint=f"--{name}"
            )


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


def _print_overlap(model_answers: "list[ModelAnswers]", path: Path) -> None:
    from memtune.reports.inspection.figure_files import save_figure
    from memtune.reports.inspection.inspection_tables import make_mistakes_table
    from memtune.reports.inspection.stack_figures import draw_mistakes
    from memtune.results.inspection.shared_mistakes import find_shared_mistakes

    found = find_shared_mistakes(model_answers)
    out.print(make_mistakes_table(found))
    save_figure(draw_mistakes(found), path)
    out.print(f"figure: {path}", soft_wrap=True)
