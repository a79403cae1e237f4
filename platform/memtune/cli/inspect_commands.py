"""`memtune inspect ...`: what trained models do with their memory; one command for each figure of a paper."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from memtune.cli.terminal import (
    AsJson,
    Device,
    ModelName,
    ModelNames,
    QuestionCorpus,
    QuestionTask,
    SplitName,
    StudyName,
    TrustCode,
    corpus_option,
    figure_option,
    out,
)
from memtune.reports.figure_files import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from memtune.results.inspection.sentence_readings import TextChoice
    from memtune.results.loaded_models import TrainedModel

T = TypeVar("T")
app = typer.Typer(
    help="What trained models do with their memory: the figures of the papers, with tables and JSON.",
    no_args_is_help=True,
)
Layer = Annotated[
    int | None, typer.Option(min=1, help="Layer with attention, 1 is the lowest; default: the last.")
]
SentenceNumber = Annotated[int, typer.Option("--sentence", min=0, help="The sentence, counted from 0.")]
Rows = Annotated[int, typer.Option(min=1, help="Rows of the table and of the figure.")]
MinDistance = Annotated[
    int, typer.Option(min=1, help="Attention counts from this many words before the predicted word on.")
]


@dataclass(frozen=True)
class TextOptions:
    """The text that is read."""

    split: SplitName = "valid"
    corpus: Annotated[
        str | None, corpus_option("Another corpus, such as one with trees; default: the model's own.")
    ] = None
    text: Annotated[str | None, typer.Option(help="Words separated by blanks, read in place of a split.")] = (
        None
    )
    sentences: Annotated[
        int | None, typer.Option(min=1, help="Sentences from the start of the split; default: all.")
    ] = None
    device: Device = "cpu"
    trust_code: TrustCode = False

    def open(self, name: str) -> "tuple[TrainedModel, TextChoice]":
        """A model, and the text that it reads."""
        # Imported here, as in every command: torch and MLflow load for seconds, which help need not wait for.
        from memtune.results.inspection.sentence_readings import TextChoice
        from memtune.results.loaded_models import open_model

        opened = open_model(name, device=self.device, trust_code=self.trust_code)
        choice = TextChoice(split=self.split, corpus=self.corpus, text=self.text, sentences=self.sentences)
        return opened, choice


@dataclass(frozen=True)
class OutputOptions:
    """What is printed and written."""

    figure: Annotated[
        Path | None, figure_option("--out", "Write the figure to this file: .svg, .png or .pdf.")
    ] = None
    json: AsJson = False

    def show(
        self,
        found: T,
        make_tables: "Callable[[T], Table | list[Table]]",
        draw: "Callable[[T], Figure]",
        model: "TrainedModel | None" = None,
    ) -> None:
        """Print the values as JSON or as tables, and write the figure where a file is named.

        Tables and figures have the text of the subwords of `model` in place of the tokens.
        """
        shown = found
        if model is not None:
            from memtune.reports.inspection.shown_words import show_words

            shown = show_words(found, model)
        if self.figure is not None:
            save_figure(draw(shown), self.figure)
        if self.json:
            out.print_json(data=found)
            return
        tables = make_tables(shown)
        for table in tables if isinstance(tables, list) else [tables]:
            out.print(table)
        if self.figure is not None:
            out.print_line(f"figure: {self.figure}")


@app.command()
def positions(models: ModelNames, text: TextOptions, output: OutputOptions, layer: Layer = None) -> None:
    """Mean attention by position in the memory (Tran 2016, figure 3).

    Example: memtune inspect positions models:/ptb/1 models:/ptb/2 --out positions.svg
    """
    from memtune.reports.inspection.attention_views import draw_positions, make_positions_table
    from memtune.results.inspection.attention_weights import average_positions

    found = [average_positions(*text.open(name), layer) for name in models]
    output.show(found, make_positions_table, draw_positions)


@app.command()
def samples(
    model: ModelName,
    text: TextOptions,
    output: OutputOptions,
    words: Annotated[int, typer.Option(min=1, help="Predicted words to sample.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample.")] = 0,
    layer: Layer = None,
) -> None:
    """Attention by position for a random sample of predicted words (Tran 2016, figure 4).

    Example: memtune inspect samples models:/ptb@champion --words 60 --out samples.png
    """
    from memtune.reports.inspection.attention_views import draw_samples, make_samples_table
    from memtune.results.inspection.attention_weights import sample_attention

    inspected, choice = text.open(model)
    found = sample_attention(inspected, choice, words, seed, layer)
    title = f"{inspected.name}: attention before {len(found)} sampled words"
    table, draw = partial(make_samples_table, title=title), partial(draw_samples, title=title)
    output.show(found, table, draw, inspected)


@app.command()
def examples(
    model: ModelName,
    text: TextOptions,
    output: OutputOptions,
    count: Annotated[int, typer.Option(min=1, help="Examples to show.")] = 3,
    min_distance: MinDistance = 7,
    max_rank: Annotated[
        int, typer.Option(min=1, help="The correct word is among this many likeliest words.")
    ] = 5,
    layer: Layer = None,
) -> None:
    """Predictions that attend to a distant word, with the five likeliest next words (Tran, figure 5).

    Example: memtune inspect examples models:/ptb@champion --count 5 --out examples.svg
    """
    from memtune.reports.inspection.attention_views import draw_examples, make_examples_table
    from memtune.results.inspection.attention_weights import find_distant_examples

    inspected, choice = text.open(model)
    found = find_distant_examples(inspected, choice, count, min_distance, max_rank, layer)
    title = f"{inspected.name}: most attention to a word at least {min_distance} words before"
    table, draw = partial(make_examples_table, title=title), partial(draw_examples, title=title)
    output.show(found, table, draw, inspected)


@app.command()
def pairs(
    model: ModelName,
    text: TextOptions,
    output: OutputOptions,
    min_distance: MinDistance = 7,
    window: Annotated[
        int | None,
        typer.Option(min=1, help="Largest distance of a co-occurrence; default: the largest attended."),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Pairs to list, the most frequent first.")] = 10,
    layer: Layer = None,
) -> None:
    """Pairs of most attended and predicted word by distance, with their training counts (Tran, table 3).

    Example: memtune inspect pairs models:/ptb@champion --split test --json
    """
    from memtune.reports.inspection.attention_views import draw_pair_counts, make_pair_tables
    from memtune.results.inspection.word_pairs import count_attended_pairs

    inspected, choice = text.open(model)
    found = count_attended_pairs(inspected, choice, min_distance, window, layer)
    output.show(found, partial(make_pair_tables, rows=rows), draw_pair_counts, inspected)


@app.command()
def relations(
    model: ModelName,
    text: TextOptions,
    output: OutputOptions,
    max_steps: Annotated[
        int, typer.Option(min=1, help="Most relations on a path between two words; 1 is direct relations.")
    ] = 1,
    min_pairs: Annotated[int, typer.Option(min=1, help="Leave out paths with fewer pairs of words.")] = 10,
    rows: Rows = 10,
    layer: Layer = None,
) -> None:
    """Attention by dependency relation, direction and path (Tran 2016, figure 6); needs trees.

    Example: memtune inspect relations models:/ptb@champion --corpus ud --max-steps 3
    """
    from memtune.reports.inspection.attention_views import draw_dependencies, make_dependencies_table
    from memtune.results.inspection.word_pairs import average_dependencies

    found = average_dependencies(*text.open(model), max_steps, min_pairs, layer)
    output.show(found, partial(make_dependencies_table, rows=rows), partial(draw_dependencies, rows=rows))


@app.command()
def links(
    model: ModelName,
    text: TextOptions,
    output: OutputOptions,
    number: SentenceNumber = 0,
    min_weight: Annotated[
        float, typer.Option(min=0, max=1, help="Leave out weaker links of the table and of the arcs.")
    ] = 0.2,
    style: Annotated[
        Literal["arcs", "matrix"], typer.Option(help="Arcs over the sentence, or a row for each word read.")
    ] = "arcs",
) -> None:
    """Attention between the words of one sentence, layer by layer (Cheng 2016, figures 1, 4, 5).

    Example: memtune inspect links models:/ptb@champion --text "the company said it will" --out links.svg
    """
    from memtune.reports.inspection.attention_views import draw_link_arcs, draw_link_matrix, make_links_table
    from memtune.results.inspection.word_pairs import find_links

    inspected, choice = text.open(model)
    found = find_links(inspected, choice, number)
    draw = draw_link_matrix if style == "matrix" else partial(draw_link_arcs, min_weight=min_weight)
    output.show(found, partial(make_links_table, min_weight=min_weight), draw, inspected)


@app.command()
def influence(
    models: ModelNames,
    text: TextOptions,
    output: OutputOptions,
    words: Annotated[
        int, typer.Option(min=1, help="Predictions to read, from the start of the text.")
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the words that replace others.")] = 0,
) -> None:
    """How far back predictions depend on words, in nats by distance; for every network that reads text.

    Example: memtune inspect influence models:/ptb/1 models:/ptb/2 --out influence.svg
    """
    from memtune.reports.inspection.word_views import draw_influence, make_influence_table
    from memtune.results.inspection.word_influence import average_influence

    found = [average_influence(*text.open(name), words, seed) for name in models]
    output.show(found, make_influence_table, draw_influence)


@app.command()
def words(
    models: ModelNames,
    output: OutputOptions,
    split: SplitName = "valid",
    device: Device = "cpu",
    trust_code: TrustCode = False,
) -> None:
    """On which words models differ: perplexity by what was read before and by training count.

    Example: memtune inspect words models:/ptb/1 models:/ptb/2 --out words.svg
    """
    from memtune.reports.inspection.word_views import draw_groups, make_groups_table
    from memtune.results.inspection.word_groups import compare_on_groups
    from memtune.results.loaded_models import open_model

    opened = [open_model(name, device=device, trust_code=trust_code) for name in models]
    found = compare_on_groups(opened, split)
    output.show(found, make_groups_table, draw_groups)


@app.command("stack-actions")
def stack_actions(model: ModelName, text: TextOptions, output: OutputOptions) -> None:
    """Most probable actions of a stack and their peakedness (Yogatama 2018, figure 3).

    Example: memtune inspect stack-actions models:/ptb@champion --out actions.svg
    """
    from memtune.reports.inspection.stack_views import draw_stack_statistics, make_stack_actions_table
    from memtune.results.inspection.stack_use import count_stack_actions

    found = count_stack_actions(*text.open(model))
    output.show(found, make_stack_actions_table, draw_stack_statistics)


@app.command("stack-sentence")
def stack_sentence(
    model: ModelName, text: TextOptions, output: OutputOptions, number: SentenceNumber = 0
) -> None:
    """Actions and contribution of a stack at each word of a sentence (Yogatama 2018, figures 4 and 5).

    Example: memtune inspect stack-sentence models:/ptb@champion --text "the loss of basic needs"
    """
    from memtune.reports.inspection.stack_views import draw_sentence_stack, make_stack_steps_table
    from memtune.results.inspection.stack_use import describe_stack_use

    inspected, choice = text.open(model)
    found = describe_stack_use(inspected, choice, number)
    output.show(
        [found],
        lambda shown: make_stack_steps_table(shown[0]),
        lambda shown: draw_sentence_stack(shown[0]),
        inspected,
    )


@app.command()
def mistakes(
    models: ModelNames,
    output: OutputOptions,
    questions: QuestionCorpus = None,
    task: QuestionTask = None,
    split: SplitName = "valid",
    device: Device = "cpu",
    trust_code: TrustCode = False,
) -> None:
    """Questions that the same models get wrong, and McNemar's tests (Yogatama 2018, figure 2).

    Example: memtune inspect mistakes models:/ptb/1 models:/ptb/2 --questions linzen --out mistakes.svg
    """
    from memtune.reports.answer_tables import draw_mistakes, make_mcnemar_table, make_mistakes_table
    from memtune.results.question_answers import ask, find_shared_mistakes

    if len(models) < 2:
        raise typer.BadParameter("needs two models or more", param_hint="MODELS")
    found = find_shared_mistakes(ask(models, questions, task, split, device=device, trust_code=trust_code))
    output.show(found, lambda own: [make_mistakes_table(own), make_mcnemar_table(own)], draw_mistakes)


@app.command()
def accuracy(models: ModelNames, output: OutputOptions) -> None:
    """Accuracy against perplexity over the reports of trainings (Mirowski and Vlachos 2015, figure 2).

    Example: memtune inspect accuracy models:/ptb+linzen/1 models:/ptb+linzen/2 --out accuracy.svg
    """
    from memtune.reports.inspection.curve_views import draw_accuracies, make_accuracies_table
    from memtune.results.inspection.parameter_curves import read_accuracy_reports

    found = read_accuracy_reports(models)
    output.show(found, make_accuracies_table, draw_accuracies)


@app.command()
def parameter(
    study: StudyName,
    name: Annotated[str, typer.Argument(help="A parameter, such as model.phi.")],
    output: OutputOptions,
    style: Annotated[
        Literal["best", "trajectories"],
        typer.Option(help="Best validation by value, or validation against training during each trial."),
    ] = "best",
) -> None:
    """A study over one parameter as curves (Benes 2017, figures 3, 4 and 5).

    Example: memtune inspect parameter benes2017_phi model.phi --out phi.svg
    """
    from memtune.reports.inspection.curve_views import draw_parameter, draw_trajectories, make_parameter_table
    from memtune.results.inspection.parameter_curves import collect_parameter_curves

    found = collect_parameter_curves(study, name)
    draw = draw_parameter if style == "best" else draw_trajectories
    output.show(found, make_parameter_table, draw)
