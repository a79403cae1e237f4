"""`memtune search` and `memtune demo`: run a study with this process as the driver."""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memtune.cli.compare_commands import compare
from memtune.cli.corpus_commands import corpus_demo
from memtune.cli.shell_completion import complete_study, complete_study_file
from memtune.cli.terminal import out, print_pages, print_registration, reserve_output, warn
from memtune.gc_pause import pause_gc
from memtune.library import format_resumption
from memtune.number_format import format_amount, format_count, format_duration

if TYPE_CHECKING:
    from memtune.objective import Objective
    from memtune.results.study.study_detail import SearchResult
    from memtune.studies.definition.resolved_study import ResolvedStudy
    from memtune.studies.definition.study import Study
    from memtune.studies.study_check import CoreSeconds

StudyFile = Annotated[
    Path,
    typer.Argument(
        help="A study, as a TOML file, or the name of a packaged one.", autocompletion=complete_study_file
    ),
]
Trials = Annotated[int | None, typer.Option(min=1, help="Total number of trials.")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Train also what another study of this home has trained.")
]


def _parse_gpu_share(text: str) -> float | Literal["fit"]:
    """A number of GPUs, or "fit". Raises BadParameter, which is wrong usage."""
    try:
        return "fit" if text == "fit" else float(text)
    except ValueError:
        raise typer.BadParameter(f'"{text}" is neither a number of GPUs nor "fit"') from None


@dataclass(frozen=True)
class BudgetOptions:
    """What a study may take, in place of what its file says."""

    trials: Trials = None
    gpus_per_trial: Annotated[
        Any,
        typer.Option(
            parser=_parse_gpu_share,
            metavar="NUMBER|fit",
            help="GPUs per trial; 0.5 shares one GPU, fit estimates the share.",
        ),
    ] = None
    time_budget: Annotated[str | None, typer.Option(help="Time for the study, such as 90s, 15m or 2h.")] = (
        None
    )

    def collect(self) -> dict[str, Any]:
        """The options that were given, as overrides of entries of a study's file, by dotted name."""
        options = {
            "budget.trials": self.trials,
            "budget.time": self.time_budget,
            "resources.gpus_per_trial": self.gpus_per_trial,
        }
        return {name: value for name, value in options.items() if value is not None}

    def list_words(self) -> list[str]:
        """The options that were given, as a user types them."""
        given = ((name.replace("_", "-"), value) for name, value in vars(self).items() if value is not None)
        return [f"--{name} {shlex.quote(str(value))}" for name, value in given]


def search(
    study: StudyFile,
    budget: BudgetOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the study and print samples of it; start nothing.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="With --dry-run: print JSON for a script.", callback=reserve_output),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a study that was started before.")] = False,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster; default: this machine.")
    ] = None,
    no_cache: NoCache = False,
    warm_start: Annotated[
        str | None,
        typer.Option(
            "--from", help="Try the best configurations of this study first.", autocompletion=complete_study
        ),
    ] = None,
) -> None:
    """Run a study: sample, train, stop weak trials early, register the best model.

    Example: memtune search demo --trials 8
    """
    # Imported here, as in every command: torch and Ray load for seconds, which help need not wait for.
    from memtune.library import FileKind, find_file
    from memtune.studies.definition.toml_files import check_document

    overrides = budget.collect()
    if json and not dry_run:
        raise typer.BadParameter(
            "needs --dry-run; to print the results of a search as JSON: memtune compare --json"
        )
    file = find_file(FileKind.STUDY, study)
    check_document(file, ("question", "corpus"))
    if warm_start is not None:
        from memtune.results.study.study_view import open_view

        overrides["warm_start"] = open_view(warm_start).id
    if dry_run:
        _dry_run(file, overrides, json)
        return
    from memtune.api import search_study

    result = search_study(file, overrides, resume=resume, reuse=not no_cache, address=address, console=out)
    place = [] if address is None else [f"--address {shlex.quote(address)}"]
    _print_result(study, result, [*budget.list_words(), *place, *(["--no-cache"] if no_cache else [])])


def demo(trials: Trials = None) -> None:
    """Import the embedded corpus, run the study `demo` on it here, and show the leaderboard.

    It takes minutes and needs neither files nor a network. `memtune study new demo` copies the study; in that
    folder, this command runs the copy.

    Example: memtune demo
    """
    corpus_demo()
    search(Path("demo"), BudgetOptions(trials))
    compare("grammar", study="demo")


