"""Tables of trials: columns of differing fields, and families by their best trial."""

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from memtune.objective import Objective
from memtune.reports.text_console import TextConsole
from memtune.reports.trial_tables import (
    make_alternatives_table,
    make_leaderboard_table,
    make_points_table,
    make_sample_table,
    make_spread_table,
    make_tokenisation_table,
)
from memtune.results.comparison import TokenisationRow
from memtune.results.study.study_leaderboard import describe_settings, make_leaderboard
from memtune.search import StoredTrial
from memtune.tracking import LeaderboardRow
from memtune.training import TrialConfig
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.values import flatten
from tests.unit.results.made_trials import make_view


def render(table: Table, width: int = 200) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def make_row(study: str = "s-0123abcd", **model: Any) -> LeaderboardRow:
    return LeaderboardRow(
        name="lstm #0",
        family="lstm",
        alternative="lstm",
        study=study,
        trial="t",
        run_id="r",
        state=TrialState.COMPLETE,
        end=TrialEnd(reason=StopReason.BUDGET),
        protocol="sentence",
        corpus_digest="d",
        parameters={"model.family": "lstm"} | {f"model.{name}": value for name, value in model.items()},
        parameter_count=100,
        tokens=1000,
        objective=Objective.PERPLEXITY,
        figure=12.0,
        place=1,
    )


def make_outcome(number: int, family: str, losses: list[float]) -> StoredTrial:
    configuration = {"model": {"family": family, "width": 4}, "training": {"tokens": 900}}
    curve = {300 * (place + 1): loss for place, loss in enumerate(losses)}
    return StoredTrial(number, str(number), configuration, TrialState.COMPLETE, curve=curve)


def test_a_differing_parameter_is_shown_although_it_is_not_a_key_parameter() -> None:
    tied = render(
        make_leaderboard_table([make_row(tie_output=True), make_row(tie_output=False)], None, "title")
    )
    assert "tie_output=True" in tied
    alike = render(
        make_leaderboard_table([make_row(tie_output=True), make_row(tie_output=True)], None, "title")
    )
    assert "tie_output" not in alike


def test_a_key_parameter_that_all_shown_trials_share_is_left_out_where_others_differ() -> None:
    rows = [make_row(width=8, layers=layers) for layers in (1, 2)]
    shown = render(make_leaderboard_table(rows, None, "title"))
    assert "layers=2" in shown
    assert "width=" not in shown


def test_an_interrupted_trial_is_open_as_in_the_tables_of_its_study() -> None:
    row = make_row().model_copy(update={"state": TrialState.INTERRUPTED, "end": None})
    text = render(make_leaderboard_table([row], None, "title"))
    assert "open" in text
    assert "interrupted" not in text


def test_state_hours_and_memory_of_a_trial_are_shown() -> None:
    sizes = {"carried_state": 2_500, "hours": 1.25, "peak_memory_bytes": 700 * 2**20}
    row = make_row(width=8).model_copy(update=sizes)
    for is_stacked in (True, False):
        text = render(make_leaderboard_table([row], None, "title", is_stacked=is_stacked))
        assert "2,500" in text
        assert "1.25 h" in text
        assert "700 MiB" in text


def test_a_trial_takes_one_line_where_it_is_not_stacked() -> None:
    text = render(make_leaderboard_table([make_row(width=8)], None, "title", is_stacked=False))
    assert sum("lstm #0" in line and "width=8" in line for line in text.splitlines()) == 1


def test_on_60_characters_a_trial_is_a_list_of_whole_numbers_and_names() -> None:
    row = make_row(width=8).model_copy(
        update={"tokens": 1_254_515, "parameter_count": 12_345_678, "hours": 0.000142, "figure": 169.0}
    )
    console = TextConsole(file=StringIO(), width=60)
    console.print(make_leaderboard_table([row], 12.9, "title"))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    for whole in ("lstm #0", "12,345,678", "1,254,515", "0.000142 h", "169.000", "1,210.1 %", "complete"):
        assert whole in text
    assert max(map(len, text.splitlines())) <= 60


def test_a_model_of_another_version_is_shown_with_its_family_alone() -> None:
    assert "lstm" in render(make_leaderboard_table([make_row(width="x")], None, "title"))


