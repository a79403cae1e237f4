"""Samplers on functions with a known optimum, in spaces with and without branches."""

import math
from collections.abc import Callable
from statistics import mean, median

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from memtune.errors import SpaceError
from memtune.search import SAMPLERS, MultiObjective, Proposals, SamplerConfig, SamplerRequest
from memtune.search.compatibility import suppress_optuna_messages
from memtune.search.proposals import Candidates
from memtune.search.samplers import GridConfig, TpeConfig
from memtune.search.samplers.joint_space import JointSpace, SobolSampler
from memtune.search.samplers.observed_values import complete_trials, extrapolate_stopped
from memtune.search.samplers.prior_trials import PriorTrials
from memtune.search.trial_store import END_KEY
from memtune.spaces import RandomChooser, Space, read_space
from memtune.trial_state import StopReason, TrialEnd
from memtune.values import digest
from tests.presence import require

COMPLETE, PRUNED = TrialState.COMPLETE, TrialState.PRUNED
SPACE = """
[model]
width = { float = [0.0, 1.0] }
[optimiser]
one_of = "kind"
[optimiser.sgd]
learning_rate = { float = [1e-2, 1e1], log = true }
[optimiser.adam]
learning_rate = { float = [1e-5, 1e-1], log = true }
"""
BEST_RATES = {"sgd": 1.0, "adam": 1e-3}
LEARNING = {"tpe": 40, "gp": 14, "nsga2": 60}
"""Asks within which a sampler learns."""


def compute_rate_distance(configuration: dict) -> float:
    """Decades between the learning rate and the best one of its optimiser."""
    optimiser = configuration["optimiser"]
    return abs(math.log10(optimiser["learning_rate"] / BEST_RATES[optimiser["kind"]]))


def compute_cost(configuration: dict) -> float:
    """0 at width 0.7 and the best learning rate of adam; sgd adds 0.3."""
    is_sgd = configuration["optimiser"]["kind"] == "sgd"
    return (
        compute_rate_distance(configuration) ** 2
        + (configuration["model"]["width"] - 0.7) ** 2
        + 0.3 * is_sgd
    )


def ask(config: SamplerConfig, space: Space, study: optuna.Study, prior_points=()) -> optuna.Trial:
    """The next trial of a study under a sampler that learns after six."""
    joint, asked = JointSpace(space), dict(enumerate(study.get_trials(deepcopy=False)))
    number, prior = len(asked), PriorTrials(prior_points, joint)
    seed = int(digest(config.seed, number)[:8], 16)
    led = prior.list_led(number + 1, asked)
    led = led if number in led else []
    request = SamplerRequest(seed, {}, number, asked, led, joint, 6, MultiObjective(), prior)
    study.sampler = config.make_sampler(request)
    return study.ask()


def search(asks: int, is_stopped: bool = False, prior_points=(), kind="tpe", **terms) -> list[dict]:
    """The configurations of trials that end one after another, all complete or all stopped early."""
    space = read_space(SPACE, "space.toml")
    config, study, found = SAMPLERS[kind](**terms), optuna.create_study(), []
    for _ in range(asks):
        trial = ask(config, space, study, prior_points)
        found.append(space.sample(trial))
        if is_stopped:
            trial.report(compute_cost(found[-1]), 100)
            study.tell(trial, state=PRUNED)
        else:
            study.tell(trial, compute_cost(found[-1]))
    return found


def draw(count: int, seed: int) -> list[dict]:
    space, chooser = read_space(SPACE, "space.toml"), RandomChooser(seed)
    return [space.sample(chooser) for _ in range(count)]


@pytest.fixture(autouse=True)
def _quiet():
    with suppress_optuna_messages():
        yield


@pytest.fixture(scope="module", params=LEARNING)
def found(request) -> list[dict]:
    """What a sampler has tried, all of it to the end."""
    with suppress_optuna_messages():
        return search(LEARNING[request.param], kind=request.param)


