"""Fingerprints: the rate is chosen on validation, test is read once, and a reference gates low accuracies."""

import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib.patches import Rectangle
from rich.console import Console

from memtune.api import probe
from memtune.errors import ConfigurationError, MemtuneError
from memtune.experiments import probe_run
from memtune.experiments.probe_run import open_probed_model
from memtune.models import ModelConfig
from memtune.models.families.mixer_blocks import MixerBlocksConfig
from memtune.models.mixers.mixer_registry import PRESETS
from memtune.reports.experiment_views import (
    draw_fingerprint,
    format_accuracy,
    make_fingerprint_table,
)
from memtune.results.fingerprints import (
    Fingerprint,
    ProbeResult,
    dump_named_fields,
    list_fingerprints,
    store_fingerprint,
)
from memtune.settings import Settings
from memtune.tracking import count_test_accesses, record_evaluation
from memtune.values import parse
from tests.registries import isolate_registries
from tests.unit.plugins.user_files import write_family

TERMS: dict[str, Any] = {
    "parameters": 1_500,
    "epochs": 4,
    "batch_size": 32,
    "rates": [1e-6, 0.03],
    "seeds": 2,
    "settings": {"rows": 64, "evaluated": 16, "length": 8, "depth": 2},
}
ROWS = "probe-dyck-length-8-depth-2-rows-64-evaluated-16"
OWN_FAMILY = """models = []

[model]
family = "lstm"
width = 6
"""


def read_fingerprint(settings: Settings, **changes: Any) -> Fingerprint:
    return probe("rnn", "dyck", TERMS | changes, settings=settings, progress=False)


def test_a_fingerprint_has_the_rate_that_validation_prefers_and_is_stored(settings: Settings) -> None:
    lines = Console(record=True, width=200)
    found = probe("rnn", "dyck", TERMS, settings=settings, console=lines)
    (result,) = found.results
    assert result.corpus == ROWS
    assert result.rate == 0.03
    assert abs(result.parameters - 1_500) < 150
    assert len(result.valid) == 2
    assert {times: len(shares) for times, shares in result.test.items()} == {1: 2, 2: 2, 4: 2}
    assert 1 / 3 < result.chance < 0.6
    assert "rate 1e-06, seed 0" in lines.export_text()
    (settings.home / "fingerprints" / "other.json").write_text('{"name": 5}')
    assert list_fingerprints(settings) == [found]
    assert len(found.to_frame()) == 3

    accesses = count_test_accesses(settings.tracking_uri, ROWS)
    assert accesses == 2
    again = Console(record=True, width=200)
    assert probe("rnn", "dyck", TERMS, settings=settings, console=again) == found
    assert again.export_text().count("%, trained before") == 7
    assert count_test_accesses(settings.tracking_uri, ROWS) == accesses


