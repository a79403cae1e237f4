"""A study file is checked completely before anything starts, and its id is a digest of its content."""

import re
from pathlib import Path

import pytest
import torch

import memtune
from memtune.api import run_search
from memtune.corpora import Corpus
from memtune.errors import ConfigurationError, CorpusError, MemtuneError, SpaceError, StudyError
from memtune.search import Outcome
from memtune.settings import Settings
from memtune.spaces import RandomChooser, Real
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import check_spaces, load_study, resolve_study
from memtune.studies.definition.study_terms import name_alternative
from memtune.studies.definition.toml_files import check_document
from memtune.studies.seed_repeats import make_repeat_space
from memtune.studies.study_check import check_study, dry_run, measure_core_seconds
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from tests.presence import require


def resolve(path: Path, settings: Settings, **overrides: object) -> ResolvedStudy:
    return resolve_study(path, load_study(path, overrides), settings)


def test_constants_of_the_study_override_the_space(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text() + "\n[model]\nwidth = 6\n")
    found = resolve(study_file, settings)
    assert {found.sample(RandomChooser(seed)).model.describe()["width"] for seed in range(9)} == {6}


def test_the_same_content_is_the_same_study_whatever_its_budget(study_file: Path, settings: Settings) -> None:
    one, more = resolve(study_file, settings), resolve(study_file, settings, **{"budget.trials": 99})
    assert one.id == more.id


@pytest.mark.parametrize("change", [{"seed": 5}, {"sampler.kind": "random"}, {"training.tokens": 901}])
def test_other_terms_make_another_study(
    study_file: Path, settings: Settings, change: dict[str, object]
) -> None:
    assert resolve(study_file, settings).id != resolve(study_file, settings, **change).id


def test_another_space_makes_another_study(study_file: Path, settings: Settings) -> None:
    before = resolve(study_file, settings).id
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text().replace("[1, 2]", "[1, 3]"))
    assert resolve(study_file, settings).id != before


POINTS = "points = [{ model.layers = 2 }, { model.layers = 1 }]\n"


def test_points_are_tried_first(study_file: Path, settings: Settings) -> None:
    study_file.write_text(POINTS + study_file.read_text())
    proposals = resolve(study_file, settings).open_proposals()
    layers = [require(proposals.ask()).configuration["model"]["layers"] for _ in range(2)]
    assert layers == [2, 1]


def test_a_point_outside_of_the_space_is_refused_before_anything_starts(
    study_file: Path, settings: Settings
) -> None:
    study_file.write_text(POINTS.replace("2", "7") + study_file.read_text())
    with pytest.raises(SpaceError, match=r"point 1: model.layers = 7 is not in the space.* value is 2"):
        resolve(study_file, settings)


def test_the_settings_of_papers_are_tried_on_request(study_file: Path, settings: Settings) -> None:
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text() + "\n[[points]]\nmodel.layers = 2\n")
    assert resolve(study_file, settings).list_initial_points() == []
    found = resolve(study_file, settings, points="papers")
    assert found.list_initial_points() == [{"model.layers": 2}]


def test_a_family_has_the_ranges_that_the_documentation_gives_it(study_file: Path) -> None:
    text = (Path(memtune.__file__).parents[2] / "docs" / "studies.md").read_text()
    (example,) = re.findall(r"```toml\n(\[families.*?)```", text, re.DOTALL)
    study_file.write_text(
        'question = "q"\ncorpus = "tiny"\nspaces = ["lstm", "recurrent_memory"]\n'
        f"[training]\ntokens = 900\noptimiser.learning_rate = 0.5\n{example}"
    )
    ranges = {
        space.family: [
            (parameter.leaf.low, parameter.leaf.high)
            for parameter in space.parameters()
            if parameter.field == "training.optimiser.learning_rate" and isinstance(parameter.leaf, Real)
        ]
        for space in check_spaces(study_file, load_study(study_file), 100)
    }
    assert ranges == {"lstm": [(1e-3, 1e-2)], "recurrent_memory": [(1e-4, 1e-3)]}


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("[families.lstmm.model]\nwidth = 8", r"line 13: families.lstmm: no space .*mean .?lstm"),
        ("[families.lstm.model]\nlayers = 1\nwidht = 8", r"line 15, over .*widht.*width"),
        ("[families.lstm.model]\nwidth = { int = [-2, 8] }", r"line 14, over .*model.width.* = -2"),
        ("[families.lstm.task]\nkind = 1", r"families.lstm.task"),
    ],
)
def test_wrong_terms_of_a_family_are_refused_with_their_line(
    terms: str, message: str, study_file: Path, settings: Settings
) -> None:
    study_file.write_text(f"{study_file.read_text()}\n{terms}\n")
    with pytest.raises(MemtuneError, match=message):
        resolve(study_file, settings)