def _print_result(study: Path, result: "SearchResult", options: Sequence[str]) -> None:
    """Print the tables of a run, and how it ended; `options` continue it in the same way.

    Raises Exit with code 1 after an interruption.
    """
    from memtune.reports.trial_tables import make_alternatives_table, make_spread_table
    from memtune.results.study.ranking import explain_lack
    from memtune.tracking import link_corpus

    resolved, resumption = result.resolved, format_resumption(study, options)
    if result.is_interrupted:
        if result.fault:
            warn(f"no trial can run: {result.fault}")
        warn(f"stopped with {result.describe_open()} open; to resume: {resumption}")
        raise typer.Exit(1)
    if result.view.ranking:
        out.print(make_alternatives_table(result.view, resolved.study.question))
        if (spread := make_spread_table(result.view)).row_count:
            out.print(spread)
    for statement in result.conclusion.statements if result.conclusion else ():
        out.print_line(statement)
    if result.view.ranking:
        print_registration(result.registration, resolved.has_test_split)
    if result.is_recorded:
        print_pages(link_corpus(resolved.settings.tracking_uri, resolved.corpus.name, result.view.label))
    _print_spent_budget(study, result, options)
    if not result.is_recorded:
        warn(f"the tracking store lacks some records; send them with: {resumption}")
    if not result.view.ranking:
        warn(explain_lack(result.view.trials))
        raise typer.Exit(1)


def _print_spent_budget(study: Path, result: "SearchResult", options: Sequence[str]) -> None:
    max_trials, size = result.resolved.max_trials, result.resolved.space.size()
    if result.spent_budget:
        lacks_repeats = result.resolved.study.repeats.are_asked_for and not result.repeats
        repeats = ", and no repeat started" if lacks_repeats else ""
        rest = [each for each in options if not each.startswith("--time-budget")]
        warn(
            f"{result.spent_budget}; {result.describe_open()} open{repeats}; to continue, change it under "
            f"[budget] and run: {format_resumption(study, rest, is_edited=True)}"
        )
    elif size == max_trials:
        out.print_line(f"every configuration of the space has had its trial or was refused: {size:,}")
    elif len(result.outcomes) >= max_trials:
        more = [each for each in options if not each.startswith("--trials")]
        out.print_line(
            f"budget.trials is reached: {max_trials:,}; to continue with more: "
            f"{format_resumption(study, more)} --trials {2 * max_trials}"
        )


def _dry_run(study: Path, overrides: dict[str, Any], json: bool) -> None:
    with pause_gc():
        from memtune.reports.trial_tables import make_sample_table
        from memtune.search import StudyReader
        from memtune.spaces import FAMILY_FIELD
        from memtune.studies.study_check import MAX_DRAWS, MEASURED_BYTES, dry_run, measure_core_seconds
        from memtune.values import flatten

    resolved, samples = checked = dry_run(study, overrides)
    refusals, problems = checked.refusals, resolved.list_draw_problems(range(MAX_DRAWS))
    if json:
        found = {"id": resolved.id, "study": resolved.study, "samples": samples, "refusals": refusals}
        out.print_json(data={**found, "refused_draws": problems, "alternatives": resolved.alternatives})
        return
    study_config, sample, size = resolved.study, samples[0], resolved.space.size()
    points = "infinitely many configurations" if size is None else format_count(size, "configuration")
    out.print(f"study {resolved.id}: {study_config.question}")
    out.print(f"corpus {study_config.corpus}, {sample.label}, spaces {', '.join(study_config.spaces)}")
    trials = f"{format_count(resolved.max_trials, 'trial')} of {points}"
    length = f"{resolved.trial_tokens:,} {sample.task.prediction_unit} each"
    how = f"sampler {study_config.sampler.kind}, {resolved.early_stopping.describe()}"
    out.print(f"{trials}, {length}, {how}")
    for family, own in study_config.families.items():
        fields = (f"{name} = {value}" for name, value in flatten(own.model_dump()))
        out.print_line(f"{family} alone: {', '.join(fields)}")
    if (field := study_config.compare) != FAMILY_FIELD:
        out.print_line(f"alternatives by {field}: {', '.join(resolved.alternatives)}")
        for name, families in resolved.alternatives.items():
            if families == [name]:
                out.print_line(f"{name} has no {field}, so it is an alternative of its own")
    out.print(make_sample_table(samples, resolved.vocabulary_size, resolved.searched_fields, refusals))
    if problems:
        out.print_line(
            f"{len(problems)} of {MAX_DRAWS} random draws are no trial and would not start, for instance "
            f"because {problems[0]}"
        )
    has_begun = StudyReader(resolved.settings.study_database).has_begun(resolved.id)
    if not has_begun:  # it keeps its own
        _print_initial_points(resolved)
    _print_prior(resolved, has_begun=has_begun)
    _print_base_width(resolved)
    _print_budget(study_config, resolved.task.objective)
    alternatives, budget = len(resolved.alternatives), study_config.budget
    if budget.trials < alternatives:
        warn(f"budget.trials = {budget.trials} leaves some of {alternatives} alternatives untried")
    started = [sample for sample, refusal in zip(samples, refusals, strict=True) if refusal is None]
    if (seconds := measure_core_seconds(resolved, started)) is not None:
        repeats = resolved.count_repeats()
        _print_estimate(resolved, repeats, seconds)
        _warn_of_small_budgets(resolved, alternatives, repeats[0], seconds)
    elif started:
        out.print(
            "core hours: not measured, because a trial needs a GPU, or one of these may take more than "
            f"{MEASURED_BYTES / 2**30:,.0f} GiB of memory or half of what is free"
        )
    out.print("nothing was started")