def test_a_sampler_learns_a_parameter_that_only_some_trials_have(found):
    """The later half of its trials is nearer to the best learning rate than trials drawn at random."""
    late = found[len(found) // 2 :]
    assert mean(map(compute_rate_distance, late)) < 0.75 * mean(map(compute_rate_distance, draw(1000, 0)))


def test_the_best_of_a_sampler_is_better_than_the_best_of_as_many_random_trials(found):
    random_best = [min(map(compute_cost, draw(len(found), seed))) for seed in range(101)]
    assert min(map(compute_cost, found)) < median(random_best)


@pytest.mark.parametrize("kind", ["gp", "nsga2"])
def test_a_sampler_of_complete_trials_learns_from_stopped_ones(kind):
    asks = LEARNING[kind]
    late = search(asks, is_stopped=True, kind=kind)[asks // 2 :]
    assert mean(map(compute_cost, late)) < 0.75 * mean(map(compute_cost, draw(1000, 0)))


def open_proposals(space: str, kind="tpe", **terms) -> Proposals:
    return Proposals(
        "sqlite:///:memory:",
        "s",
        Candidates(
            read_space(space, "space.toml"),
            SAMPLERS[kind](**terms),
            identify=repr,
            get_refusal_reason=lambda configuration: None,
        ),
    )


def test_tpe_draws_the_parameters_of_chosen_branches_only():
    space = read_space(SPACE, "space.toml")
    study = optuna.create_study()
    for number in range(12):
        trial = ask(TpeConfig(), space, study)
        value = compute_cost(space.sample(trial))
        if number >= 6:
            assert set(trial.relative_params) == set(trial.params)
            assert len(trial.params) == 3
        study.tell(trial, value)


@pytest.mark.parametrize(
    "config", [{"kind": "qmc"}, {"kind": "tpe", "startup": "sobol", "startup_trials": 16}]
)
def test_sobol_points_fill_the_space_evenly(config):
    """Of 16 points of a Sobol sequence, each sixteenth of every range holds exactly one."""
    space = "[model]\nwidth = { float = [0.0, 1.0] }\nrate = { float = [1e-4, 1.0], log = true }\n"
    proposals = open_proposals(space, **config)
    models = [require(proposals.ask()).configuration["model"] for _ in range(16)]
    assert sorted(int(16 * model["width"]) for model in models) == list(range(16))
    assert sorted(int(4 * (math.log10(model["rate"]) + 4)) for model in models) == list(range(16))


def test_a_grid_proposes_each_point_once_and_no_other(read_optuna_trials, storage):
    space = (
        '[model]\nlayers = { int = [1, 3] }\n[b]\none_of = "kind"\n[b.x]\n[b.y]\nz = { choice = [1, 2] }\n'
    )
    proposals = Proposals(
        storage,
        "s",
        Candidates(
            read_space(space, "s.toml"),
            GridConfig(),
            repr,
            lambda configuration: None,
        ),
    )
    found = []
    while proposal := proposals.ask():
        found.append(repr(proposal.configuration))
        proposals.complete(proposal.number, 1.0)
    assert len(found) == len(set(found)) == len(read_optuna_trials()) == 9


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (SPACE, "model.width, optimiser.learning_rate have a continuous range"),
        (
            "[model]\nwidth = { int = [1, 100_001] }\n",
            '100,001 points, more than 100,000; fix some fields, or choose kind = "qmc"',
        ),
    ],
)
def test_a_grid_needs_a_finite_space(space, message):
    with pytest.raises(SpaceError, match=message):
        GridConfig().check_space(read_space(space, "space.toml"))
    TpeConfig().check_space(read_space(space, "space.toml"))


LEAVES = """
[a]
even = { int = [2, 11], step = 3 }
log = { int = [1, 100], log = true }
grid = { float = [0.0, 0.5], step = 0.1 }
rate = { float = [1e-3, 1.0], log = true }
kind = { choice = ["x", "y", "z"] }
flag = { choice = [true] }
"""


def make_joint(text: str = LEAVES) -> JointSpace:
    return JointSpace(read_space(text, "space.toml"))


def test_a_parameter_with_one_value_is_no_dimension():
    assert list(make_joint().distributions) == ["a.even", "a.log", "a.grid", "a.rate", "a.kind"]


@pytest.mark.parametrize(
    ("coordinate", "values"),
    [(0.0, [2, 1, 0.0, 1e-3, "x"]), (0.5, [8, 7, 0.3, 0.0316227766, "y"]), (1.0, [11, 100, 0.5, 1.0, "z"])],
)
def test_a_point_of_the_cube_is_read_as_parameters(coordinate, values):
    assert list(make_joint().read_cube([coordinate] * 5).values()) == pytest.approx(values)