@pytest.mark.parametrize("families", [1, 2, 4, 5, 7])
def test_a_dry_run_shows_each_of_five_families_and_no_configuration_twice(
    families: int, study_file: Path, settings: Settings
) -> None:
    names = ["lstm", "rnn", "scrn", "recurrent_memory", "residual_memory", "stack_lstm", "attention_lstm"]
    samples = dry_run(study_file, {"spaces": names[:families]}, settings).samples
    assert len({*map(repr, samples)}) == 5
    assert len({sample.model.family for sample in samples}) == min(families, 5)


def test_a_dry_run_shows_all_points_of_a_small_space(study_file: Path, settings: Settings) -> None:
    terms = {"sampler.kind": "grid", "model": {"width": 4}, "training.optimiser": {"learning_rate": 0.5}}
    samples = dry_run(study_file, terms, settings).samples
    assert sorted(sample.model.describe()["layers"] for sample in samples) == [1, 2]


EXCLUSIVE_SPACE = """[model]
family = "lstm"
width = { choice = [8, 9, 10, 11] }
embedding_width = { choice = [8, 9] }
tie_output = { choice = [true, false] }

[training.optimiser]
kind = "sgd"
learning_rate = 0.1
"""
"""Tied tables need embeddings as wide as the layers: of 16 points 6 are no trials."""


@pytest.mark.parametrize("seed", range(3))
def test_a_study_of_which_some_draws_are_no_trial_has_samples_of_the_others(
    seed: int, study_file: Path, settings: Settings
) -> None:
    (study_file.parent / "space.toml").write_text(EXCLUSIVE_SPACE)
    resolved, samples = dry_run(study_file, {"seed": seed}, settings)
    assert len(samples) == 5
    assert resolved.alternatives == {"lstm": ["lstm"]}
    problems = resolved.list_draw_problems(range(50))
    assert 5 < len(problems) < 35
    assert "tie_output needs embeddings as wide as the layers" in problems[0]


def test_what_repeats_take_is_measured_on_models_that_are_repeated(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(config: TrialConfig, _: Corpus) -> float:
        return 0.0 if config.training is None else 0.5

    monkeypatch.setattr("memtune.studies.study_check.measure_seconds_per_token", measure)
    (study_file.parent / "kneser_ney.toml").write_text('[model]\nfamily = "kneser_ney"\norder = 2\n')
    resolved, samples = dry_run(study_file, {"spaces": ["space.toml", "kneser_ney.toml"]}, settings)
    measured = measure_core_seconds(resolved, samples[:3])
    assert [sample.model.family for sample in samples[:3]] == ["lstm", "kneser_ney", "lstm"]
    assert measured == pytest.approx((300, 450))


def test_a_name_that_no_folder_can_have_is_refused_in_a_dry_run(study_file: Path, settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"name.*100"):
        dry_run(study_file, {"name": "n" * 300}, settings)


@pytest.mark.parametrize(
    "terms", [{"training.precision": "bfloat16"}, {"repeats": {"best": 1, "precision": "bfloat16"}}]
)
def test_a_precision_that_this_machine_lacks_is_refused_before_anything_starts(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, terms: dict[str, object]
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "amx_bf16": False})
    with pytest.raises(StudyError, match="this processor has neither"):
        dry_run(study_file, terms, settings)


def test_a_precision_of_other_nodes_is_not_checked_here(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "amx_bf16": False})
    study = load_study(study_file, {"training.precision": "bfloat16"})
    assert check_study(study_file, study, settings, "ray://head:10001").study == study


def test_a_grid_over_a_continuous_space_is_refused(study_file: Path, settings: Settings) -> None:
    with pytest.raises(SpaceError, match=r"learning_rate have a continuous range"):
        resolve(study_file, settings, **{"sampler.kind": "grid"})