def test_a_call_that_is_stopped_while_it_records_figures_is_repeated(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record_one(uri: str, run_id: str, name: str, metrics: Any) -> None:
        record_evaluation(uri, run_id, name, dict([*metrics.items()][:1]))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(probe_run, "record_evaluation", record_one)
        with pytest.raises(KeyboardInterrupt):
            read_fingerprint(settings, seeds=1)
    (result,) = read_fingerprint(settings, seeds=1).results
    assert [*result.test] == [1, 2, 4]


def test_a_probe_that_no_reference_solves_is_not_learnable_at_the_budget(settings: Settings) -> None:
    lines = Console(record=True, width=200)
    terms = TERMS | {"rates": [1e-6], "seeds": 1, "epochs": 0.5}
    found = probe("rnn", "dyck", terms, settings=settings, console=lines)
    (result,) = found.results
    assert not result.is_learnable
    said = [
        float(line.split()[-2]) for line in lines.export_text().splitlines() if ": reference mixer" in line
    ]
    assert len(said) == 2
    assert result.reference_valid is not None
    assert 100 * result.reference_valid == pytest.approx(max(said), abs=0.05)
    assert result.reference_valid < 0.9
    table = Console(record=True, width=200)
    table.print(make_fingerprint_table(found))
    assert table.export_text().count("not learnable at this budget") == 3


def test_a_model_at_the_ceiling_solves_a_probe(settings: Settings) -> None:
    """A third of the keys are in no training row, so that no model knows their values."""
    rows = {"rows": 16, "evaluated": 16, "length": 4, "vocabulary": 64}
    budget = {"parameters": 8_000, "batch_size": 4, "epochs": 60}
    terms = TERMS | budget | {"rates": [0.01], "seeds": 1, "settings": rows}
    found = probe("min_gru", "memorisation", terms, settings=settings, progress=False)
    (result,) = found.results
    assert result.ceiling < 0.8
    assert result.valid == (result.ceiling,)
    assert result.reference is None
    assert [*make_fingerprint_table(found).columns[3].cells] == [f"{100 * result.ceiling:.4g} %"]


@pytest.mark.parametrize(("probed", "lengths"), [("dyck", {1, 2, 4}), ("mqar", {1})])
def test_a_training_that_diverges_at_once_answers_nothing(
    settings: Settings, probed: str, lengths: set[int]
) -> None:
    rows = {"rows": 64, "evaluated": 16, "length": 24}
    terms = TERMS | {"rates": [1e30], "seeds": 1, "epochs": 1, "settings": rows}
    lines = Console(record=True, width=200)
    (result,) = probe("rnn", probed, terms, settings=settings, console=lines).results
    assert "rate 1e+30, seed 0: diverged" in lines.export_text()
    assert result.valid == (0.0,)
    assert result.test == dict.fromkeys(lengths, (0.0,))


def make_result(**changes: Any) -> ProbeResult:
    given: dict[str, Any] = {
        "probe": "mqar",
        "corpus": "probe-mqar",
        "parameters": 9,
        "rate": 0.01,
        "valid": (0.2, 0.3),
        "test": {1: (0.2, 0.3, 0.4)},
        "chance": 0.1,
    }
    return ProbeResult(**given | changes)


def test_a_model_solves_a_probe_only_above_chance() -> None:
    """With three words half of the answers of compression are one word, more than 40 % of the ceiling."""
    assert make_result(chance=0.5).compute_threshold(0.4) == pytest.approx(0.7)
    assert make_result(chance=1.0).compute_threshold(0.9) == math.inf


def test_an_accuracy_is_shown_with_its_interval_where_it_counts(settings: Settings) -> None:
    assert format_accuracy(make_result()) == "30.0 % [5.2 %, 54.8 %]"
    unsolved = format_accuracy(make_result(is_learnable=False))
    assert unsolved == "(30.0 % [5.2 %, 54.8 %], not learnable at this budget)"


def test_a_figure_has_a_bar_for_each_accuracy_that_counts(settings: Settings) -> None:
    longer = {1: (0.2, 0.3, 0.4), 2: (0.1, 0.2, 0.3)}
    results = (make_result(), make_result(probe="parity", test=longer, is_learnable=False))
    given = {"name": "rnn", "model": {}, "terms": {}, "results": results}
    axes = draw_fingerprint(Fingerprint.model_validate(given)).axes[0]
    assert [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)] == pytest.approx([0.3])
    labels = ["mqar", "parity", "parity, twice the length"]
    assert [label.get_text() for label in axes.get_yticklabels()] == labels
    assert [text.get_text() for text in axes.texts] == [
        "(30.0 % [5.2 %, 54.8 %], not learnable at this budget)",
        "(20.0 % [0.0 %, 44.8 %], not learnable at this budget)",
    ]


def test_a_frame_has_the_intervals_and_the_references_of_the_table() -> None:
    single = make_result(test={1: (0.3,), 2: (0.2,)}, reference="attention", reference_valid=0.95)
    given = {"name": "rnn", "model": {}, "terms": {}, "results": (make_result(), single)}
    fingerprint = Fingerprint.model_validate(given)
    first, *others = fingerprint.to_frame().to_dict("records")
    assert first["accuracy"] == pytest.approx(0.3)
    assert [first["low"], first["high"]] == pytest.approx([0.052, 0.548], abs=5e-4)
    assert [(row["times_length"], math.isnan(row["low"])) for row in others] == [(1, True), (2, True)]
    assert {(row["reference"], row["reference_valid"]) for row in others} == {("attention", 0.95)}
    assert str(fingerprint) == repr(fingerprint) == "Fingerprint(rnn: 2 probes)"


@pytest.mark.parametrize(("seeds", "promised"), [(1, "one seed,"), (2, "mean of 2 seeds,"), (3, "with 95 %")])
def test_a_table_promises_the_intervals_that_it_has(seeds: int, promised: str) -> None:
    given = {"name": "rnn", "model": {}, "terms": {"seeds": seeds}, "results": ()}
    title = str(make_fingerprint_table(Fingerprint.model_validate(given)).title)
    assert promised in title
    assert ("interval" in title) == (seeds > 2)


def test_a_model_is_a_family_a_mixer_a_file_or_a_table(tmp_path: Path) -> None:
    assert open_probed_model("lstm") == ("lstm", {"family": "lstm"})
    assert open_probed_model("gla") == ("gla", {"family": "mixer_blocks", "mixer": "gla"})
    path = tmp_path / "own.toml"
    path.write_text(OWN_FAMILY)
    assert open_probed_model(str(path)) == ("own", {"family": "lstm", "width": 6})
    with pytest.raises(ConfigurationError, match='no family, mixer or file "gated_deltnet"; did you mean'):
        open_probed_model("gated_deltnet")
    path.write_text("[training]\n")
    with pytest.raises(ConfigurationError, match=r"own.toml has no table \[model\]"):
        open_probed_model(path)
    path.write_text(OWN_FAMILY + "[trainning]\nepochs = 3\n")
    with pytest.raises(ConfigurationError, match=r"own\.toml has trainning, which a probe does not read"):
        open_probed_model(path)
    path.write_text("[model]\nwidth = 6\n")
    with pytest.raises(ConfigurationError, match=r'own.toml: \[model\] has no family; add family = "lstm"'):
        open_probed_model(path)
    with pytest.raises(ConfigurationError, match="kneser_ney counts words; only networks can be probed"):
        open_probed_model("kneser_ney")