def _print_base_width(resolved: "ResolvedStudy") -> None:
    """Print how one learning rate serves all widths of a study that searches them, where it can."""
    if (width := resolved.find_base_width()) is None:
        return
    needed: dict[str, tuple[str, set[object]]] = {
        "training.optimiser.kind": ('"adam" or "adamw"', {"adam", "adamw"}),
        "model.tie_output": ("false", {False}),
        "model.output.kind": ('"softmax"', {"softmax", "none"}),
    }
    searched = [(each.field, each.leaf.test_values()) for each in resolved.space.parameters()]
    needs = " and ".join(
        f"{field} = {text}"
        for field, (text, scaled) in needed.items()
        if any(name == field and not scaled.issuperset(values) for name, values in searched)
    )
    out.print_line(
        f"the width is searched: with training.base_width = {width} one learning rate serves all widths"
        f"{', which needs' if needs else ''} {needs}".rstrip()
    )


def _print_initial_points(resolved: "ResolvedStudy") -> None:
    """Print what is tried first and from where."""
    study = resolved.study
    named = len(resolved.space.paper_points if study.points == "papers" else study.points)
    sources = {
        "the papers" if study.points == "papers" else "the study's points": named,
        study.warm_start: len(resolved.list_initial_points()) - named,
    }
    if shown := [f"{format_count(n, 'configuration')} of {source}" for source, n in sources.items() if n]:
        out.print_line(f"first: {', '.join(shown)}")


def _print_prior(resolved: "ResolvedStudy", *, has_begun: bool) -> None:
    """Print what is believed before the first trial and from where; nothing if it is ignored."""
    from memtune.reports.trial_tables import make_points_table, make_prior_table
    from memtune.search import MAX_PRIOR_POINTS

    sampler = resolved.study.sampler
    if not sampler.follows_prior(len(resolved.study.objectives)):
        return
    if sampler.prior == "studies" and has_begun:
        out.print_line("this study keeps the prior with which it began; one that begins now would have:")
    points = resolved.list_sourced_points()[:MAX_PRIOR_POINTS]
    if not points and sampler.prior:
        missing = {
            "papers": "the spaces have no [[points]]",
            "studies": "no earlier study of this home has a complete trial whose family or training these "
            "spaces search; --from passes whole configurations",
            "none": 'sampler.prior = "none"',
        }
        out.print_line(f"prior: none, because {missing[sampler.prior]}")
    elif sampler.prior:
        counts = Counter(source for _, source in points)
        sources = ", ".join(f"{count} of {source}" for source, count in counts.items())
        out.print_line(f"prior: {format_count(len(points), 'point')}: {sources}")
        out.print(make_points_table([point for point, _ in points]))
    elif points:
        believed = [point for point, _ in points]
        parameters = [p for p in resolved.space.parameters() if p.name in believed[0]]
        if any(getattr(parameter.leaf, "prior", None) for parameter in parameters):
            out.print(make_prior_table(parameters))
        if count := len(resolved.space.prior_points):
            out.print_line(f"prior: {format_count(count, 'point')} of the spaces")
            out.print(make_points_table(believed))
    if sampler.prior is None and (earlier := len(resolved.list_earlier_points())):
        out.print_line(
            f"points of earlier studies that fit these spaces: {earlier}; to begin with them, write "
            'prior = "studies" under [sampler]'
        )


