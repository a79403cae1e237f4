"""Each common mistake in a study is answered with its line and its fix."""

import re
from pathlib import Path

import pytest

from memtune.errors import MemtuneError, StudyError
from memtune.experiments.single_trial import load_trial
from memtune.library import FileKind, find_file
from memtune.search import StudyReader
from memtune.settings import Settings
from memtune.studies.definition.begun_studies import describe_changed_terms, describe_changes, find_begun
from memtune.studies.definition.study_loader import load_study
from memtune.studies.definition.study_terms import TERMS_FILE, read_stored_terms
from memtune.toml_text import find_line
from tests.unit.studies.study_files import resolve

STUDY = """question = "Does a second layer help?"
corpus = "tiny"
spaces = ["space.toml"]

[model]
layers = 1

[training]
tokens = 900
report_every = 300
optimiser = { kind = "sgd", learning_rate = 1.0 }

[early_stopping]
kind = "successive_halving"

[budget]
trials = 4
"""
MISTAKES = {
    "a text for a list": ('["space.toml"]', '"lstm"', 'line 3: spaces: must be a list; write ["lstm"]'),
    "a name for a table": (
        '["space.toml"]',
        '["space.toml"]\nsampler = "grid"',
        "line 4: sampler: must be a table such as { kind = \"grid\" }, got 'grid'",
    ),
    "a truth value for a table": (
        '["space.toml"]',
        '["space.toml"]\nsampler = false',
        'line 4: sampler: must be a table such as { kind = "gp" }, got False; known: gp, grid, nsga2',
    ),
    "a number for a table": (
        '["space.toml"]',
        '["space.toml"]\nrepeats = 3',
        "line 4: repeats: must be a table, got 3; its fields are best, seeds",
    ),
    "a table without its kind": (
        'kind = "successive_halving"',
        "",
        "line 13: early_stopping: kind is missing; known: hyperband, none, promotion, successive_halving",
    ),
    "a list for a value": (
        "layers = 1",
        "layers = [1, 2]",
        "line 6, over {space}: model.layers (lstm): Input should be a valid integer, got [1, 2]; to sample "
        "one of them, a study or a space has { choice = [1, 2] }",
    ),
    "a kind of another library": (
        "layers = 1",
        "layers = { uniform = [1, 2] }",
        'line 6: [model.layers] no kind "uniform" of parameter; write { float = [0.0, 0.5] } or '
        "{ int = [1, 4] }",
    ),
    "a table for a value": (
        "layers = 1",
        "layers = { between = [1, 2] }",
        "line 6, over {space}: model.layers (lstm): Input should be a valid integer, got {'between': [1, 2]}"
        "; a parameter of a study or a space is { int = [1, 4] }",
    ),
    "a choice of budgets": (
        "tokens = 900",
        "tokens = { choice = [600, 900] }",
        "line 9: training.tokens is a parameter, but trials of one study are compared after the same tokens; "
        "give one number",
    ),
    "no length of a trial": (
        "tokens = 900\n",
        "",
        "line 8: the length of a trial is missing; write it under [training], such as epochs = 10 or "
        "tokens = 1_000_000",
    ),
    "a misspelt length of a trial": (
        "tokens = 900",
        "tokns = 900",
        'line 9, over {space}: unknown name "training.tokns"; did you mean "tokens"?',
    ),
    "a choice of protocols": (
        "[model]",
        '[protocol]\nkind = { choice = ["sentence", "stream"] }\n\n[model]',
        'line 5: figures compare only under one protocol and task, but the space has "sentence" and '
        '"stream"; choose one',
    ),
    "a rate next to the optimiser": (
        "optimiser = { kind",
        "learning_rate = 0.1\noptimiser = { kind",
        'line 11, over {space}: unknown name "training.learning_rate"; did you mean '
        '"training.optimiser.learning_rate"?',
    ),
    "a field with its table, below that table": (
        "tokens = 900",
        "training.learning_rate = 0.1\ntokens = 900",
        'line 8, over {space}: unknown name "training.training"; below [training], its fields are written '
        'without "training."',
    ),
    "a term outside its table": (
        'question = "',
        'trials = 4\nquestion = "',
        'line 1: unknown name "trials"; did you mean "budget.trials"?',
    ),
    "a term of the study below a table": (
        "trials = 4",
        "trials = 4\nseed = 3",
        'line 18: unknown name "budget.seed"; write "seed" above the first [table], or in a table of its own',
    ),
    "a misspelt field of a table that has the name of a term": (
        "[budget]",
        "[repeats]\nbest = 1\nseed = 3\n[budget]",
        'line 18: unknown name "repeats.seed"; did you mean "seeds"?',
    ),
    "reports after the end": (
        "report_every = 300",
        "report_every = 1000",
        "line 10: training.report_every = 1,000 is above the 900 tokens of a trial; make it smaller, or "
        "raise training.tokens",
    ),
    "early stopping without a report before the end": (
        "report_every = 300",
        "report_every = 900",
        "line 10: a trial reports only at its end, after 900 tokens, so early_stopping.kind = "
        '"successive_halving" would stop none; set training.report_every to 225, for instance',
    ),
    "a misspelt corpus": (
        'corpus = "tiny"',
        'corpus = "tinny"',
        'line 2: no corpus "tinny" in {store}; did you mean "tiny"?',
    ),
    "a misspelt term": (
        "trials = 4",
        "trails = 4",
        'line 17: unknown name "budget.trails"; did you mean "trials"?',
    ),
    "a range with one bound": (
        "layers = 1",
        "layers = { int = [1] }",
        "line 6: [model.layers] int must be two finite bounds such as [1, 20], got [1]",
    ),
    "a range whose bounds are exchanged": (
        "layers = 1",
        "layers = { int = [4, 1] }",
        "line 6: [model.layers] low must be below high, got low = 4, high = 1",
    ),
    "a size with a decimal point": (
        "layers = 1",
        "layers = 1\nwidth = { fit_parameters = 1e5 }",
        "line 7: [model.width] fit_parameters must be a positive whole number of parameters, got 100000.0",
    ),
    "a misspelt field next to a fitted size": (
        "layers = 1",
        "width = { fit_parameters = 900 }\nlayer = 1",
        'line 7, over {space}: unknown name "model.layer" (lstm); did you mean "layers"?',
    ),
    "a cutoff beyond the vocabulary next to a fitted size": (
        "layers = 1",
        'width = { fit_parameters = 900 }\noutput = { kind = "adaptive", cutoffs = [5, 100000] }',
        "line 5, over {space}: output.cutoffs must be below the ",
    ),
    "a text for a number of tokens next to a fitted size": (
        "layers = 1\n\n[training]\ntokens = 900",
        'width = { fit_parameters = 900 }\n\n[training]\ntokens = "900"',
        "line 9, over {space}: training.tokens: Input should be a valid integer, got '900'; write 900 "
        "without quotation marks",
    ),
    "a negative share of a GPU": (
        "[budget]",
        "[resources]\ngpus_per_trial = -1\n[budget]",
        "line 17: resources.gpus_per_trial: Input should be greater than or equal to 0, or 'fit', got -1",
    ),
    "a word for the initial points": (
        'corpus = "tiny"',
        'corpus = "tiny"\npoints = "paper"',
        'line 3: points: must be "papers" or a list of configurations, such as '
        "[{ model.family = \"lstm\" }], got 'paper'",
    ),
    "a list in an initial point": (
        'corpus = "tiny"',
        'corpus = "tiny"\npoints = [{ model.layers = [1, 2] }]',
        "line 3: points.0.model.layers: Input should be a valid string, or a valid boolean, or a valid "
        "integer, or a valid number, got [1, 2]",
    ),
    "a misspelt price of a type of node": (
        "[budget]",
        "[prices.node_types.large]\ncpu_hours = 1\n[budget]",
        'line 17: unknown name "prices.node_types.large.cpu_hours"; did you mean "cpu_hour"?',
    ),
    "more seeds than anybody trains": (
        "[budget]",
        "[repeats]\nbest = 1\nseeds = 1_000_000_000\n[budget]",
        "line 18: repeats.seeds: Input should be less than or equal to 1000, got 1000000000",
    ),
    "true for a number of trials": (
        "trials = 4",
        "trials = true",
        "line 17: budget.trials: Input should be a valid integer, got True; write a number",
    ),
    "true for a seed": (
        "[model]",
        "seed = true\n[model]",
        "line 5: seed: Input should be a valid integer, got True; write a number",
    ),
    "true for a number of layers": (
        "layers = 1",
        "layers = true",
        "line 6, over {space}: model.layers (lstm): Input should be a valid integer, got True; write a "
        "number",
    ),
    "true for a learning rate": (
        "learning_rate = 1.0",
        "learning_rate = true",
        "line 11, over {space}: training.optimiser.learning_rate (sgd): Input should be a valid number, got "
        "True; write a number",
    ),
    "a text for a number of tokens": (
        "tokens = 900",
        'tokens = "900"',
        "line 9, over {space}: training.tokens: Input should be a valid integer, got '900'; write 900 "
        "without quotation marks",
    ),
    "limits that exclude each other": (
        "trials = 4",
        "min_parameters = 200\nmax_parameters = 100",
        "line 16: budget: min_parameters = 200 must be at most max_parameters = 100",
    ),
    "a target that no model reaches": (
        "trials = 4",
        "target = 0.5",
        "line 17: budget.target = 0.5 is never reached: it is a perplexity, at least 1",
    ),
}