def make_trial(
    state: TrialState, curve: dict[int, float], final: float | None = None, **attrs
) -> FrozenTrial:
    return create_trial(state=state, value=final, intermediate_values=curve, user_attrs=attrs)


def test_a_stopped_trial_is_extrapolated_by_what_others_gained():
    trials = [
        make_trial(COMPLETE, {10: 5.0, 30: 4.0, 90: 3.0}, 3.0),
        make_trial(COMPLETE, {10: 6.0, 30: 4.5, 90: 3.5}, 3.5),
        make_trial(COMPLETE, {10: 7.0, 30: 5.0, 90: 1.0}, 1.0),
        make_trial(PRUNED, {10: 8.0}),
        make_trial(PRUNED, {10: 8.0, 30: 6.0}),
        make_trial(PRUNED, {100: 6.0}),
        make_trial(PRUNED, {10: math.nan}),
        make_trial(PRUNED, {10: 1.0}, refused="too large"),
    ]
    extrapolated = extrapolate_stopped(trials)
    assert [trial.value for trial in extrapolated[3:6]] == [5.5, 5.0, 6.0]
    assert [trial.state for trial in extrapolated] == [COMPLETE] * 6 + [PRUNED] * 2


def test_without_a_complete_trial_the_last_value_is_the_extrapolated_one():
    assert [trial.value for trial in extrapolate_stopped([make_trial(PRUNED, {10: 8.0, 20: 7.0})])] == [7.0]


def test_complete_trials_have_a_value_of_every_parameter():
    joint = make_joint("[a]\nx = { float = [0.0, 1.0] }\ny = { int = [1, 3] }\n")
    trials = [
        make_trial(COMPLETE, {}, 2.0),
        make_trial(PRUNED, {10: 4.0, 20: 3.0}),
        make_trial(PRUNED, {}, refused="too large"),
        make_trial(PRUNED, {}),
        make_trial(TrialState.RUNNING, {}),
        make_trial(PRUNED, {}, ending={"state": TrialState.FAIL.name}),
    ]
    for number, trial in enumerate(trials):
        trial.number = number
    completed = complete_trials(trials, joint)
    assert [trial.number for trial in completed] == [0, 1, 2, 4, 5]
    assert [completed[place].value for place in (0, 1, 2, 4)] == [2.0, 3.0, 3.0, 3.0]
    assert all(trial.params == {"a.x": 0.5, "a.y": 2} for trial in completed)
    assert completed[3].state is TrialState.RUNNING


def test_a_parameter_outside_of_the_joint_space_follows_from_the_seed():
    study, distribution = optuna.create_study(), optuna.distributions.FloatDistribution(0.0, 1.0)
    trial = create_trial(state=TrialState.RUNNING)
    first, again = (
        SobolSampler(make_joint(), 7, index=3).sample_independent(study, trial, "other", distribution)
        for _ in range(2)
    )
    assert first == again


def test_what_a_sampler_learns_of_stopped_trials_follows_from_the_setting():
    """Stopped trials are the best ones when they are extrapolated by what the complete ones gained."""
    proposed: dict[str, list[dict]] = {}
    for setting in ("as_reported", "extrapolated"):
        space, study = read_space(SPACE, "space.toml"), optuna.create_study()
        config = TpeConfig(stopped_trials=setting)
        found: list[dict] = []
        proposed[setting] = found
        for number in range(12):
            trial = ask(config, space, study)
            found.append(space.sample(trial))
            cost, is_stopped = compute_cost(found[-1]), number % 3 == 0
            trial.report(cost if is_stopped else cost + 5, 100)
            study.tell(trial, None if is_stopped else cost, state=PRUNED if is_stopped else COMPLETE)
    assert proposed["as_reported"][:6] == proposed["extrapolated"][:6]
    assert proposed["as_reported"] != proposed["extrapolated"]


def make_prior(rate: float) -> list[dict]:
    """Ten points of adam at a learning rate."""
    parameters = {"optimiser.kind": "adam", "optimiser.adam.learning_rate": rate}
    return [{"model.width": 0.1 * place, **parameters} for place in range(10)]


