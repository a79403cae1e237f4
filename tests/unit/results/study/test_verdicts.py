"""A verdict says whether the winner is really better, by the test over seeds, or over items without seeds."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from memtune.corpora import import_corpus, open_corpus
from memtune.corpora.batching.protocols import SentenceProtocol
from memtune.objective import Objective
from memtune.results.study.ranking import Ranking, rank_trials
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.results.study.verdicts import Verdict, judge_study
from memtune.search import StoredTrial
from memtune.seed_statistics import compare_results
from memtune.storage.folder import Folder
from memtune.studies.definition.study_terms import Repeats
from memtune.tasks import ItemCosts
from memtune.training import TrialConfig, TrialSizes
from memtune.trial_state import TrialState
from memtune.usage import NodeSeconds, Usage
from tests.presence import require
from tests.unit.results.made_trials import make_study_trial, make_view

SENTENCES = 200


def make_trial(family: str, number: int, seed: int, cost: float) -> StudyTrial:
    return make_study_trial(
        family,
        number,
        {1000: cost},
        seed=seed,
        planned_tokens=None if family == "kneser_ney" else 1000,
        identity=f"{family}{number}{seed}",
    )


def repeat(family: str, number: int, seed: int, cost: float) -> StudyTrial:
    return make_trial(family, number, seed, cost).model_copy(update={"is_repeat": True})


def rank(costs: dict[str, list[float]]) -> Ranking[StudyTrial]:
    """The ranking of one configuration for each family, with these costs by seed."""
    found = rank_trials(
        make_trial(family, number, seed, cost)
        for number, (family, own) in enumerate(costs.items())
        for seed, cost in enumerate(own)
    )
    assert found is not None
    return found


def judge_ranking(
    ranking: Ranking[StudyTrial],
    objective: Objective,
    checkpoint_root: str,
    trials: Sequence[StudyTrial] = (),
    alternatives: Sequence[str] = (),
    repeats: Repeats | None = None,
    unlimited: Ranking[StudyTrial] | None = None,
    refusals: Mapping[str, Sequence[str]] | None = None,
    name: str = "s",
) -> Verdict:
    """The verdict on a study with this ranking, and with `unlimited` without the limits of [champion]."""
    terms = SimpleNamespace(alternatives=alternatives, repeats=repeats or Repeats())
    view = SimpleNamespace(
        name=name,
        eligible=ranking,
        ranking=unlimited or ranking,
        objective=objective,
        checkpoint_root=checkpoint_root,
        trials=trials,
        terms=terms,
        refusals=refusals or {},
        corpus="in the store",
        chance=None,
    )
    return require(judge_study(cast(StudyView, view)))


@pytest.mark.parametrize(
    ("costs", "sentence", "advice"),
    [
        (
            {"lstm": [4.0, 4.01, 4.02], "rnn": [4.5, 4.52, 4.51]},
            "lstm #0 is best with a validation perplexity of 55.147 (95 % interval 53.206 to 57.158 over 3 "
            "seeds, all 2 at once), 39.3 % better than rnn #1, and the difference is significant.",
            "",
        ),
        (
            {"lstm": [4.0, 4.5, 4.2], "rnn": [4.4, 4.1, 4.3]},
            "but the difference is not significant: these seeds do not show that it is real.",
            'add [repeats] with until = "decided"',
        ),
        (
            {"lstm": [4.0], "rnn": [4.5]},
            "lstm #0 is best with a validation perplexity of 54.598, 39.3 % better than rnn #1; with "
            "so few seeds nothing tells whether the difference is real.",
            'add [repeats] with until = "decided"',
        ),
        (
            {"lstm": [4.0, 4.01, 4.02], "rnn": [4.5, 4.52]},
            "39.3 % better than rnn #1; with so few seeds nothing tells whether the difference is real.",
            'add [repeats] with until = "decided"',
        ),
        (
            {"lstm": [4.0]},
            "no other configuration has full length, so nothing compares with it.",
            "",
        ),
    ],
)
def test_the_headline_names_the_margin_and_whether_it_is_real(
    costs: dict[str, list[float]], sentence: str, advice: str, tmp_path: Path
) -> None:
    verdict = judge_ranking(rank(costs), Objective.PERPLEXITY, str(tmp_path))
    assert sentence in verdict.headline
    assert advice in verdict.advice
    assert bool(verdict.advice) == bool(advice)
    assert verdict.is_settled == ("is significant" in verdict.headline)


def test_the_winner_is_compared_with_the_best_of_each_other_alternative(tmp_path: Path) -> None:
    trials = [
        make_trial("lstm", 0, 0, 4.0),
        make_trial("lstm", 1, 0, 4.1),
        make_trial("rnn", 2, 0, 4.2),
        make_trial("rnn", 3, 0, 4.3),
    ]
    ranking = rank_trials(trials)
    assert ranking is not None
    comparisons = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path)).comparisons
    assert [other.name for other in comparisons] == ["rnn #2"]
    assert comparisons[0].describe_test(Objective.PERPLEXITY) == "not tested: 1 equal seed of 3 needed"


def test_an_accuracy_has_a_margin_in_points(tmp_path: Path) -> None:
    verdict = judge_ranking(rank({"lstm": [0.2], "rnn": [0.25]}), Objective.ACCURACY, str(tmp_path))
    assert "validation accuracy of 80.000 %, 5.0 percentage points better" in verdict.headline


@pytest.mark.parametrize("costs", [[0.2], [0.1, 0.2, 0.3]])
def test_the_headline_says_that_two_alternatives_with_one_figure_are_equal(
    costs: list[float], tmp_path: Path
) -> None:
    tied = {"lstm": costs, "rnn": costs[::-1]}
    verdict = judge_ranking(rank(tied), Objective.ACCURACY, str(tmp_path))
    assert verdict.headline.endswith(", equal to rnn #1.")
    assert not verdict.is_settled


@pytest.mark.parametrize(
    ("costs", "caveat"),
    [
        ([0.5], "Not above chance, which is 50.000 %."),
        ([0.499999], "Not above chance, which is 50.000 %."),
        ([0.4], "Chance is 50.000 %."),
        ([0.3, 0.4, 0.6], "Not above chance, which is 50.000 %."),
    ],
)
def test_the_answer_of_a_probe_says_what_a_guess_reaches(
    costs: list[float], caveat: str, tmp_path: Path
) -> None:
    rows = [["a", "b", "0", "1"], ["a", "_"]]
    import_corpus("rows", dict.fromkeys(("train", "valid", "test"), rows), tmp_path)
    corpus = open_corpus("rows", tmp_path)
    model = {"family": "lstm", "width": 4}
    outcomes = [
        StoredTrial(
            seed,
            str(seed),
            {"model": model, "task": {"kind": "probe"}, "training": {"tokens": 900}, "seed": seed},
            TrialState.COMPLETE,
            curve={900: cost},
        )
        for seed, cost in enumerate(costs)
    ]
    view = make_view(outcomes)
    view.corpus = corpus
    assert caveat in require(judge_study(view)).caveats


def judge_counted(root: Path, gaps: list[float] | None) -> Verdict:
    """The verdict on two models that count, whose costs of sentences differ by these gaps, in turn."""
    trials = [make_trial("kneser_ney", number, 0, 4.0 + 0.02 * number) for number in range(2)]
    for trial, shift in zip(trials, (0.0, 1.0), strict=True):
        if gaps:
            costs = np.full(SENTENCES, 4.0) + shift * np.resize(gaps, SENTENCES)
            stored = ItemCosts("sentences", costs, np.ones(SENTENCES, dtype=np.int64))
            stored.store(Folder.open(str(root)) / trial.identity, trial.curve[1000])
    ranking = rank_trials(trials)
    assert ranking is not None
    return judge_ranking(ranking, Objective.PERPLEXITY, str(root))


def test_two_models_that_count_are_compared_over_sentences_and_need_no_seeds(tmp_path: Path) -> None:
    verdict = judge_counted(tmp_path, [0.01, 0.03])
    assert verdict.headline == (
        "kneser_ney #0 is best with a validation perplexity of 54.598, 2.0 % better than kneser_ney #1 (95 % "
        "interval 1.8 % to 2.1 % over 200 sentences), and the difference is significant on such text; both "
        "learn by counting, so a seed changes nothing."
    )
    assert (verdict.is_settled, verdict.advice) == (True, "")
    test = verdict.comparisons[0].describe_test(Objective.PERPLEXITY)
    assert test.startswith("yes: perplexity 2.0 % lower")
    assert "sign test of differences over 200 sentences" in test


@pytest.mark.parametrize(
    ("gaps", "sentence", "advice"),
    [
        ([-0.98, 1.0], "but the difference is not significant on such text", "on more validation text"),
        (None, "their validation items are not compared yet", "run the study with --resume"),
    ],
)
def test_an_open_question_about_two_models_that_count_is_not_answered_by_repeats(
    gaps: list[float] | None, sentence: str, advice: str, tmp_path: Path
) -> None:
    verdict = judge_counted(tmp_path, gaps)
    assert sentence in verdict.headline
    assert advice in verdict.advice
    assert "seeds" not in verdict.advice
    assert not verdict.is_settled


def test_a_model_that_counts_leaves_the_seeds_to_the_other_model(tmp_path: Path) -> None:
    verdict = judge_ranking(rank({"kneser_ney": [4.0], "rnn": [4.5]}), Objective.PERPLEXITY, str(tmp_path))
    assert "with so few seeds nothing tells" in verdict.headline
    assert verdict.advice.startswith('To find out, add [repeats] with until = "decided"')
    assert verdict.advice.endswith("kneser_ney #0 learns by counting: the seeds are those of the other.")


def test_three_seeds_of_a_network_suffice_against_a_model_that_counts_once(tmp_path: Path) -> None:
    ranking = rank({"lstm": [4.0, 4.02, 4.01], "kneser_ney": [4.5]})
    (found,) = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path)).comparisons
    assert found.describe_test(Objective.PERPLEXITY).startswith("yes: perplexity")
    assert found.seeds == 3


def test_equal_costs_of_several_seeds_of_models_that_count_prove_nothing(tmp_path: Path) -> None:
    trials = [
        make_trial("kneser_ney", number, seed, 4.0 + number) for number in range(2) for seed in range(3)
    ]
    ranking = rank_trials(trials)
    assert ranking is not None
    (found,) = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path)).comparisons
    assert (found.by_seeds, found.certainty) == (None, "not tested")


@pytest.mark.parametrize(
    ("gaps", "headline", "decision"),
    [
        ([0.5, 0.52, 0.51], "the difference is significant", "was better than all others after 3 seeds"),
        ([1e-4, -1e-4, 0.0], "but rnn #1 is equal within 0.5 %", "lstm #0 and rnn #1 are equal within 0.5 %"),
        ([0.1, -0.1, 0.02], "is not significant", "Seeds have not decided yet"),
    ],
)
def test_a_verdict_says_how_rounds_of_seeds_ended(
    gaps: list[float], headline: str, decision: str, tmp_path: Path
) -> None:
    trials = []
    for number, (family, shifts) in enumerate({"lstm": [0.0] * 3, "rnn": gaps}.items()):
        costs = [4.0 + number, *(4.0 + shift for shift in shifts)]
        trials += [
            make_trial(family, number, seed, cost).model_copy(update={"is_repeat": seed > 0})
            for seed, cost in enumerate(costs)
        ]
    ranking, repeats = require(rank_trials(trials)), Repeats(until="decided")
    verdict = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path), trials, repeats=repeats)
    assert headline in verdict.headline
    assert decision in verdict.text
    assert bool(verdict.advice) == ("not decided" in decision)


def test_a_study_without_seeds_left_is_told_to_raise_their_number(tmp_path: Path) -> None:
    trials = [
        make_trial(family, number, seed, 4.0 + shift * (seed == 2)).model_copy(update={"is_repeat": seed > 0})
        for number, (family, shift) in enumerate({"lstm": 0.5, "rnn": 0.6}.items())
        for seed in range(4)
    ]
    ranking, repeats = require(rank_trials(trials)), Repeats(until="decided", max_seeds=3)
    verdict = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path), trials, repeats=repeats)
    assert "all that [repeats] allows" in verdict.decision
    assert verdict.advice == (
        "To find out, raise max_seeds under [repeats] to 12 in the study's file and run it with --resume; "
        "the test is corrected for repeated looks."
    )


def test_while_no_trial_is_complete_the_verdict_says_how_far_the_furthest_is(tmp_path: Path) -> None:
    trials = [
        make_study_trial("lstm", number, {100: 4.0 + number, 200: 3.5 + number}, state=TrialState.RUNNING)
        for number in range(2)
    ]
    trials = [trial.model_copy(update={"planned_tokens": 300}) for trial in trials]
    verdict = judge_ranking(require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials)
    assert "No trial is complete: full length is so far 200 of 300 tokens." in verdict.caveats


def test_an_untried_alternative_is_tried_before_seeds_are_added(tmp_path: Path) -> None:
    trials = [make_trial("lstm", number, 0, 4.0 + number) for number in range(2)]
    ranking = require(rank_trials(trials))
    verdict = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path), trials, ["lstm", "rnn"])
    assert "Not tried: rnn." in verdict.caveats
    assert not verdict.is_settled
    assert verdict.advice == "To find out, raise the budget and run the study with --resume."


def test_alternatives_of_one_family_are_told_apart_by_the_field_that_is_compared(tmp_path: Path) -> None:
    trials = [
        make_trial("lstm", number, seed, 4.0 + number / 100 + seed / 10).model_copy(
            update={
                "is_repeat": seed > 0,
                "alternative": f"width {number + 1}",
                "name": f"width {number + 1} #{number}",
            }
        )
        for number in range(3)
        for seed in range(4)
    ]
    ranking, repeats = require(rank_trials(trials)), Repeats(until="decided")
    verdict = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path), trials, repeats=repeats)
    assert verdict.decision == (
        "Seeds have not decided yet: width 1 #0, width 2 #1 and width 3 #2 may be best."
    )
    assert verdict.comparisons[0].name == "width 2 #1"


def test_a_test_over_items_says_of_how_many_seeds_each_model_is_the_best(tmp_path: Path) -> None:
    """The best of many seeds is better by luck than the best of few."""
    comparisons = judge_ranking(
        rank({"lstm": [4.0, 4.01, 4.02, 4.03], "rnn": [4.1] * 5, "kneser_ney": [4.5]}),
        Objective.PERPLEXITY,
        str(tmp_path),
    ).comparisons
    own = "lstm #0 as the best of 4 seeds"
    assert [other.models for other in comparisons] == [
        (own, "rnn #1 as the best of 5 seeds"),
        (own, "kneser_ney #2"),
    ]


def test_of_a_single_alternative_its_two_best_configurations_are_compared(tmp_path: Path) -> None:
    ranking = rank_trials([make_trial("lstm", number, 0, 4.0 + number) for number in range(3)])
    verdict = judge_ranking(require(ranking), Objective.PERPLEXITY, str(tmp_path))
    assert [other.name for other in verdict.comparisons] == ["lstm #1"]
    assert "add [repeats] with best = 2 and seeds = 4 or more" in verdict.advice


def test_what_would_decide_is_a_command_with_its_estimated_time(tmp_path: Path) -> None:
    """A third of its tokens took one core hour."""
    best = make_study_trial("lstm", 0, {300: 5.0, 900: 4.0}, study="two-0123abcd")
    hour = Usage(tokens=300, nodes={"": NodeSeconds(cpu=3600)})
    cut = make_study_trial("rnn", 1, {300: 4.9}, state=TrialState.RUNNING, usage=hour)
    verdict = judge_ranking(require(rank_trials([best, cut])), Objective.PERPLEXITY, str(tmp_path))
    assert verdict.advice.endswith(
        "The rest of what leads takes about 2 core h: memtune search two.toml --resume."
    )


def test_rounds_of_seeds_that_a_budget_ended_say_what_the_next_test_takes(tmp_path: Path) -> None:
    """Three of four seeds of each of two alternatives, of half an hour each."""
    usage = Usage(tokens=1000, nodes={"": NodeSeconds(cpu=1800)})
    trials = [
        make_trial(family, number, seed, 4.0 + gap).model_copy(update={"is_repeat": seed > 0, "usage": usage})
        for number, (family, gaps) in enumerate({"lstm": [0, 0, 0.1, 0.2], "rnn": [1, 0.1, 0, 0.2]}.items())
        for seed, gap in enumerate(gaps)
    ]
    repeats = Repeats(until="decided")
    ranking = require(rank_trials(trials))
    verdict = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path), trials, repeats=repeats)
    assert verdict.advice.endswith("The next test takes about 1 core h: memtune search s.toml --resume.")


def test_an_alternative_that_led_when_the_study_ended_leaves_it_undecided(tmp_path: Path) -> None:
    """Three of four reports: an open trial with 233.8 where the best had 249.4."""
    best = make_study_trial("lstm", 0, {300: math.log(249.4), 900: math.log(161.95)})
    other = make_study_trial("rnn", 1, {300: math.log(260.0), 900: math.log(165.0)})
    cut = make_study_trial("stack_lstm", 2, {300: math.log(233.8)}, state=TrialState.RUNNING)
    stopped = cut.model_copy(update={"state": TrialState.STOPPED})
    verdict = judge_ranking(require(rank_trials([best, other, cut])), Objective.PERPLEXITY, str(tmp_path))
    assert verdict.is_undecided
    assert not verdict.is_settled
    assert verdict.headline.startswith(
        "Undecided: stack_lstm #2 leads with 233.800 at 300 tokens, where the best has 249.400, and has not "
    )
    assert verdict.advice == "To find out, raise the budget and run the study with --resume."
    ranking = require(rank_trials([best, other, stopped]))
    ruled_out = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path))
    assert not ruled_out.is_undecided


def test_what_a_study_does_not_know_is_named(tmp_path: Path) -> None:
    trials = [make_study_trial("lstm", number, {300: 5.0, 900: 4.0 + number / 100}) for number in range(7)]
    trials += [make_study_trial("rnn", 7, {300: 5.5, 900: 4.5})]
    trials += [make_study_trial("stack_lstm", 8, {300: 6.0}, state=TrialState.STOPPED)]
    verdict = judge_ranking(
        require(rank_trials(trials)),
        Objective.PERPLEXITY,
        str(tmp_path),
        trials,
        ["lstm", "rnn", "stack_lstm", "gru", "scrn"],
        refusals={"scrn": ["it takes 9 of 8 MiB"] * 5, "": ["no size fits"]},
    )
    assert verdict.caveats == (
        "Not tried: gru, scrn (5 samples refused, for instance because it takes 9 of 8 MiB).",
        "Refused before its alternative was known: 1 sample, for instance because no size fits.",
        "Without a trial of full length: stack_lstm.",
        "Far fewer configurations than the 7 of others: rnn (1), stack_lstm (1).",
    )


def test_an_alternative_outside_the_limits_of_the_champion_is_not_said_to_lack_full_length(
    tmp_path: Path,
) -> None:
    trials = [make_trial("lstm", 0, 0, 4.0), make_trial("rnn", 1, 0, 3.9)]
    everything = require(rank_trials(trials))
    within = require(everything.filter(lambda trial: trial.family == "lstm"))
    verdict = judge_ranking(
        within, Objective.PERPLEXITY, str(tmp_path), trials, ["lstm", "rnn"], unlimited=everything
    )
    assert verdict.headline.endswith(
        "no other configuration has full length within the limits of [champion], so nothing compares with it."
    )
    assert verdict.caveats == ("Of full length only outside the limits of [champion]: rnn.",)


def test_an_open_trial_may_change_the_answer(tmp_path: Path) -> None:
    trials = [make_trial("lstm", 0, 0, 4.0), make_trial("rnn", 1, 0, 4.1)]
    running = [trials[0], trials[1].model_copy(update={"state": TrialState.RUNNING})]
    sentences = [
        judge_ranking(require(rank_trials(given)), Objective.PERPLEXITY, str(tmp_path), given).caveats
        for given in (trials, running)
    ]
    assert sentences == [(), ("1 trial is open: the answer may change.",)]


def test_an_alternative_that_was_not_repeated_is_named(tmp_path: Path) -> None:
    trials = [
        make_trial("lstm", 0, 0, 4.0),
        make_trial("rnn", 1, 0, 4.2),
        make_trial("scrn", 2, 0, 4.05),
        repeat("lstm", 0, 1, 4.1),
        repeat("rnn", 1, 1, 4.3),
    ]
    ranking, terms = require(rank_trials(trials)), Repeats(best=2, seeds=2)
    verdict = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path), trials, repeats=terms)
    assert verdict.caveats == ("Not ranked, for lack of seeds with a result: scrn.",)
    assert verdict.advice.startswith('To find out, write until = "decided" in place of best and seeds')


def test_repeats_that_have_not_ended_come_before_other_advice(tmp_path: Path) -> None:
    trials = [make_trial("lstm", 0, 0, 4.0), make_trial("rnn", 1, 0, 4.2), repeat("lstm", 0, 1, 4.1)]
    left = repeat("rnn", 1, 1, 4.3)
    ended, terms = require(rank_trials(trials)), Repeats(best=2, seeds=2)
    for open_ones in ([], [left.model_copy(update={"state": TrialState.RUNNING})]):
        found = [*trials, *open_ones]
        verdict = judge_ranking(ended, Objective.PERPLEXITY, str(tmp_path), found, repeats=terms)
        assert verdict.advice.startswith("To find out, let all repeats end: run the study with --resume")


def test_the_advice_names_the_command_that_writes_the_file_of_a_packaged_study(tmp_path: Path) -> None:
    ranking = rank({"lstm": [4.0], "rnn": [4.5]})
    advice = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path), name="demo").advice
    assert "to the study's file (memtune study new demo demo.toml writes it) and run it" in advice


def change_rate(trial: StudyTrial, rate: float) -> StudyTrial:
    written = trial.config.model_dump(mode="json")
    written["training"]["optimiser"]["learning_rate"] = rate
    return trial.model_copy(update={"config": TrialConfig.model_validate(written)})


def change_model(trial: StudyTrial, model: dict[str, Any]) -> StudyTrial:
    config = TrialConfig.model_validate(trial.config.model_dump(mode="json") | {"model": model})
    return trial.model_copy(update={"config": config})


def test_a_setting_that_was_fixed_differently_for_an_alternative_is_named(tmp_path: Path) -> None:
    trials = [change_rate(make_trial("lstm", 0, 0, 4.0), 1.0), change_rate(make_trial("rnn", 1, 0, 4.1), 0.5)]
    verdict = judge_ranking(
        require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials, ["lstm", "rnn"]
    )
    assert verdict.caveats == (
        "lstm #0 and rnn #1 also differ in what one or both alternatives have tried at one value only: "
        "training.optimiser.learning_rate.",
    )


@pytest.mark.parametrize(
    ("own", "other", "named"),
    [
        (
            {"family": "lstm", "dropout": 0.3, "dropout_placement": "after"},
            {"family": "scrn"},
            ": model.dropout.",
        ),
        (
            {"family": "scrn"},
            {"family": "awd_lstm", "embedding_width": 9, "width": 9, "embedding_dropout": 0.1},
            "model.embedding_dropout",
        ),
        ({"family": "lstm", "tie_output": True}, {"family": "feed_forward"}, "model.tie_output."),
        ({"family": "lstm"}, {"family": "lstmn"}, "model.forget_bias."),
        (
            {"family": "lstm", "dropout": 0.3, "dropout_placement": "around"},
            {"family": "attention_lstm", "dropout": 0.3, "tie_output": False},
            "",
        ),
        ({"family": "lstm", "dropout_placement": "after"}, {"family": "scrn"}, ""),
        ({"family": "lstm", "layers": 1, "dropout": 0.3}, {"family": "scrn"}, ""),
        (
            {"family": "lstm", "dropout": 0.3, "dropout_placement": "around"},
            {"family": "rnn", "dropout": 0.3, "dropout_placement": "after"},
            ": model.dropout_placement.",
        ),
        ({"family": "lstm", "tie_output": True}, {"family": "kneser_ney"}, ""),
    ],
    ids=[
        "dropout",
        "dropout by another name",
        "tied output",
        "forget bias",
        "equal dropout",
        "no dropout",
        "a dropout without effect",
        "another place of dropout",
        "a model that counts",
    ],
)
def test_surroundings_in_which_families_differ_are_named_where_one_lacks_the_field_too(
    own: dict[str, Any], other: dict[str, Any], named: str, tmp_path: Path
) -> None:
    trials = [
        change_model(make_trial(model["family"], number, 0, 4.0 + number), model)
        for number, model in enumerate((own, other))
    ]
    verdict = judge_ranking(require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials)
    differences = [caveat for caveat in verdict.caveats if "also differ in" in caveat]
    assert len(differences) == bool(named)
    assert all(named in caveat for caveat in differences)


@pytest.mark.parametrize(
    "fields", [{"tie_output": True}, {"dropout": 0.3, "layers": 2}, {"embedding_width": 5}], ids=str
)
@pytest.mark.parametrize("is_best", [False, True])
def test_what_is_compared_is_not_named_whichever_wins(
    fields: dict[str, Any], is_best: bool, tmp_path: Path
) -> None:
    """Also where it is off in one of the two."""
    field = next(iter(fields))
    off = {**fields, field: type(fields[field])()} if field != "embedding_width" else {}
    models = [{"family": "lstm", **own} for own in ((fields, off) if is_best else (off, fields))]
    trials = [
        change_model(make_trial(f"{field} {model.get(field)}", number, 0, 4.0 + number), model)
        for number, model in enumerate(models)
    ]
    verdict = judge_ranking(require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials)
    assert not [caveat for caveat in verdict.caveats if "also differ in" in caveat]


def test_another_size_of_batches_is_named(tmp_path: Path) -> None:
    """Batches change training, not the label under which perplexities compare."""
    trials = [make_trial("lstm", 0, 0, 4.0), make_trial("rnn", 1, 0, 4.1)]
    protocol = SentenceProtocol(batch_size=7)
    other = trials[1].config.model_copy(update={"protocol": protocol})
    trials[1] = trials[1].model_copy(update={"config": other})
    verdict = judge_ranking(require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials)
    assert verdict.caveats[-1].endswith("at one value only: protocol.batch_size.")


def test_unequal_sizes_and_searches_of_the_best_two_alternatives_are_named(tmp_path: Path) -> None:
    sizes = [TrialSizes(parameters=each, multiply_adds=1, state=1, memory=1) for each in (2000, 1000)]
    full = [
        make_study_trial(family, number, {900: 4.0 + number}, sizes=own)
        for number, (family, own) in enumerate(zip(("lstm", "rnn"), sizes, strict=True))
    ]
    paused = [
        make_study_trial("rnn", number, {300: 6.0}, sizes=sizes[1], state=TrialState.PAUSED)
        for number in (2, 3)
    ]
    trials = [change_rate(trial, number) for number, trial in enumerate([*full, *paused], start=1)]
    verdict = judge_ranking(require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials)
    assert "lstm #0 has 2,000 parameters, rnn #1 1,000." in verdict.caveats
    assert "Configurations of full length: 1 of 1 of lstm, 1 of 3 of rnn." in verdict.caveats


def test_trainings_of_other_studies_are_counted(tmp_path: Path) -> None:
    own, reused = make_trial("lstm", 0, 0, 4.0), make_trial("rnn", 1, 0, 4.1)
    trials = [own, reused.model_copy(update={"usage": Usage()})]
    verdict = judge_ranking(require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials)
    assert "1 of 2 trainings is reused from other studies, in whole or in part." in verdict.caveats


@pytest.mark.parametrize(
    ("rates", "are_named"),
    [
        ({"lstm": [1.0, 0.5], "rnn": [0.1, 0.1]}, True),
        ({"lstm": [1.0, 0.5], "rnn": [0.1, 0.5]}, False),
        ({"lstm": [1.0, 0.1], "rnn": [1.0, 0.1]}, False),
        ({"lstm": [1.0, 1.0], "rnn": [1.0, 1.0], "scrn": [0.1, 0.1]}, False),
    ],
    ids=["tuned for one", "tuned for both", "equal", "of a third"],
)
def test_a_setting_is_named_where_winner_and_runner_up_differ_in_it_untuned(
    rates: dict[str, list[float]], are_named: bool, tmp_path: Path
) -> None:
    """Both were compared at their best value of a setting that both alternatives varied."""
    trials = [
        change_rate(make_trial(family, 10 * number + place, 0, 4.0 + number / 10 + place / 100), rate)
        for number, (family, own) in enumerate(rates.items())
        for place, rate in enumerate(own)
    ]
    verdict = judge_ranking(require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials)
    assert ("learning_rate" in verdict.text) == are_named


def test_the_compared_field_is_no_setting_in_which_alternatives_also_differ(tmp_path: Path) -> None:
    trials = [
        change_rate(make_trial("lstm", number, 0, 4.0 + number), rate).model_copy(
            update={"alternative": f"learning_rate {rate}"}
        )
        for number, rate in enumerate((1.0, 0.5))
    ]
    verdict = judge_ranking(require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials)
    assert verdict.caveats == ()


def test_p_values_are_corrected_for_the_choice_of_the_best(tmp_path: Path) -> None:
    costs = {"lstm": [4.0, 4.01, 4.02, 4.0], "rnn": [4.2, 4.25, 4.22, 4.21], "scrn": [4.0, 4.03, 4.02, 4.0]}
    lstm, rnn, scrn = (dict(enumerate(each)) for each in costs.values())
    _, together = judge_ranking(rank(costs), Objective.PERPLEXITY, str(tmp_path)).comparisons
    alone = require(compare_results(lstm, rnn, [scrn]))
    assert require(together.by_seeds).p == pytest.approx(3 * alone.p)
    assert require(together.by_seeds).correction == "repeated looks and the choice of the best of 3"


def test_a_repeat_that_diverged_is_counted_and_named(tmp_path: Path) -> None:
    trials = [make_trial("lstm", 0, 0, 4.0), make_trial("rnn", 1, 0, 4.2)]
    trials += [
        make_trial("lstm", 0, seed, cost).model_copy(update={"is_repeat": True, "has_diverged": cost > 20})
        for seed, cost in ((1, 4.1), (2, 4.2), (3, 27.0))
    ]
    verdict = judge_ranking(require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), trials)
    assert verdict.caveats[-1] == "Unstable: lstm #0 (1 of 3 seeds diverged)."


def test_trials_and_winners_that_diverged_are_named(tmp_path: Path) -> None:
    trials = [make_trial("lstm", 0, 0, 4.0), make_trial("rnn", 1, 0, 4.2), make_trial("rnn", 2, 0, 4.5)]
    trials[0] = trials[0].model_copy(update={"has_diverged": True})
    failed = make_study_trial("rnn", 3, {}, state=TrialState.FAILED, identity="failed")
    verdict = judge_ranking(
        require(rank_trials(trials)), Objective.PERPLEXITY, str(tmp_path), [*trials, failed]
    )
    assert verdict.caveats[:2] == (
        "Trials that diverged or failed: 1 of 1 of lstm, 1 of 3 of rnn.",
        "Unstable: lstm #0 (diverged).",
    )


def test_where_no_configuration_has_seeds_enough_none_is_the_best(tmp_path: Path) -> None:
    trials = [make_trial("lstm", 0, 0, 4.0), make_trial("rnn", 1, 0, 4.2)]
    trials += [
        repeat(trial.family, trial.number, seed, 27.0).model_copy(update={"has_diverged": True})
        for trial in trials
        for seed in (1, 2, 3)
    ]
    ranking, decided = require(rank_trials(trials)), Repeats(until="decided")
    verdict = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path), trials, repeats=decided)
    assert verdict.headline == "No configuration is ranked: lstm #0 has 54.598 (no result of a repeat)."
    assert verdict.decision == "Fewer than two alternatives have enough seeds that did not fail."
    assert (verdict.is_settled, verdict.advice) == (False, "")


def test_seeds_are_for_the_next_best_where_those_of_the_best_diverge(tmp_path: Path) -> None:
    trials = [make_trial("lstm", 0, 0, 3.9), make_trial("lstm", 1, 0, 4.0), make_trial("rnn", 2, 0, 4.2)]
    trials += [repeat("lstm", 0, seed, 27.0).model_copy(update={"has_diverged": True}) for seed in (1, 2, 3)]
    trials += [repeat("rnn", 2, seed, 4.2 + seed / 100) for seed in (1, 2, 3)]
    ranking, decided = require(rank_trials(trials)), Repeats(until="decided")
    verdict = judge_ranking(ranking, Objective.PERPLEXITY, str(tmp_path), trials, repeats=decided)
    assert verdict.decision == "Seeds have not decided yet: lstm #1 and rnn #2 may be best."


def test_intervals_hold_at_once_for_the_configurations_that_have_one() -> None:
    """A configuration with two seeds has none."""
    costs = {"lstm": [4.0, 4.01, 4.02], "rnn": [4.5, 4.52, 4.51], "scrn": [4.6, 4.61]}
    assert [found.estimate.intervals for found in rank(costs).configurations] == [2, 2, 1]