def test_the_study_without_mistakes_is_accepted(study_file: Path, settings: Settings) -> None:
    study_file.write_text(STUDY)
    assert resolve(study_file, settings).study.question in STUDY


@pytest.mark.parametrize(("right", "wrong", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_common_mistake_is_answered_with_its_line_and_its_fix(
    study_file: Path, settings: Settings, right: str, wrong: str, message: str
) -> None:
    assert right in STUDY
    study_file.write_text(STUDY.replace(right, wrong, 1))
    expected = message.replace("{space}", str(study_file.parent / "space.toml"))
    expected = expected.replace("{store}", str(settings.corpus_store))
    with pytest.raises(MemtuneError, match=re.escape(f"{study_file}, {expected}")):
        resolve(study_file, settings)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"tiny"', "tiny", 'Invalid value (at line 2, column 10); a text needs quotes, as in corpus = "ptb"'),
        (
            "spaces",
            "training.tokens = 900\nspaces",
            "Cannot declare ('training',) twice (at line 9, column 10); write all fields of a table",
        ),
        ("tokens = 900", "tokens = 900\ntokens = 9", "(at line 10, column 11); keep one of the two"),
    ],
)
def test_a_text_that_is_not_toml_is_answered_with_its_line_and_its_fix(
    study_file: Path, right: str, wrong: str, message: str
) -> None:
    study_file.write_text(STUDY.replace(right, wrong, 1))
    with pytest.raises(
        MemtuneError, match=f"{re.escape(str(study_file))} is not TOML: .*{re.escape(message)}"
    ):
        load_study(study_file)


