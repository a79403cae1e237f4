"""The contract of every file in search_spaces/; the tests find new files themselves."""

import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
import torch

from memtune.errors import SpaceError
from memtune.models import (
    MODELS,
    NeuralLanguageModelConfig,
    build_model,
    list_families,
    negative_log_likelihood,
)
from memtune.models.families.mixer_blocks import MixerBlocksConfig
from memtune.spaces import (
    RandomChooser,
    SizeKind,
    Space,
    check_space,
    load_space,
    override_space,
)
from memtune.spaces.space_points import pin_point
from memtune.training import TrialConfig
from memtune.values import digest, flatten, parse
from tests.presence import require

FILES = sorted(Path(__file__).parents[2].glob("search_spaces/*.toml"))
BUDGET = {"training": {"tokens": 1000}}  # belongs to studies, not to spaces
WORDS = 31
SAMPLES = 200
NARROW = 8
CARRY_WORDS = ("memory_network", "residual_memory", "feed_forward")
"""Families whose state is the last words, whatever their width."""

every_space = pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])


def is_of_networks(file: Path) -> bool:
    """Whether the families of a space are networks."""
    family = load_space(file).family
    return family is None or issubclass(MODELS[family], NeuralLanguageModelConfig)


NETWORKS = [file for file in FILES if is_of_networks(file)]
every_space_of_networks = pytest.mark.parametrize("file", NETWORKS, ids=[file.stem for file in NETWORKS])


def load_complete_space(file: Path) -> Space:
    return override_space(load_space(file), BUDGET if is_of_networks(file) else {})


def measure_size(configuration, kind: SizeKind) -> int:
    return parse(TrialConfig, configuration, "measured").measure_size(kind, WORDS)


@cache
def draw_samples(file: Path) -> list[TrialConfig]:
    space, chooser = load_complete_space(file), RandomChooser(0)
    drawn = [space.sample(chooser, measure_size) for _ in range(SAMPLES)]
    return [parse(TrialConfig, configuration, file.name) for configuration in drawn]


def make_narrow(config: TrialConfig) -> TrialConfig:
    """The same architecture at a small width."""
    return config.model_copy(update={"model": config.model.model_copy(update={"width": NARROW})})


def list_choices(config: TrialConfig) -> Iterator[object]:
    """Each option and number of the model, and each pair of options, where a number is none, one or more."""
    fields = sorted(flatten(config.model.model_dump(mode="json")))
    yield from ((name, value) for name, value in fields if not isinstance(value, float))
    options = [
        (name, min(value, 2) if isinstance(value, int) else value > 0 if isinstance(value, float) else value)
        for name, value in fields
    ]
    yield from combinations(options, 2)


def draw_architectures(file: Path) -> list[TrialConfig]:
    """The first narrow samples that have each choice, and each pair of choices, of all samples."""
    found: set[object] = set()
    chosen = []
    for config in map(make_narrow, draw_samples(file)):
        if not (choices := set(list_choices(config))) <= found:
            chosen.append(config)
            found |= choices
    return chosen


def test_every_family_has_a_space():
    assert {config.model.family for file in FILES for config in draw_samples(file)} == set(MODELS)


WITHOUT_POINTS = {"feed_forward"}
"""Benes et al. (2017) quote the feed-forward network's result without its settings."""


@every_space
def test_the_settings_of_papers_are_in_the_space_unchanged(file):
    space = load_complete_space(file)
    assert bool(space.paper_points) == (file.stem not in WITHOUT_POINTS)
    for point in space.paper_points:
        pinned = pin_point(space, point, file.name)
        sampled = dict(flatten(space.sample(RandomChooser(0, pinned), measure_size)))
        assert {field: sampled[field] for field in point} == dict(point)


@every_space
def test_a_space_asks_a_question(file):
    assert load_space(file).question.endswith("?")


@every_space
def test_every_name_and_bound_is_known_to_the_configuration(file):
    space = load_complete_space(file)
    check_space(space, TrialConfig, measure_size=measure_size)
    with pytest.raises(SpaceError, match=r"model\.unknown"):
        check_space(override_space(space, {"model": {"unknown": 1}}), TrialConfig, None, measure_size)


@every_space
def test_a_space_leaves_budget_and_protocol_to_the_study(file):
    configuration = load_space(file).sample(RandomChooser(0), measure_size)
    assert set(configuration) == ({"model", "training"} if is_of_networks(file) else {"model"})
    assert not {"epochs", "tokens", "report_every"} & set(configuration.get("training", {}))


@every_space
def test_samples_are_trials_that_differ(file):
    assert len({digest(config) for config in draw_samples(file)}) == min(
        SAMPLES, load_complete_space(file).size() or SAMPLES
    )