def test_every_second_of_the_first_asks_follows_a_prior():
    searches = [search(4, seed=seed, prior_points=make_prior(1e-3)) for seed in range(15)]
    led = [found["optimiser"] for first, _, third, _ in searches for found in (first, third)]
    rates = [optimiser["learning_rate"] for optimiser in led if optimiser["kind"] == "adam"]
    assert len(rates) > 20
    assert median(abs(math.log10(rate / 1e-3)) for rate in rates) < 0.5
    free = [[second, fourth] for _, second, _, fourth in searches]
    assert free == [search(4, seed=seed)[1::2] for seed in range(15)]


def test_the_first_asks_of_a_prior_take_its_points():
    points = make_prior(1e-3)
    prior = PriorTrials(points, JointSpace(read_space(SPACE, "space.toml")), first_ask=4)
    led = prior.list_led(12, {})
    assert led == [4, 6, 8, 10]
    found = [prior.find_point(led[:count], refused=()) for count in range(1, 5)]
    assert found == [*points[:3], None]


def test_a_sobol_startup_draws_what_a_prior_does_not_say():
    rates = [{"optimiser.adam.learning_rate": 1e-3, "optimiser.sgd.learning_rate": 1.0}] * 20
    led = search(4, startup="sobol", prior_points=rates)
    free = search(4, startup="sobol")
    assert [found["model"] for found in led] == [found["model"] for found in free]
    assert [found["optimiser"]["kind"] for found in led] == [found["optimiser"]["kind"] for found in free]
    assert led != free


def test_the_next_point_of_a_prior_follows_a_refused_one():
    points = make_prior(1e-3)
    prior = PriorTrials(points, JointSpace(read_space(SPACE, "space.toml")))
    found = [prior.find_point(range(0, 2 * count, 2), refused={0}) for count in range(1, 6)]
    assert found == [*points[:4], None]


def test_configurations_that_a_program_gives_are_no_turns_of_a_prior():
    """Neither are they judged as those that it led or as the others."""
    prior = PriorTrials(make_prior(1e-3), JointSpace(read_space(SPACE, "space.toml")), first_ask=1)
    asked = {0: make_asked([9.0], count=1)[0], **make_asked([1.0, 2.0], first_ask=1, count=7)}
    given = {1: make_asked([9.0], count=1)[0], 5: make_asked([0.1], count=1)[0]}
    shifted = dict(zip([0, 2, 3, 4, 6, 7, 8, 9], asked.values(), strict=True))
    assert prior.list_led(8, asked) == [1, 3, 5, 7]
    assert prior.list_led(10, shifted | given, given) == [2, 4, 7, 9]


def test_trials_of_a_prior_have_what_its_points_believe_under_every_option_that_is_open():
    space = JointSpace(read_space(SPACE, "space.toml"))
    rates = {"optimiser.adam.learning_rate": 1e-3, "optimiser.sgd.learning_rate": 1.0}
    for point, expected in (
        (rates, rates),
        (rates | {"optimiser.kind": "sgd"}, {"optimiser.kind": "sgd", "optimiser.sgd.learning_rate": 1.0}),
    ):
        trials = PriorTrials([point] * 20, space).make_trials([0])
        good = [trial.params for trial in trials if trial.value == -math.inf]
        assert good == [expected] * 20


def test_a_prior_of_learning_rates_does_not_hide_which_optimiser_is_better():
    """Led trials learn what the prior does not say as those of a study without a prior do."""
    rates = [{"optimiser.adam.learning_rate": 1e-3, "optimiser.sgd.learning_rate": 1.0}] * 20
    searches = [search(30, seed=seed, prior_points=rates) for seed in range(6)]
    late = [found["optimiser"]["kind"] for each in searches for found in each[12::2]]
    assert late.count("adam") > 0.7 * len(late)
    startup = [found["optimiser"]["kind"] for each in searches for found in each[:6:2]]
    assert 0.2 < startup.count("adam") / len(startup) < 0.8


def test_a_prior_that_its_trials_contradict_is_given_up():
    space = JointSpace(read_space(SPACE, "space.toml"))
    right, wrong = make_asked([1.0, 2.0], count=8), make_asked([2.0, 1.0], count=8)
    prior = PriorTrials(make_prior(1e-3), space)
    assert 8 in prior.list_led(9, right)
    assert 8 not in prior.list_led(9, wrong)
    assert 42 not in prior.list_led(43, make_asked([1.0, 2.0], count=42))
    assert (prior.list_led(8, right), prior.list_led(8, wrong)) == ([0, 2, 4, 6], [0, 2, 4])