def test_a_budget_in_epochs_is_converted_to_tokens(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text().replace("tokens = 900", "epochs = 2"))
    found = resolve(study_file, settings)
    assert found.trial_tokens == 2 * found.corpus["train"].token_count


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('corpus = "tiny"', 'corpus = "tinny"', CorpusError, 'did you mean "tiny"'),
        (
            "[training]",
            "[sampler]\nseed = 4_294_967_296\n[training]",
            ConfigurationError,
            "sampler.seed: Input",
        ),
        ("tokens = 900", "epochs = inf", SpaceError, "epochs: Input should be less than"),
        ("trials = 4", "trails = 4", ConfigurationError, '"budget.trails"; did you mean "trials"'),
        ("trials = 4", "trials = 0", ConfigurationError, "budget.trials: Input should be greater"),
        ("trials = 4", 'time = "soon"', ConfigurationError, 'such as "90s", "15m", "2h"'),
        ("trials = 4", "time = inf", ConfigurationError, "budget.time: Input should be a finite number"),
        ("trials = 4", f'time = "{"9" * 400}d"', ConfigurationError, "budget.time: Input should be a finite"),
        ("trials = 4", "cpu_hours = nan", ConfigurationError, "budget.cpu_hours: Input should be"),
        (
            "[budget]",
            "[prices]\ncpu_hour = inf\n[budget]",
            ConfigurationError,
            "prices.cpu_hour: Input should",
        ),
        (
            "[budget]",
            f'[resources]\ngpu_memory = "{"9" * 400}GB"\n[budget]',
            ConfigurationError,
            "resources.gpu_memory: a size must be finite",
        ),
        ('corpus = "tiny"', 'corpus = "tiny"\npoints = [5]', ConfigurationError, "points"),
        ("tokens = 900", "tokens = 900\nepocs = 2", SpaceError, 'did you mean "epochs"'),
        ('["space.toml"]', '["lstn"]', StudyError, 'no search space "lstn"'),
        ("[budget]", "[budget", StudyError, "is not TOML"),
    ],
)
def test_an_error_in_a_study_names_its_fix(
    study_file: Path, settings: Settings, old: str, new: str, error: type[Exception], message: str
) -> None:
    study_file.write_text(study_file.read_text().replace(old, new))
    with pytest.raises(error) as caught:
        resolve(study_file, settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("document", "overrides", "message"),
    [
        ('question = "q"\ncorpus = "tiny"\nmodel = 5\n', {}, "model: Input should be a valid dictionary"),
        ('budget = 5\nspaces = ["space.toml"]\n', {"budget.trials": 3}, "budget: Input should be a valid"),
    ],
)
def test_a_value_in_place_of_a_table_is_named(
    study_file: Path, document: str, overrides: dict[str, object], message: str
) -> None:
    study_file.write_text(document)
    with pytest.raises(ConfigurationError, match=message):
        load_study(study_file, overrides)


def test_a_space_with_a_name_too_long_for_a_file_is_unknown(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text().replace("space.toml", "x" * 300))
    with pytest.raises(StudyError, match="no search space"):
        resolve(study_file, settings)


def test_a_name_too_long_for_its_folder_is_refused_before_anything_starts(
    study_file: Path, settings: Settings
) -> None:
    named = study_file.rename(study_file.with_name(f"{'n' * 101}.toml"))
    with pytest.raises(ConfigurationError, match=r"name: String should have at most 100 characters"):
        resolve(named, settings)
    resolve(named.rename(named.with_name(f"{'n' * 100}.toml")), settings)


def test_the_error_for_a_missing_study_names_the_nearest_file(study_file: Path) -> None:
    with pytest.raises(StudyError, match='did you mean "layers\\.toml"'):
        load_study(study_file.parent / "layer.toml")


def test_a_bound_of_the_space_that_the_model_refuses_is_an_error_before_the_start(
    study_file: Path, settings: Settings
) -> None:
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text().replace("int = [1, 2]", "int = [0, 2]"))
    with pytest.raises(SpaceError, match=r"\[model.layers\] = 0"):
        resolve(study_file, settings)


def test_models_outside_the_parameter_budget_are_refused_with_their_sizes(
    study_file: Path, settings: Settings
) -> None:
    found = resolve(study_file, settings, **{"budget.max_parameters": 1_000})
    reasons = {
        found.get_refusal_reason(found.sample(RandomChooser(seed)).model_dump(mode="json"))
        for seed in range(20)
    }
    assert None in reasons
    assert any("are more than max_parameters = 1,000" in reason for reason in reasons if reason)


def test_a_parameter_budget_that_no_model_meets_is_an_error_before_the_start(
    study_file: Path, settings: Settings
) -> None:
    with pytest.raises(StudyError, match=r"none of 200 sampled configurations .* max_parameters = 10"):
        resolve(study_file, settings, **{"budget.max_parameters": 10})


def test_durations_are_read_with_their_units(study_file: Path) -> None:
    assert load_study(study_file, {"budget.time": "1.5h"}).budget.time == 5400


