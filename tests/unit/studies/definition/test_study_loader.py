"""A study file is checked completely before anything starts."""

import re
from pathlib import Path

import pytest

import memtune
from memtune.errors import ConfigurationError, MemtuneError, SpaceError, StudyError
from memtune.settings import Settings
from memtune.spaces import RandomChooser, Real
from memtune.spaces.space_tree import Prior
from memtune.studies.definition.study_loader import check_spaces, load_study
from memtune.studies.definition.toml_files import check_document
from tests.unit.studies.study_files import resolve


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


def test_a_study_states_priors_as_the_documentation_does_and_keeps_the_ranges(study_file: Path) -> None:
    text = (Path(memtune.__file__).parents[2] / "docs" / "samplers.md").read_text()
    (example,) = re.findall(r"```toml\n(question = [^`]*dropout = { prior.*?)```", text, re.DOTALL)
    study_file.write_text(
        f"{example}\n[families.recurrent_memory.model]\ndropout = {{ confidence = 'high' }}\n"
    )
    priors = {
        f"{space.family}.{parameter.name}": (parameter.leaf.prior, parameter.leaf.prior.place)
        for space in check_spaces(study_file, load_study(study_file), 100)
        for parameter in space.parameters()
        if isinstance(parameter.leaf, Real) and parameter.leaf.prior
    }
    adam = (Prior(8e-3, "high"), f"{study_file}, line 15")
    assert priors["lstm.training.optimiser.adam.learning_rate"] == adam
    assert priors["recurrent_memory.training.optimiser.adam.learning_rate"] == adam
    assert priors["lstm.model.dropout"] == (Prior(0.1), f"{study_file}, line 8")
    assert priors["recurrent_memory.model.dropout"] == (Prior(0.1, "high"), f"{study_file}, line 21")
    assert len(priors) == 4


def open_example(page: str, study_file: Path) -> tuple[int | None, int | None]:
    """The configurations of the study of a page, and its trials."""
    text = (Path(memtune.__file__).parents[2] / "docs" / page).read_text()
    (example,) = re.findall(r'```toml\n(question = [^`]*spaces = \["mixer_blocks"\].*?)```', text, re.DOTALL)
    study_file.write_text(example)
    study = load_study(study_file)
    (space,) = check_spaces(study_file, study, 100)
    return space.size(), study.budget.trials


@pytest.mark.parametrize("page", ["memory_blocks.md", "probes.md"])
def test_the_studies_of_mixers_in_the_documentation_search_what_they_ask_alone(
    page: str, study_file: Path
) -> None:
    configurations, trials = open_example(page, study_file)
    assert configurations == trials


def test_a_chosen_option_keeps_the_ranges_of_the_space_and_one_of_closes_them(study_file: Path) -> None:
    """The documentation gives both numbers."""
    closed, _ = open_example("memory_blocks.md", study_file)
    text = study_file.read_text()
    study_file.write_text(
        text.replace('one_of = "kind"\n\n[model.mixer.matrix_memory]', 'kind = "matrix_memory"')
    )
    (space,) = check_spaces(study_file, load_study(study_file), 100)
    page = (Path(memtune.__file__).parents[2] / "docs" / "memory_blocks.md").read_text()
    assert f"{space.size():,} configurations in place of {closed}." in page


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


def test_a_grid_over_a_continuous_space_is_refused(study_file: Path, settings: Settings) -> None:
    with pytest.raises(SpaceError, match=r"learning_rate have a continuous range"):
        resolve(study_file, settings, **{"sampler.kind": "grid"})


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        (
            "[training]",
            "[sampler]\nseed = 4_294_967_296\n[training]",
            ConfigurationError,
            "sampler.seed (tpe): Input",
        ),
        ("tokens = 900", "epochs = inf", SpaceError, "epochs: Input should be a finite number"),
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
            "resources.gpu_memory: could not parse value and unit",
        ),
        ('corpus = "tiny"', 'corpus = "tiny"\npoints = [5]', ConfigurationError, "points"),
        ("tokens = 900", "tokens = 900\nepocs = 2", SpaceError, 'did you mean "epochs"'),
        ('["space.toml"]', '["lstn"]', StudyError, 'no search space "lstn"'),
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
        ('question = "q"\ncorpus = "tiny"\nmodel = 5\n', {}, "model: must be a table, got 5"),
        ('budget = 5\nspaces = ["space.toml"]\n', {"budget.trials": 3}, "budget: must be a table, got 5"),
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


def test_a_file_whose_name_no_study_can_have_is_refused_with_what_to_write(study_file: Path) -> None:
    other = study_file.with_name("记忆.toml")
    other.write_text(study_file.read_text())
    with pytest.raises(
        StudyError, match=r"letters from A to Z, .*; write another into the file, such as name ="
    ):
        load_study(other)
    assert load_study(other, {"name": "memories"}).name == "memories"


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


def test_the_spaces_of_the_source_tree_are_found_from_anywhere(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text().replace("space.toml", "recurrent_memory"))
    assert resolve(study_file, settings).sample(RandomChooser(0)).model.family == "recurrent_memory"


def test_the_error_for_the_former_table_halving_names_the_new_one(study_file: Path) -> None:
    study_file.write_text(f"{study_file.read_text()}\n[halving]\ngrace = 300\n")
    with pytest.raises(ConfigurationError, match=r'\[early_stopping\] with kind = "successive_halving"'):
        load_study(study_file)


def test_a_rule_that_would_stop_no_trial_is_refused(study_file: Path, settings: Settings) -> None:
    rule = {"kind": "successive_halving", "grace": 900}
    with pytest.raises(StudyError, match=r"early_stopping\.grace = 900 and a trial has 900 tokens"):
        resolve(study_file, settings, early_stopping=rule)


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