def test_a_mapping_is_the_content_of_a_file_or_its_table_alone(tmp_path: Path) -> None:
    family = str(write_family(tmp_path / "my_memory.py"))
    table = {"family": "my_memory", "width": 8}
    with isolate_registries():
        assert open_probed_model({"models": [family], "model": table}) == ("my_memory", table)
        assert open_probed_model(table) == ("my_memory", table)
    with pytest.raises(ConfigurationError, match=r"the model has no table \[model\] with a family"):
        open_probed_model({"models": [], "family": "lstm"})
    with pytest.raises(ConfigurationError, match=r"the model has training, which a probe does not read"):
        open_probed_model({"model": table, "training": {}})


@pytest.mark.parametrize(
    ("settings_of_rows", "problem"),
    [
        ({"row": 64}, 'no setting "row" of the rows of state; did you mean "rows"'),
        ({"kinds": 0.5}, "the probe dyck has kinds = 0.5; give a whole number from 1"),
    ],
)
def test_settings_of_rows_are_checked_before_the_first_training(
    settings: Settings, settings_of_rows: dict[str, float], problem: str
) -> None:
    lines = Console(record=True, width=200)
    with pytest.raises(MemtuneError, match=problem):
        probe("rnn", "state", TERMS | {"settings": settings_of_rows}, settings=settings, console=lines)
    assert lines.export_text() == ""


@pytest.mark.parametrize("mixer", [{"kind": "my_mixer"}, {"kind": "my_mixer", "source": "0" * 64}])
def test_the_fingerprint_of_a_mixer_that_is_not_loaded_describes_no_model(mixer: dict[str, str]) -> None:
    model: dict[str, Any] = {"family": "mixer_blocks", "mixer": mixer}
    found = Fingerprint.model_validate({"name": "mine", "model": model, "terms": {}, "results": ()})
    assert not found.describes(MixerBlocksConfig(width=6, mixer=PRESETS["gla"]))


def test_a_fingerprint_describes_the_source_that_it_was_taken_of(settings: Settings, tmp_path: Path) -> None:
    """Also where that source is not loaded any more."""
    family = write_family(tmp_path / "my_memory.py")
    (tmp_path / "own.toml").write_text(
        'models = ["my_memory.py"]\n[model]\nfamily = "my_memory"\nwidth = 8\n'
    )

    def take() -> tuple[Fingerprint, Any]:
        name, table = open_probed_model(tmp_path / "own.toml")
        found = {"name": name, "model": dump_named_fields(table), "terms": {}, "results": ()}
        return Fingerprint.model_validate(found), parse(ModelConfig, table, "model")

    with isolate_registries():
        first, model = take()
        assert first.describes(model)
        family.write_text(family.read_text() + "# changed\n")
        second, changed = take()
        assert not first.describes(changed)
        assert not second.describes(model)
    store_fingerprint(first, settings)
    store_fingerprint(second, settings)
    assert len(list_fingerprints(settings)) == 2
    unloaded = parse(ModelConfig, model.model_dump(mode="json"), "model")
    assert not unloaded.is_loaded
    assert first.describes(unloaded)
    assert not second.describes(unloaded)


def test_a_model_of_another_size_than_its_references_is_named(settings: Settings) -> None:
    lines = Console(record=True, width=200)
    terms = TERMS | {"rates": [1e-6], "seeds": 1, "epochs": 0.5}
    probe({"family": "rnn", "width": 6}, "dyck", terms, settings=settings, console=lines)
    assert (
        "parameters, and the references about 1,500; --parameters 1000 makes them equal"
        in lines.export_text()
    )


def test_a_size_that_the_words_of_a_probe_exceed_is_refused(settings: Settings) -> None:
    terms = TERMS | {"settings": {"vocabulary": 512, "rows": 64, "evaluated": 16}}
    with pytest.raises(ConfigurationError, match=r"words: no width of the model has --parameters 1500"):
        probe("gla", "memorisation", terms, settings=settings, progress=False)


@pytest.mark.parametrize("rate", [-1.0, 0.0, math.nan, math.inf])
def test_rates_are_checked_before_the_first_training(settings: Settings, rate: float) -> None:
    lines = Console(record=True, width=200)
    with pytest.raises(ConfigurationError, match=r"the terms of the probes: rates\.1: Input should be"):
        probe("rnn", "dyck", TERMS | {"rates": [0.03, rate]}, settings=settings, console=lines)
    assert lines.export_text() == ""


def test_tables_name_the_reference_as_a_mixer(settings: Settings) -> None:
    given = {"name": "lstm", "model": {}, "terms": {}}
    found = Fingerprint.model_validate(
        given | {"results": (make_result(reference="lstm", reference_valid=0.5),)}
    )
    assert next(iter(make_fingerprint_table(found).columns[-1].cells)) == "mixer lstm 50.0 %"