def test_a_differing_output_layer_is_shown() -> None:
    softmax: dict[str, Any] = {"output.kind": "softmax"}
    adaptive: dict[str, Any] = {"output.kind": "adaptive", "output.factor": 2}
    rows = [make_row(**softmax), make_row(**adaptive)]
    shown = render(make_leaderboard_table(rows, None, "title"))
    assert "output=adaptive output.factor=2" in shown


def test_a_differing_option_of_the_task_is_shown() -> None:
    rows = [
        make_row().model_copy(
            update={"parameters": {"model.family": "lstm", "task.kind": "inference", "task.fusion": fusion}}
        )
        for fusion in ("none", "deep")
    ]
    shown = render(make_leaderboard_table(rows, None, "title"))
    assert "fusion=none" in shown
    assert "fusion=deep" in shown
    assert "kind=" not in shown


def make_row_with_rate(learning_rate: float, **others: Any) -> LeaderboardRow:
    return make_row().model_copy(
        update={
            "parameters": {
                "model.family": "lstm",
                "training.optimiser.learning_rate": learning_rate,
                "training.tokens": 900,
                **others,
            }
        }
    )


def test_a_differing_learning_rate_is_shown_and_a_differing_budget_is_not() -> None:
    shown = render(
        make_leaderboard_table([make_row_with_rate(0.5), make_row_with_rate(0.031622)], None, "title")
    )
    assert "learning_rate=0.5" in shown
    assert "learning_rate=0.0316" in shown
    budgets = [make_row_with_rate(0.5), make_row_with_rate(0.5, **{"training.tokens": 1800})]
    assert "tokens=" not in render(make_leaderboard_table(budgets, None, "title"))


def test_a_field_that_only_another_family_has_is_not_shown() -> None:
    lstm = make_row(recurrent_dropout=0.0, width=8)
    scrn = {"model.family": "scrn", "model.recurrent_dropout": 0, "model.width": 8}
    other = make_row().model_copy(update={"family": "scrn", "parameters": scrn})
    shown = render(make_leaderboard_table([lstm, lstm, other], None, "title"))
    assert "recurrent_dropout" not in shown


def test_lengths_that_an_earlier_version_recorded_without_their_variant_are_not_shown() -> None:
    earlier, later = make_row(width=1), make_row(width=2)
    lengths = {"protocol.min_length": 10, "protocol.max_length": 80}
    earlier = earlier.model_copy(update={"parameters": earlier.parameters | lengths})
    assert "length" not in render(make_leaderboard_table([earlier, later], None, ""))


def test_the_state_of_a_trial_has_the_reason_of_an_unusual_end() -> None:
    stopped = make_row().model_copy(
        update={
            "state": TrialState.STOPPED,
            "end": TrialEnd(reason=StopReason.EARLY_STOPPING, detail="successive halving at 300 tokens"),
        }
    )
    shown = render(make_leaderboard_table([stopped], None, "title"))
    assert "stopped" in shown
    assert "finished" not in shown
    late = make_row().model_copy(
        update={
            "state": TrialState.STOPPED,
            "end": TrialEnd(reason=StopReason.NO_VALIDATION, detail="no validation"),
        }
    )
    assert "stopped: no validation" in render(make_leaderboard_table([late], None, "title"))
    ended = make_row().model_copy(
        update={"end": TrialEnd(reason=StopReason.NO_IMPROVEMENT, detail="no improvement in 3 reports")}
    )
    assert "complete: no improvement" in render(make_leaderboard_table([ended], None, "title"))


def test_every_table_of_a_study_shows_what_it_searches_and_no_constants() -> None:
    found = make_outcome(0, "lstm", [2.0])
    config = TrialConfig.model_validate(found.configuration)
    again = replace(found, identity="again", configuration={**found.configuration, "seed": 1})
    training = {"tokens": 900, "optimiser": {"kind": "sgd", "learning_rate": 2.0}}
    other = replace(
        make_outcome(1, "lstm", [3.0]), configuration={**found.configuration, "training": training}
    )
    for table in (
        make_alternatives_table(make_view([found, other]), "Which?"),
        make_spread_table(make_view([found, again, other])),
        make_sample_table([config], 10, ("training.optimiser.learning_rate",)),
    ):
        assert "learning_rate=1" in render(table)
        assert "width=" not in render(table)