def test_none_of_ten_thousand_configurations_of_all_families_is_refused():
    space, chooser = load_complete_space(FILES[0].with_name("all_families.toml")), RandomChooser(1)
    drawn = [parse(TrialConfig, space.sample(chooser, measure_size), "drawn") for _ in range(10_000)]
    assert {config.model.family for config in drawn} == set(list_families(trained_by_gradient=True))


@every_space_of_networks
def test_every_sampled_architecture_takes_a_training_step(file):
    """The loss is finite before and after a step with the sampled optimiser, and the step changes weights."""
    tokens_BT = torch.randint(WORDS, (3, 7), generator=torch.Generator().manual_seed(0))
    for config in draw_architectures(file):
        model = build_model(config.model, WORDS, seed=0)
        training = require(config.training)
        optimiser = training.optimiser.build(model.parameters())
        weight = next(model.get_submodule("output").parameters())
        before = weight.detach().clone()
        for _ in range(2):
            nats, _ = negative_log_likelihood(model, tokens_BT[:, :-1], tokens_BT[:, 1:])
            assert nats.isfinite(), config
            optimiser.zero_grad()
            nats.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), require(training.clip_norm))
            optimiser.step()
        assert not torch.equal(before, weight), config


def test_a_sampled_matrix_memory_stays_finite_over_a_long_text():
    """Whatever the length of its keys, an erasure takes away what the memory has at a key, not more."""
    tokens_BT = torch.randint(WORDS, (1, 129), generator=torch.Generator().manual_seed(0))
    drawn = draw_samples(FILES[0].with_name("mixer_blocks.toml"))
    models = [MixerBlocksConfig.model_validate(config.model.model_dump()) for config in drawn]
    memories = [model for model in models if model.mixer.kind == "matrix_memory"]
    assert len(memories) >= 10
    for memory in memories:
        model = build_model(memory.model_copy(update={"width": 64, "layers": 1}), WORDS, seed=0)
        nats, _ = negative_log_likelihood(model, tokens_BT[:, :-1], tokens_BT[:, 1:])
        assert nats.isfinite(), memory.mixer


TARGETS: dict[SizeKind, int] = {"parameters": 20_000, "multiply_adds": 20_000, "state": 30_000}
FITTED = [
    (file, kind)
    for file in NETWORKS
    for kind in TARGETS
    if kind != "state" or load_space(file).family not in (None, *CARRY_WORDS)
]


def fit_width(file: Path, kind: SizeKind) -> Space:
    return override_space(load_complete_space(file), {"model": {"width": {f"fit_{kind}": TARGETS[kind]}}})


@pytest.mark.parametrize(("file", "kind"), FITTED, ids=[f"{file.stem}-{kind}" for file, kind in FITTED])
def test_sizes_can_be_made_equal(file, kind):
    """A study may fit the width instead of sampling it; the next widths are no nearer to the target."""
    target, space = TARGETS[kind], fit_width(file, kind)
    for seed in range(20):
        configuration = space.sample(RandomChooser(seed), measure_size)
        width = configuration["model"]["width"]
        below, own, above = (
            measure_size({**configuration, "model": {**configuration["model"], "width": near}}, kind)
            for near in (width - 1, width, width + 1)
        )
        assert abs(own - target) <= min(abs(below - target), abs(above - target))
        # The state of many layers or slots grows by hundreds with each width.
        assert abs(own - target) <= max(0.05 * target, (above - below) / 2)


@pytest.mark.parametrize("family", CARRY_WORDS)
def test_the_state_of_a_family_that_carries_words_cannot_be_fitted(family):
    file = next(file for file in NETWORKS if load_space(file).family == family)
    with pytest.raises(SpaceError, match=rf"fit_state = {TARGETS['state']:,} .* numbers of state, whatever"):
        fit_width(file, "state").sample(RandomChooser(0), measure_size)


def test_families_are_searched_up_to_equal_rates_of_adam():
    """A family whose rates end lower would lose a short training for that alone."""
    tables = [
        tomllib.loads(file.read_text())["training"]["optimiser"]
        for file in NETWORKS
        if load_space(file).family
    ]
    ends = {
        table[kind]["learning_rate"]["float"][1]
        for table in tables
        for kind in ("adam", "adamw")
        if kind in table
    }
    assert ends == {1e-2}


def test_one_space_holds_every_family_of_networks():
    space = load_complete_space(next(file for file in FILES if file.stem == "all_families"))
    options = [option for choice in space.family_choices() for option in choice.values()]
    assert sorted(map(str, options)) == list_families(trained_by_gradient=True)