def _print_budget(study: "Study", objective: "Objective") -> None:
    """Print what ends the study besides its trials, and its repeats."""
    from memtune.seed_statistics import MIN_PAIRED_SEEDS

    budget, repeats = study.budget.model_dump(exclude_none=True, exclude={"trials"}), study.repeats
    units = {"time": " s", "money": f" {study.prices.currency}" if study.prices else ""}
    if budget:
        named = (f"{name} = {value:,.12g}{units.get(name, '')}" for name, value in budget.items())
        out.print(f"budget: {', '.join(named)}")
    if repeats.until is not None:
        out.print(
            f"repeats: until decided, up to {repeats.most_seeds} seeds of each trained alternative, "
            f"indifference {repeats.describe_indifference(objective)}"
        )
    elif repeats.are_asked_for:
        configurations = format_count(repeats.best, "configuration")
        out.print(f"repeats: the best {configurations}, {repeats.seeds} seeds each")
        if repeats.best > 1 and repeats.seeds <= MIN_PAIRED_SEEDS:
            warn(
                f"repeats.seeds = {repeats.seeds} leaves {repeats.seeds - 1} besides the search's own, and a "
                f"test needs {MIN_PAIRED_SEEDS}: write seeds = {MIN_PAIRED_SEEDS + 1} or more"
            )


def _print_estimate(resolved: "ResolvedStudy", repeats: tuple[int, int], seconds: "CoreSeconds") -> None:
    """Print what the trials with the fewest and the most repeats take on this machine, as budgets allow."""
    study, trials = resolved.study, resolved.max_trials
    at_once = _count_at_once(study, trials + repeats[0])
    totals = [trials * seconds.trial + count * seconds.repeat for count in repeats]
    allowed = _list_allowed(resolved, at_once, seconds)
    name, most = min(allowed.items(), key=lambda item: item[1], default=("", inf))
    end = f"; budget.{name} ends the study before" if most < totals[1] else ""
    totals = [min(most, total) for total in totals]

    def describe(write: Callable[[float], str]) -> str:
        return " to ".join(dict.fromkeys(map(write, totals)))

    hours = describe(lambda total: format_amount(total / 3600))
    time = describe(lambda total: format_duration(total / study.resources.cpus_per_trial / at_once))
    money = ""
    if (prices := study.prices) is not None:
        amounts = describe(lambda total: format_amount(total / 3600 * prices.cpu_hour))
        money = f" and {amounts} {prices.currency}"
    trainings = f"{format_count(trials, 'trial')} of {format_amount(seconds.trial)}"
    if repeats[1]:
        counts = " to ".join(dict.fromkeys(map("{:,}".format, repeats)))
        trainings += f" and {counts} repeats of {format_amount(seconds.repeat)}"
    out.print(
        f"about {hours} core hours on this machine, without early stopping: {trainings} "
        f"core seconds, measured on samples{end}; {time} with {at_once} at once{money}"
    )


def _list_allowed(resolved: "ResolvedStudy", at_once: int, seconds: "CoreSeconds") -> dict[str, float]:
    """The core seconds that each budget of a study allows on this machine, by its name."""
    budget, prices = resolved.study.budget, resolved.study.prices
    core_seconds = {
        "tokens": seconds.trial / resolved.trial_tokens,
        "time": resolved.study.resources.cpus_per_trial * at_once,
        "cpu_hours": 3600,
        "money": 3600 / prices.cpu_hour if prices and prices.cpu_hour else inf,
    }
    limits = {name: getattr(budget, name) for name in core_seconds}
    return {name: limit * core_seconds[name] for name, limit in limits.items() if limit is not None}


def _count_at_once(study: "Study", trainings: int) -> int:
    """How many of some trainings this machine has room for at a time."""
    room = max(1, (os.cpu_count() or 1) // study.resources.cpus_per_trial)
    return min(trainings, room, study.resources.max_concurrent or trainings)


def _warn_of_small_budgets(
    resolved: "ResolvedStudy", alternatives: int, repeats: int, seconds: "CoreSeconds"
) -> None:
    """Warn of budgets that end before each alternative has had a whole trial and its first repeats."""
    at_once = _count_at_once(resolved.study, alternatives + repeats)
    needed = seconds.trial * alternatives + seconds.repeat * repeats
    named = format_count(alternatives, "alternative")
    more = f" and {format_count(repeats, 'repeat')}" if repeats else ""
    for name, allowed in _list_allowed(resolved, at_once, seconds).items():
        limit = getattr(resolved.study.budget, name)
        trainings = (alternatives + repeats) * resolved.trial_tokens
        amount = trainings if name == "tokens" else limit * needed / allowed if allowed else 0
        if amount > limit:
            taken = format_duration(amount) if name == "time" else format_amount(amount)
            where = "" if name == "tokens" else " on this machine"
            warn(
                f"budget.{name} = {limit:,.12g}{' s' if name == 'time' else ''} ends before a whole trial of "
                f"each of {named}{more}, which take about {taken}{where}"
            )