MIXERS = ("gla", "gated_deltanet")


def test_a_mixer_has_one_name_in_all_that_describes_a_study() -> None:
    configurations = [
        TrialConfig.model_validate(
            {"model": {"family": "mixer_blocks", "mixer": mixer, "width": 8}, "training": {"tokens": 900}}
        )
        for mixer in MIXERS
    ]
    outcomes = [
        StoredTrial(
            number, str(number), config.model_dump(mode="json"), TrialState.COMPLETE, curve={900: 2.0}
        )
        for number, config in enumerate(configurations)
    ]
    view = make_view(outcomes)
    searched = ("model.mixer", "model.width")
    view.terms = view.terms.model_copy(update={"searched_fields": searched, "compare": "model.mixer"})
    entries = make_leaderboard(view).entries
    assert [(entry.alternative, entry.model) for entry in entries] == [
        (f"mixer {mixer}", "width=8") for mixer in MIXERS
    ]
    recorded = [
        make_row().model_copy(
            update={"family": "mixer_blocks", "parameters": dict(flatten(config.model_dump(mode="json")))}
        )
        for config in configurations
    ]
    for table in (
        make_sample_table(configurations, 10, searched),
        make_alternatives_table(view, "Which?"),
        make_leaderboard_table(recorded, None, "title"),
    ):
        assert all(f"mixer={mixer} " in render(table) for mixer in MIXERS)
        assert "matrix_memory" not in render(table)
        assert "mixer." not in render(table)


def test_the_seeds_of_a_configuration_do_not_repeat_its_fields() -> None:
    first = make_row(width=8).model_copy(update={"configuration": "a"})
    seed = first.model_copy(update={"name": "lstm #0 seed 1", "seed": 1, "place": None})
    other = make_row(width=9).model_copy(update={"name": "lstm #1", "configuration": "b"})
    text = render(make_leaderboard_table([first, seed, other], None, "title"))
    assert (text.count("width=8"), text.count("width=9")) == (1, 1)


def test_a_searched_value_is_shown_although_it_is_the_default() -> None:
    mixers = [{"kind": "attention", "window": window} for window in (None, 64)]
    configurations = [
        TrialConfig.model_validate(
            {"model": {"family": "mixer_blocks", "mixer": mixer}, "training": {"tokens": 900}}
        )
        for mixer in mixers
    ]
    shown = [describe_settings(config, ["model.mixer.window"]) for config in configurations]
    assert shown == ["mixer.window=None", "mixer.window=64"]


def test_words_and_numbers_are_not_split_in_100_columns() -> None:
    model = {"family": "recurrent_memory", "width": 64, "layers": 1, "layers_above": 2, "memory_size": 15}
    memory = make_row(study="grammar_memories-0123abcd", **model).model_copy(
        update={
            "name": "recurrent_memory #12",
            "family": "recurrent_memory",
            "state": TrialState.STOPPED,
            "end": TrialEnd(reason=StopReason.EARLY_STOPPING),
            "parameter_count": 12_345_678,
            "tokens": 1_234_567,
        }
    )
    shown = render(make_leaderboard_table([memory, make_row()], 12.3, "title"), 100)
    whole = ["recurrent_memory #12", "grammar_memories-0123abcd", "layers_above=2", "12,345,678", "1,234,567"]
    for part in (*whole, "perplexity", "stopped", "ideal perplexity 12.300"):
        assert part in shown


def test_the_study_is_shown_when_there_are_several() -> None:
    assert "other-0123abcd" in render(
        make_leaderboard_table([make_row(), make_row(study="other-0123abcd")], None, "title")
    )
    assert "s-0123abcd" not in render(make_leaderboard_table([make_row(), make_row()], None, "title"))