def test_a_prior_that_says_nothing_of_the_alternatives_is_judged_within_each():
    """What it led is better within both families, although its family is the worse one in most pairs."""
    space = JointSpace(read_space(SPACE, "space.toml"))
    families = [{"optimiser.kind": kind} for kind in ("adam", "sgd")]
    rates = [{"optimiser.adam.learning_rate": 1e-3, "optimiser.sgd.learning_rate": 1.0}]
    costs = {"adam": (3.0, 4.0), "sgd": (1.0, 2.0)}
    asked = {}
    for ask, kind in enumerate(["adam", "adam", "adam", "adam", "adam", "sgd", "adam", "sgd", "sgd", "sgd"]):
        params = {"optimiser.kind": kind}
        distributions = {name: space.distributions[name] for name in params}
        curve = {1: costs[kind][ask % 2]}
        asked[ask] = create_trial(
            value=curve[1], params=params, distributions=distributions, intermediate_values=curve
        )
    assert 10 in PriorTrials(rates, space, alternatives=families).list_led(11, asked)
    assert 10 not in PriorTrials(rates, space).list_led(11, asked)


def test_tpe_leaves_a_region_where_trials_fail(open_study: Callable[..., Proposals]) -> None:
    """It fails in 36 of 40 where it learns nothing from failures: the values are best at their edge."""
    proposals, failed = open_study(kind="tpe"), list[int]()
    for number in range(40):
        trial = require(proposals.ask())
        size = trial.configuration["model"]["memory_size"]
        if size > 8:
            failed.append(number)
            proposals.fail(trial.number, TrialEnd(reason=StopReason.DIVERGED))
        else:
            proposals.complete(trial.number, 1 / size)
    assert len(failed) < 25


def test_trials_that_failed_do_not_shift_who_was_led():
    """A duplicate of a failed trial is not among those that a sampler learns from."""
    prior = PriorTrials(make_prior(1e-3), JointSpace(read_space(SPACE, "space.toml")))
    right = {ask: trial for ask, trial in make_asked([1.0, 2.0]).items() if ask != 0}
    assert 8 in prior.list_led(9, right)


def test_a_prior_whose_trials_fail_is_given_up():
    prior = PriorTrials(make_prior(1e-3), JointSpace(read_space(SPACE, "space.toml")))
    diverged = {ask: trial for ask, trial in make_asked([1.0, 2.0]).items() if ask % 2}
    assert 8 not in prior.list_led(9, diverged)
    for ask, trial in make_asked([1.0, 2.0]).items():
        if ask % 2 == 0:
            trial.state, trial.intermediate_values = PRUNED, {}
            trial.user_attrs[END_KEY] = {"state": TrialState.FAIL.name}
            diverged[ask] = trial
    assert 8 not in prior.list_led(9, diverged)
    assert 8 in prior.list_led(9, make_asked([1.0, 2.0]))


def test_trials_compare_at_the_last_report_that_both_have():
    prior = PriorTrials(make_prior(1e-3), JointSpace(read_space(SPACE, "space.toml")))
    asked = make_asked([2.0, 1.0])
    asked[0].intermediate_values[900], asked[1].intermediate_values[900] = 0.1, 0.2
    assert 8 not in prior.list_led(9, asked)
    for ask, trial in asked.items():
        trial.intermediate_values[900] = 0.1 + 0.1 * (ask % 2)
    assert 8 in prior.list_led(9, asked)


def test_reports_a_batch_apart_compare():
    prior = PriorTrials(make_prior(1e-3), JointSpace(read_space(SPACE, "space.toml")))
    asked = make_asked([2.0, 1.0])
    for ask, trial in asked.items():
        (tokens, value), *_ = trial.intermediate_values.items()
        trial.intermediate_values = {tokens + 8 * (ask % 2): value}
    assert 8 not in prior.list_led(9, asked)


def make_asked(costs: list[float], first_ask: int = 0, count: int = 6) -> dict[int, FrozenTrial]:
    """Ended trials by ask, whose costs are these in turn."""
    return {
        first_ask + place: create_trial(
            state=PRUNED, intermediate_values={300: costs[place % 2], 600: costs[place % 2]}
        )
        for place in range(count)
    }