def test_more_tokens_than_the_database_can_store_are_refused_before_anything_starts(
    study_file: Path, settings: Settings
) -> None:
    study_file.write_text(STUDY.replace("tokens = 900", "tokens = 3_000_000_000"))
    resolve(study_file, settings)
    database = "postgresql://memtune:secret@10.0.0.5/optuna"
    in_postgresql = settings.model_copy(update={"study_database": database})
    message = (
        f"{study_file}, line 9: a trial has 3,000,000,000 tokens, and "
        "postgresql://memtune:***@10.0.0.5/optuna stores reports up to 2,147,483,647 tokens; lower "
        "training.tokens, or set MEMTUNE_PROPOSALS to a journal"
    )
    with pytest.raises(MemtuneError, match=re.escape(message)):
        resolve(study_file, in_postgresql)


@pytest.mark.parametrize(("choices", "wrong"), [("[0, 8]", "0"), ("[8, true]", "True"), ('[8, "8"]', "'8'")])
def test_a_mistake_in_a_space_is_answered_with_the_line_of_the_space(
    study_file: Path, settings: Settings, choices: str, wrong: str
) -> None:
    space = study_file.parent / "space.toml"
    space.write_text(space.read_text().replace("choice = [4, 8]", f"choice = {choices}"))
    with pytest.raises(MemtuneError, match=rf"^{re.escape(str(space))}, line 4: \[model.width\] = {wrong}"):
        resolve(study_file, settings)


def test_a_mistake_in_a_trial_is_answered_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "trial.toml"
    file.write_text('corpus = "tiny"\n[model]\nfamily = "lstm"\nwidth = [4, 8]\n[training]\ntokens = 9\n')
    with pytest.raises(
        MemtuneError, match=r"trial\.toml, line 4: model\.width \(lstm\): Input should be a valid"
    ):
        load_trial(file)