def test_the_family_table_has_the_best_trial_of_each_family_best_family_first() -> None:
    wider = make_outcome(2, "lstm", []).configuration | {"model": {"family": "lstm", "width": 8}}
    outcomes = [
        make_outcome(0, "lstm", [2.0, 1.5]),
        make_outcome(1, "rnn", [1.0, 3.0]),
        replace(make_outcome(2, "lstm", [1.25]), configuration=wider),
        make_outcome(3, "scrn", []),
    ]
    table = render(make_alternatives_table(make_view(outcomes), "Which?"))
    lines = [line for line in table.splitlines() if "#" in line]
    assert ["rnn" in lines[0], "#1" in lines[0], "2.718" in lines[0]] == [True, True, True]
    assert ["lstm" in lines[1], "#2" in lines[1], "3.490" in lines[1]] == [True, True, True]
    assert len(lines) == 2


def test_a_study_that_compares_a_field_has_a_row_for_each_of_its_values() -> None:
    wider = make_outcome(1, "lstm", []).configuration | {"model": {"family": "lstm", "width": 8}}
    view = make_view(
        [make_outcome(0, "lstm", [1.5]), replace(make_outcome(1, "lstm", [1.25]), configuration=wider)]
    )
    view.terms = view.terms.model_copy(update={"compare": "model.width"})
    lines = [line for line in render(make_alternatives_table(view, "Which?")).splitlines() if "#" in line]
    assert ["#1" in lines[0], "#0" in lines[1], len(lines)] == [True, True, 2]


def test_a_family_that_was_stopped_early_comes_last_with_its_value_at_the_common_milestone() -> None:
    slow = replace(make_outcome(0, "scrn", [1.0]), state=TrialState.STOPPED)
    outcomes = [slow, make_outcome(1, "rnn", [2.0, 1.5, 1.25])]
    table = render(make_alternatives_table(make_view(outcomes), "Which?"))
    first, second = [line for line in table.splitlines() if "#" in line]
    assert "rnn" in first
    assert "ended early: 2.718 at 300 tokens, where the best has 7.389" in second


def test_a_mean_over_seeds_has_its_interval_in_the_unit_of_the_figure() -> None:
    seeds = [
        replace(
            make_outcome(seed, "rnn", [loss]),
            configuration={**make_outcome(0, "rnn", []).configuration, "seed": seed},
        )
        for seed, loss in enumerate((2.0, 2.1, 2.2))
    ]
    for table in (
        make_alternatives_table(make_view(seeds), "Which?"),
        make_spread_table(make_view(seeds)),
    ):
        # exp(2.1 - 4.3027 * 0.1 / sqrt 3) and exp(2.1 + 4.3027 * 0.1 / sqrt 3)
        assert "8.166 [6.370, 10.469]" in render(table)
    assert "0: 7.389, 1: 8.166, 2: 9.025" in render(make_spread_table(make_view(seeds)))


def test_points_of_a_prior_show_the_middle_half_of_numbers_and_the_most_frequent_choice() -> None:
    points = [{"width": width, "tie": width < 40} for width in (10, 20, 30, 40, 50)]
    lines = render(make_points_table(points)).splitlines()
    assert any("width" in line and "30 (20 to 40)" in line for line in lines)
    assert any("tie" in line and "True (3 of 5)" in line for line in lines)


@pytest.mark.parametrize(
    ("values", "shown"),
    [((4,), "4 (4 to 4)"), ((8, 4), "4 (4 to 8)"), ((1, 2, 3), "2 (1 to 3)"), (range(1, 21), "10 (5 to 15)")],
)
def test_the_quartiles_of_a_prior_are_values_of_its_points_by_nearest_rank(
    values: Sequence[int], shown: str
) -> None:
    assert shown in render(make_points_table([{"width": value} for value in values]))


def test_figures_that_lose_words_are_lower_bounds_but_for_those_per_token() -> None:
    row = TokenisationRow(
        corpus="tiny",
        tokens="words",
        vocabulary=9,
        name="lstm #0",
        family="lstm",
        parameters=1,
        carried_state=1,
        token_perplexity=8.0,
        word_perplexity=7.5,
        byte_perplexity=1.5,
        bits_per_byte=0.6,
        lost_share=0.1,
    )
    shown = render(make_tokenisation_table([row]))
    assert [figure in shown for figure in ("at least 0.6000", "at least 1.500", "at least 7.50")] == [
        True
    ] * 3
    assert "at least 8.000" not in shown
    assert "at least" not in render(make_tokenisation_table([row.model_copy(update={"lost_share": 0.0})]))
