"""Studies in simulated time on given curves, and the landscape of a small table."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from benchmarks.tables.__main__ import main
from benchmarks.tables.comparison import (
    Run,
    compute_ert,
    estimate_ratio,
    rank_known_curves,
    read_runs,
    summarise,
)
from benchmarks.tables.comparison_page import (
    TableRuns,
    draw_comparison,
    format_comparison,
    format_default_ratios,
)
from benchmarks.tables.curve_table import FOLDER, Curve, CurveTable, read_table, write_table
from benchmarks.tables.landscape import (
    MAX_GAIN_DEVIATIONS,
    TREES,
    Landscape,
    SimulatedCurve,
    _Forest,
    draw_parameters,
)
from benchmarks.tables.memtune_search import open_director
from benchmarks.tables.methods import METHODS, SearchTask
from benchmarks.tables.ray_tune_search import RayTuneSearch
from benchmarks.tables.simulation import (
    DirectorSearch,
    Observation,
    SimulatedExecutor,
    SimulatedTrial,
    Simulation,
)
from benchmarks.tables.space_priors import add_prior_points, format_points, list_good_points
from memtune.search import Proposals
from memtune.search.early_stopping import SuccessiveHalvingConfig
from memtune.search.proposals import Candidates
from memtune.search.samplers import RandomConfig
from memtune.spaces import Space, combine_spaces, load_space, read_space
from memtune.studies.definition.study_terms import Resources
from memtune.studies.executor import ExecutorRun, StopRequest
from memtune.trial_state import TrialState
from memtune.values import digest

REPORT_TOKENS = (10, 20, 30)
WIDTHS = "[model]\nfamily = {family!r}\nwidth = {{ int = [1, 99] }}\n[training]\ntokens = 30\n"


def make_space() -> Space:
    texts = (WIDTHS.format(family=family) for family in ("lstm", "rnn"))
    return combine_spaces(read_space(text, "space.toml") for text in texts)


def make_curve(cost: float, seconds: float) -> SimulatedCurve:
    return SimulatedCurve((cost,) * 3, (cost,) * 3, (seconds, 2 * seconds, 3 * seconds))


def script_curves(*curves: SimulatedCurve) -> Simulation:
    """Two workers; the trials have the given curves in the order of their start."""
    remaining = iter(curves)
    return Simulation(lambda parameters: next(remaining), REPORT_TOKENS, workers=2, max_tokens=10**6)


def open_proposals(folder: Path) -> Proposals:
    return Proposals(
        f"journal://{folder}/study.log",
        "scripted",
        Candidates(
            make_space(),
            RandomConfig(seed=1),
            identify=lambda configuration: digest(configuration)[:16],
            get_refusal_reason=lambda configuration: None,
        ),
    )


def test_a_study_in_simulated_time_equals_one_by_hand(tmp_path: Path) -> None:
    # Trial 1 takes 1.6 s a report, the others 1 s. At each rung one trial, the best, may continue.
    simulation = script_curves(make_curve(3, 1), make_curve(2, 1.6), make_curve(4, 1), make_curve(1, 1))
    proposals = open_proposals(tmp_path)
    rule = SuccessiveHalvingConfig(grace=10, factor=2, max_survivors=1)
    director = open_director(proposals, rule, trial_tokens=30, max_trials=4)
    run = ExecutorRun(director, lambda trial: pytest.fail("no worker"), Resources(), 0.0, StopRequest())
    SimulatedExecutor(simulation).run_trials(run)
    assert [(round(o.seconds, 6), o.number, o.report, o.tokens) for o in simulation.observations] == [
        (1.0, 0, 1, 10),
        (1.6, 1, 1, 20),
        (2.0, 0, 2, 30),
        (3.0, 0, 3, 40),
        (3.2, 1, 2, 50),
        (4.0, 2, 1, 60),  # started when trial 0 had ended, and stopped: third of three at the first rung
        (4.8, 1, 3, 70),
        (5.0, 3, 1, 80),
        (6.0, 3, 2, 90),
        (7.0, 3, 3, 100),
    ]
    assert [(outcome.state, outcome.value) for outcome in proposals.list_outcomes()] == [
        (TrialState.COMPLETE, 3.0),
        (TrialState.COMPLETE, 2.0),
        (TrialState.STOPPED, 4.0),
        (TrialState.COMPLETE, 1.0),
    ]


def test_a_study_ends_with_its_budget_of_tokens(tmp_path: Path) -> None:
    simulation = script_curves(*(make_curve(3, 1) for _ in range(9)))
    simulation.max_tokens = 70
    director = open_director(open_proposals(tmp_path), SuccessiveHalvingConfig(grace=10), 30, 9)
    observations = simulation.run(DirectorSearch(director, REPORT_TOKENS))
    assert observations[-1].tokens == 70


class PausingSearch:
    """Pauses its only trial after each report and continues it at once."""

    def __init__(self) -> None:
        self.reported: list[tuple[float, ...]] = []

    def start_trial(self) -> SimulatedTrial | None:
        is_over = len(self.reported) == len(REPORT_TOKENS)
        return None if is_over else SimulatedTrial(0, {}, reports_done=len(self.reported))

    def report(self, number: int, costs: tuple[float, ...]) -> bool:
        self.reported.append(costs)
        return False

    def end(self, number: int) -> None:
        pass


def test_a_paused_trial_continues_at_its_last_report() -> None:
    simulation = script_curves(SimulatedCurve((3, 2, 1), (3, 2, 1), (1, 2, 4)))
    simulation.workers = 1
    search = PausingSearch()
    observations = simulation.run(search)
    assert search.reported == [(3,), (3, 2), (3, 2, 1)]
    assert [observation.seconds for observation in observations] == [1, 2, 4]
    assert observations[-1].tokens == 30


def record_curves(space: Space) -> Iterator[Curve]:
    """Costs that fall with the width; every third configuration under two seeds, 0.1 nats apart."""
    for number in range(30):
        parameters = draw_parameters(space, number)
        for seed in (0, 1) if number % 3 == 0 else (0,):
            yield make_recorded_curve(parameters, seed)


def make_recorded_curve(parameters: Mapping[str, Any], seed: int) -> Curve:
    family = str(parameters["family"])
    width = parameters[f"{family}.model.width"]
    assert isinstance(width, int)
    costs = [5 - width / 100 + 0.1 * seed + more for more in (2, 1, 0)]
    return Curve({}, dict(parameters), family, seed, REPORT_TOKENS, tuple(costs), (1.0, 2.0, 3.0))


@pytest.fixture(scope="module")
def table() -> CurveTable:
    study = {"training": {"tokens": 30, "report_every": 10}}
    return CurveTable(tuple(record_curves(make_space())), study, 100, {"corpus": "none"})


def test_a_table_is_read_as_it_was_written(table: CurveTable, tmp_path: Path) -> None:
    write_table(table, tmp_path / "table.arrow")
    found = read_table(tmp_path / "table.arrow")
    assert (found.study, found.vocabulary_size, found.description) == (
        table.study,
        table.vocabulary_size,
        table.description,
    )
    assert [curve.parameters for curve in found.curves] == [curve.parameters for curve in table.curves]
    # Costs are stored in single precision.
    np.testing.assert_allclose(
        [curve.costs for curve in found.curves], [curve.costs for curve in table.curves], rtol=1e-6
    )


@pytest.mark.parametrize("content", [None, "question = 'Which is best?'"])
def test_a_file_that_is_no_table_of_curves_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    study = tmp_path / "study.toml"
    if content is not None:
        study.write_text(content)
    monkeypatch.setattr("sys.argv", ["tables", "compare", str(study)])
    with pytest.raises(SystemExit):
        main()
    assert f"{study} is not a table of learning curves" in capsys.readouterr().err


def test_a_landscape_orders_configurations_as_the_table_does(table: CurveTable) -> None:
    landscape = Landscape(table, make_space())
    assert landscape.report_tokens == REPORT_TOKENS
    assert landscape.cross_validate() > 0.8
    narrow, wide = (
        landscape.draw_curve({"family": "rnn", "rnn.model.width": width}, 0) for width in (10, 90)
    )
    assert wide.mean_costs[-1] + 0.4 < narrow.mean_costs[-1]
    assert wide.seconds == pytest.approx((1, 2, 3))


def test_the_noise_of_a_landscape_is_that_between_seeds(table: CurveTable) -> None:
    landscape = Landscape(table, make_space())
    assert landscape.noise_deviation == pytest.approx(0.1 / np.sqrt(2))
    curves = [landscape.draw_curve({"family": "rnn", "rnn.model.width": 50}, seed) for seed in range(40)]
    noise = [curve.costs[-1] - curve.mean_costs[-1] for curve in curves]
    assert {round(abs(value), 6) for value in noise} == {round(0.1 / np.sqrt(2), 6)}
    assert {value > 0 for value in noise} == {True, False}


def test_the_fast_prediction_of_a_forest_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(60, 4))
    targets = np.stack([features[:, 0] ** 2, features[:, 1]], axis=1)
    expected = ExtraTreesRegressor(TREES, min_samples_leaf=2, random_state=0).fit(features, targets)
    forest = _Forest(features, targets)
    fresh = random.normal(size=(20, 4))
    np.testing.assert_allclose([forest.predict(row) for row in fresh], expected.predict(fresh), atol=1e-12)


def make_observation(tokens: int, number: int, report: int, cost: float, mean_cost: float) -> Observation:
    return Observation(tokens / 10, tokens, number, report, cost, mean_cost)


def test_a_goal_is_reached_by_the_choice_and_not_by_luck() -> None:
    observations = [
        make_observation(10, 0, 1, cost=1.0, mean_cost=1.2),  # a lucky seed: its mean is far from the best
        make_observation(20, 1, 1, cost=1.1, mean_cost=1.004),  # within 0.5 %, but not the search's choice
        make_observation(30, 1, 2, cost=0.99, mean_cost=1.008),
        make_observation(40, 2, 1, cost=0.98, mean_cost=1.001),
        make_observation(50, 3, 1, cost=0.97, mean_cost=1.1),
    ]
    run = summarise("random", 0, observations, best_cost=1.0, trial_tokens=20)
    assert run.trainings_to_goal == (1.5, 2.0)
    assert run.seconds_to_goal == (3.0, 4.0)
    assert run.regret == pytest.approx(0.1)
    assert (run.trials, run.complete) == (4, 1)


def test_the_expected_running_time_counts_what_missed_runs_spent() -> None:
    assert compute_ert([10.0, 20.0, np.inf], max_trainings=40) == 35.0
    assert compute_ert([np.inf], max_trainings=40) == np.inf
    ratio, low, high = estimate_ratio([10.0, 30.0], [20.0, 20.0], max_trainings=40)
    assert (ratio, low, high) == (1.0, 0.5, 1.5)


def test_the_ratio_to_a_method_that_never_reached_the_goal_is_unknown() -> None:
    assert np.isnan(estimate_ratio([np.inf], [np.inf], max_trainings=40)[0])


def test_the_page_has_every_method_with_its_share_of_runs_that_reached_the_goals(
    table: CurveTable, tmp_path: Path
) -> None:
    missed = Run("random", 0, (np.inf, np.inf), (np.inf, np.inf), 0.1, trials=9, complete=9)
    runs = {
        "Ray Tune, factor 3": [replace(missed, method="Ray Tune, factor 3", trainings_to_goal=(10.0, 20.0))],
        "random": [missed, replace(missed, seed=1, trainings_to_goal=(5.0, np.inf))],
    }
    compared = TableRuns("small", table, Landscape(table, make_space()), runs, max_trainings=40)
    rows = [line for line in format_comparison([compared], "Ray Tune, factor 3").splitlines() if "| " in line]
    ray, random = ([cell.strip() for cell in row.split("|")[1:3]] for row in rows[1:])
    assert ray == ["Ray Tune, factor 3", "10.0, 1 of 1"]
    assert random == ["random", "45.0, 1 of 2"]
    draw_comparison([compared], tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_compares_the_default_with_every_method_of_others_that_was_run() -> None:
    missed = Run("", 0, (np.inf, np.inf), (np.inf, np.inf), 0.1, trials=9, complete=9)
    runs = {
        "memtune: TPE, promotion from a quarter": [replace(missed, trainings_to_goal=(5.0, 20.0))],
        "random": [replace(missed, trainings_to_goal=(10.0, 40.0))],
        "TPE, PASHA": [missed],
    }
    header, _, random = format_default_ratios({"small": runs}, max_trainings=40).splitlines()
    assert "small, to 1.0% | small, to 0.5%" in header
    assert random == "| random | 0.50 [0.50, 0.50] | 0.50 [0.50, 0.50] |"


def test_ended_runs_are_read_back_and_not_repeated(tmp_path: Path) -> None:
    run = Run("random", 3, (1.5, np.inf), (2.0, np.inf), 0.1, trials=4, complete=2)
    (tmp_path / "small.jsonl").write_text(json.dumps(asdict(run)) + "\n")
    assert read_runs(tmp_path / "small.jsonl") == [run]
    assert read_runs(tmp_path / "missing.jsonl") == []


def test_a_search_knows_no_configuration_of_its_own_table_from_another_one(
    table: CurveTable, tmp_path: Path
) -> None:
    searched = replace(table, curves=table.curves[:20])
    # Another version of memtune stored it, whose configurations have one more field.
    shared = [replace(curve, configuration={"added": 1}) for curve in table.curves]
    write_table(searched, tmp_path / "searched.arrow")
    write_table(replace(table, curves=tuple(shared)), tmp_path / "other.arrow")
    own = [curve.parameters for curve in searched.curves]
    known = [curve.parameters for curve in rank_known_curves(tmp_path / "searched.arrow")]
    assert known
    assert not [parameters for parameters in known if parameters in own]


def test_ray_tunes_asha_stops_trials_in_a_simulation() -> None:
    search = RayTuneSearch(make_space(), reports=3, seed=1, factor=3)
    simulation = script_curves(*(make_curve(cost, 1) for cost in (3, 2, 1, 9)))
    simulation.workers = 1
    simulation.max_tokens = 10 * 10
    observations = simulation.run(search)
    # Its cutoff is the 67th percentile of the values before: the fourth trial stops at its first report.
    assert [(o.number, o.report) for o in observations if o.number > 2] == [(3, 1)]


def make_needed_names(family: str) -> set[str]:
    return {"family", f"{family}.model.width"}


def test_memtune_replays_a_study_with_every_sampler_setting(table: CurveTable) -> None:
    landscape = Landscape(table, make_space())
    for name in ("memtune: TPE, halving from a quarter", "TPE, halving from a quarter, Sobol 20", "random"):
        task = SearchTask(landscape.space, REPORT_TOKENS, seed=1, max_trainings=40)
        with METHODS[name](task) as search:
            trials = [search.start_trial() for _ in range(3)]
        for trial in trials:
            assert trial is not None
            assert set(trial.parameters) == make_needed_names(str(trial.parameters["family"]))


def test_a_spike_of_one_seed_does_not_improve_the_other(table: CurveTable) -> None:
    spiked = [
        replace(curve, costs=(curve.costs[0], curve.costs[1] + curve.seed, curve.costs[2]))
        for curve in table.curves
    ]
    landscape = Landscape(replace(table, curves=tuple(spiked)), make_space())
    curves = [landscape.draw_curve({"family": "rnn", "rnn.model.width": 50}, seed) for seed in range(40)]
    noise = [curve.costs[1] - curve.mean_costs[1] for curve in curves]
    assert max(noise) == pytest.approx(1.1 / np.sqrt(2))
    assert min(noise) == pytest.approx(-MAX_GAIN_DEVIATIONS * landscape.noise_deviation)


NORM = "clip_norm = { float = [0.01, 1.0], log = true }"


def test_prior_points_are_the_best_trainings_of_each_family_without_the_width() -> None:
    spaces = [
        read_space(
            f"""
            [model]
            family = "{family}"
            width = {{ int = [1, 99] }}
            [training]
            clip_norm = {{ float = [0.01, 1.0], log = true }}
            """,
            "space.toml",
        )
        for family in ("lstm", "rnn")
    ]
    known = [
        Curve(
            configuration={},
            parameters={
                "family": family,
                f"{family}.model.width": 10 + place,
                f"{family}.training.clip_norm": 0.01234 * (1 + place // 2),
            },
            family=family,
            seed=0,
            tokens=(1,),
            costs=(float(place),),
            seconds=(1.0,),
        )
        for place in range(20)
        for family in ("lstm", "scrn")
    ]
    space = combine_spaces(spaces)
    points = list_good_points([space], known)
    assert points == {"lstm": [{"training.clip_norm": norm} for norm in (0.012, 0.025, 0.037, 0.049, 0.062)]}
    text = f"{format_points(points['lstm'])}\n[model]\nwidth = 3\n[training]\n{NORM}"
    stated = read_space(text, "own.toml")
    assert [*stated.prior_points] == points["lstm"]
    first = {"model.family": "lstm", "training.clip_norm": 0.012}
    assert add_prior_points(space, points).prior_points[0] == first


def test_the_spaces_of_the_package_state_the_prior_points_that_recorded_tables_give(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["tables", "priors", *map(str, sorted(FOLDER.glob("*.arrow")))])
    main()
    spaces = [load_space(path) for path in (Path(__file__).parents[2] / "search_spaces").glob("*.toml")]
    stated = {space.family: space.prior_points for space in spaces if space.family and space.prior_points}
    assert capsys.readouterr().out == "".join(
        f"search_spaces/{family}.toml\n{format_points(points)}\n" for family, points in sorted(stated.items())
    )