def test_the_spaces_of_the_source_tree_are_found_from_anywhere(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text().replace("space.toml", "recurrent_memory"))
    assert resolve(study_file, settings).sample(RandomChooser(0)).model.family == "recurrent_memory"


def test_resuming_a_study_that_never_began_is_refused(study_file: Path, settings: Settings) -> None:
    with pytest.raises(StudyError, match="start it without --resume"):
        run_search(study_file, resume=True, settings=settings)


NGRAMS = """
[model]
family = "kneser_ney"
order = { int = [2, 4] }
"""


@pytest.fixture
def mixed_study(study_file: Path) -> Path:
    """A study of networks and n-gram models, with a width and a training for the networks."""
    (study_file.parent / "ngrams.toml").write_text(NGRAMS)
    text = study_file.read_text().replace('["space.toml"]', '["ngrams.toml", "space.toml"]')
    study_file.write_text(text + "\n[model]\nwidth = 6\n")
    return study_file


def test_fields_that_some_families_lack_override_the_others(mixed_study: Path, settings: Settings) -> None:
    found = resolve(mixed_study, settings)
    samples = [found.sample(RandomChooser(seed)) for seed in range(20)]
    assert {config.model.family for config in samples} == {"kneser_ney", "lstm"}
    for config in samples:
        network = config.model.family == "lstm"
        assert (config.training is not None) == network
        assert not network or config.model.describe()["width"] == 6


def test_a_field_that_no_family_has_is_an_error(mixed_study: Path, settings: Settings) -> None:
    mixed_study.write_text(mixed_study.read_text().replace("width = 6", "widht = 6"))
    with pytest.raises(SpaceError, match='did you mean "width"'):
        resolve(mixed_study, settings)


def test_the_budget_of_a_mixed_study_is_that_of_its_networks(mixed_study: Path, settings: Settings) -> None:
    assert resolve(mixed_study, settings).trial_tokens == 900


def test_a_study_of_n_grams_alone_reads_the_text_once(study_file: Path, settings: Settings) -> None:
    (study_file.parent / "space.toml").write_text(NGRAMS)
    text = study_file.read_text().replace("[training]\ntokens = 900\nreport_every = 300\n", "")
    study_file.write_text(text)
    found = resolve(study_file, settings)
    assert found.trial_tokens == found.corpus["train"].token_count


def test_n_gram_models_are_not_refused_for_their_parameters(mixed_study: Path, settings: Settings) -> None:
    found = resolve(mixed_study, settings, **{"budget.min_parameters": 1_000_000})
    assert found.get_refusal_reason({"model": {"family": "kneser_ney", "order": 3}}) is None
    assert found.get_refusal_reason({"model": {"family": "lstm"}, "training": {"tokens": 9}}) is not None


def test_gpus_that_fit_follow_each_trials_memory(study_file: Path, settings: Settings) -> None:
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text().replace("[4, 8]", "[4, 4000]").replace("{ int = [1, 2] }", "1"))
    found = resolve(
        study_file, settings, **{"resources.gpus_per_trial": "fit", "resources.gpu_memory": "6GB"}
    )
    memory = found.study.resources.gpu_memory
    by_width = {
        config.model.describe()["width"]: found.compute_gpus(config, memory)
        for config in (found.sample(RandomChooser(seed)) for seed in range(9))
    }
    assert by_width == {4: 0.1666, 4000: 0.5}


def test_n_gram_models_request_no_gpu(mixed_study: Path, settings: Settings) -> None:
    found = resolve(mixed_study, settings, **{"resources.gpus_per_trial": 0.5})
    requested = {
        config.model.family: found.compute_gpus(config, None)
        for config in (found.sample(RandomChooser(seed)) for seed in range(30))
    }
    assert requested["kneser_ney"] == 0.0
    assert set(requested.values()) == {0.0, 0.5}


def test_a_trial_too_large_for_a_gpu_is_refused_with_its_size(study_file: Path, settings: Settings) -> None:
    found = resolve(
        study_file, settings, **{"resources.gpus_per_trial": "fit", "resources.gpu_memory": "6GB"}
    )
    sample = found.sample(RandomChooser(0)).model_dump(mode="json")
    sample["model"]["width"] = 20_000
    assert "MiB of a GPU, which has 5,722" in (found.get_refusal_reason(sample) or "")