def test_a_misspelt_file_is_answered_with_the_nearest_file_of_its_kind(study_file: Path) -> None:
    (study_file.parent / "layer.toml").write_text('corpus = "tiny"\n[model]\nfamily = "lstm"\n')
    with pytest.raises(MemtuneError, match=r'no file .*/layerz\.toml; did you mean "layers\.toml"\?'):
        find_file(FileKind.STUDY, study_file.parent / "layerz.toml")
    with pytest.raises(MemtuneError, match=r'no file .*/layerz\.toml; did you mean "layer\.toml"\?'):
        find_file(FileKind.TRIAL, study_file.parent / "layerz.toml")
    with pytest.raises(MemtuneError, match=r'the packaged study of this name is "demo", without a path'):
        find_file(FileKind.STUDY, study_file.parent / "demo.toml")
    with pytest.raises(MemtuneError, match="there is no folder missing"):
        find_file(FileKind.STUDY, Path("missing/layers.toml"))


def test_a_study_resumes_under_the_defaults_of_its_time(study_file: Path, settings: Settings) -> None:
    """A file that leaves a term to its default names the study that was stored under another default."""
    now = resolve(study_file, settings)
    assert find_begun(now) is now
    overrides = {"sampler.startup_trials": 7, "budget.trials": 2}
    begun = resolve(study_file, settings, **overrides)
    begun.store_terms()
    found = find_begun(now)
    assert (found.id, found.study.sampler.startup_trials) == (begun.id, 7)
    assert found.study.budget == now.study.budget
    written = resolve(study_file, settings, **{"sampler.startup_trials": 8})
    assert find_begun(written) is written
    now.store_terms()
    assert find_begun(now) is now


@pytest.mark.parametrize("document", ["5", "[]", '"terms"'])
def test_a_document_that_no_driver_wrote_is_no_study_of_this_name(
    study_file: Path, settings: Settings, document: str
) -> None:
    resolved = resolve(study_file, settings)
    other = Path(settings.studies_folder, "layers-00000000", TERMS_FILE)
    other.parent.mkdir(parents=True)
    other.write_text(document)
    assert find_begun(resolved) is resolved
    assert "changed since study layers-00000000" in describe_changes(resolved)


def test_a_study_of_a_later_format_is_refused(study_file: Path, settings: Settings) -> None:
    resolved = resolve(study_file, settings)
    resolved.store_terms()
    resolved.open_proposals()
    terms = Path(settings.studies_folder, resolved.id, TERMS_FILE)
    assert '"format": 2' in terms.read_text()
    terms.write_text(terms.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(StudyError, match="in format 3, and this memtune reads up to 2; update memtune"):
        read_stored_terms(settings.studies_folder, resolved.id)
    journal = settings.home / "proposals.log"
    journal.write_text(journal.read_text().replace('{"format":2}', '{"format":3}'))
    with pytest.raises(StudyError, match="format 3"):
        StudyReader(settings.study_database).read(resolved.id)
    with pytest.raises(StudyError, match="format 3"):
        resolved.open_proposals()


def test_changed_terms_of_a_study_are_named(study_file: Path, settings: Settings) -> None:
    begun = resolve(study_file, settings)
    folder = settings.studies_folder
    assert describe_changed_terms(folder, begun.id, begun.terms) == ""
    begun.store_terms()
    now = resolve(study_file, settings, **{"training.tokens": 1200, "seed": 1})
    assert describe_changed_terms(folder, now.id, now.terms) == (
        f"changed since study {begun.id}: seed from 0 to 1, training.tokens from 900 to 1200; "
        "undo the change to resume that study"
    )
    fixed = resolve(study_file, settings, **{"model.dropout": 0.1})
    assert "model.dropout from no entry to 0.1;" in describe_changed_terms(folder, fixed.id, fixed.terms)
    study_file.write_text(STUDY.replace("tokens = 900", "tokens = 1200"))
    edited = resolve(study_file, settings)
    told = describe_changed_terms(folder, edited.id, edited.terms, study_file)
    assert "training.tokens (line 9) from 900 to 1200" in told
    told = describe_changed_terms(folder, "layers-00000000", begun.terms)
    assert ": the content of its search spaces, its model files or its corpus; undo" in told
    assert describe_changed_terms(folder, begun.id, begun.terms) == ""
    assert describe_changed_terms(folder, "other-00000000", begun.terms) == ""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("seed", 1),
        ("model.width", 3),
        ("model.output.kind", 4),
        ("training.optimiser.learning_rate", 6),
        ("training.tokens", None),
        ("budget", None),
    ],
)
def test_a_field_is_found_by_its_line_or_that_of_the_table_around_it(name: str, line: int | None) -> None:
    model = '[model]\nwidth = 4\noutput = { kind = "softmax" }'
    text = f'seed = 1\n{model}\n[training.optimiser]\n"learning_rate" = 1.0\n'
    assert find_line(text, name) == line