@pytest.mark.parametrize(("text", "size"), [("24GB", 24 * 10**9), ("1.5 GiB", 1.5 * 2**30)])
def test_sizes_are_read_with_their_units(study_file: Path, text: str, size: float) -> None:
    assert load_study(study_file, {"resources.gpu_memory": text}).resources.gpu_memory == size


def test_an_invalid_share_of_a_gpu_is_refused(study_file: Path) -> None:
    with pytest.raises(ConfigurationError, match="gpus_per_trial"):
        load_study(study_file, {"resources.gpus_per_trial": "some"})
    with pytest.raises(ConfigurationError, match='such as "24GB"'):
        load_study(study_file, {"resources.gpu_memory": "24"})


def test_the_error_for_the_former_table_halving_names_the_new_one(study_file: Path) -> None:
    study_file.write_text(f"{study_file.read_text()}\n[halving]\ngrace = 300\n")
    with pytest.raises(ConfigurationError, match=r'\[early_stopping\] with kind = "successive_halving"'):
        load_study(study_file)


def test_a_rule_that_would_stop_no_trial_is_refused(study_file: Path, settings: Settings) -> None:
    study = load_study(study_file, {"early_stopping": {"kind": "successive_halving", "grace": 900}})
    with pytest.raises(StudyError, match=r"early_stopping\.grace = 900 and a trial has 900 tokens"):
        resolve_study(study_file, study, settings)


def test_a_missing_name_is_an_error_before_heavy_imports(study_file: Path) -> None:
    check_document(study_file, ["question", "corpus", "spaces"])
    with pytest.raises(StudyError, match=r'layers.toml: name is missing; write name = "..." above the first'):
        check_document(study_file, ["question", "name"])


def test_a_file_of_one_trial_is_refused_with_the_command_that_trains_it(study_file: Path) -> None:
    study_file.write_text('question = "q"\ncorpus = "tiny"\n[model]\nfamily = "lstm"\n')
    with pytest.raises(StudyError) as caught:
        load_study(study_file)
    assert str(caught.value) == (
        f"{study_file} is one trial, because it names no search spaces; run: memtune train {study_file}"
    )


@pytest.mark.parametrize(
    ("old", "new"), [("[training]", "[model]\nwidth = 4\n[training]"), ("[training]", "[training]")]
)
def test_a_study_without_spaces_and_without_a_family_lacks_its_spaces(
    study_file: Path, old: str, new: str
) -> None:
    study_file.write_text(study_file.read_text().replace('spaces = ["space.toml"]\n', "").replace(old, new))
    with pytest.raises(ConfigurationError, match="spaces is missing"):
        load_study(study_file)


def test_a_study_may_name_the_family_of_its_spaces(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text() + '\n[model]\nfamily = "lstm"\n')
    assert resolve(study_file, settings).sample(RandomChooser(0)).model.family == "lstm"


def order_repeats(study_file: Path, settings: Settings, sign: int) -> list[int]:
    """The seeds of the repeats of a study in the order of their proposals; values grow with the seed."""
    resolved = resolve(study_file, settings, name=f"sign{sign}")
    configuration = resolved.sample(RandomChooser(0)).model_dump(mode="json")
    original = Outcome(0, "", configuration, TrialState.COMPLETE, 1.0)
    repeats = resolved.open_proposals(repeats=make_repeat_space([original], range(21)))
    seeds: list[int] = []
    while (proposal := repeats.ask()) is not None:
        seeds.append(proposal.configuration["seed"])
        repeats.report(proposal.number, 900, sign * seeds[-1])
        repeats.complete(proposal.number, sign * seeds[-1])
    return seeds


def test_the_order_of_repeats_does_not_follow_from_their_results(
    study_file: Path, settings: Settings
) -> None:
    """All of them are trained, so that a sampler that learns would only be slower."""
    seeds = order_repeats(study_file, settings, 1)
    assert sorted(seeds) == list(range(1, 21))
    assert order_repeats(study_file, settings, -1) == seeds


@pytest.mark.parametrize(
    ("compared", "mixer", "alternative"),
    [
        ("model.mixer", "kda", "mixer kda"),
        ("model.mixer", {"kind": "attention", "heads": 2}, "mixer attention heads=2"),
        ("model.mixer.kind", "kda", "mixer matrix_memory"),
        ("model.memory_size", "kda", "mixer_blocks"),
    ],
)
def test_an_alternative_is_named_by_its_value_or_as_the_model_describes_it(compared, mixer, alternative):
    model = {"family": "mixer_blocks", "mixer": mixer}
    config = TrialConfig.model_validate({"model": model, "training": {"epochs": 1}})
    assert name_alternative(config, compared) == alternative
