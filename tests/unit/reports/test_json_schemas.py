"""The JSON Schemas accept every packaged file, and refuse what memtune refuses."""

import json
import tomllib
from functools import cache
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from typer.testing import CliRunner

from docs.generators.reference import render_tables
from memtune.cli.command_line import app
from memtune.library import FileKind, find_packaged, list_packaged
from memtune.reports.json_schemas import SchemaKind, make_schema

SCHEMA_KINDS: tuple[SchemaKind, ...] = get_args(SchemaKind)
FILES: list[tuple[SchemaKind, str]] = [
    (kind, name) for kind in SCHEMA_KINDS for name in list_packaged(FileKind[kind.upper()])
]
STUDY = 'question = "?"\ncorpus = "ptb"\nspaces = ["lstm"]\n'


@cache
def get_validator(kind: SchemaKind) -> Draft202012Validator:
    return Draft202012Validator(make_schema(kind))


def list_errors(kind: SchemaKind, text: str) -> list[Any]:
    return list(get_validator(kind).iter_errors(tomllib.loads(text)))


def test_every_field_of_the_reference_has_a_meaning() -> None:
    rows = [line.split(" | ") for line in render_tables().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if not row[-1].strip(" |")] == []


def test_schema_and_reference_name_the_unit_that_a_field_has() -> None:
    assert make_schema("study")["$defs"]["Budget"]["properties"]["cpu_hours"]["unit"] == "core hours"
    assert "| `cpu_hours` | number above 0 | none | core hours | Cores reserved" in render_tables()


@pytest.mark.parametrize("kind", SCHEMA_KINDS)
def test_the_command_prints_the_schema(kind: SchemaKind) -> None:
    done = CliRunner().invoke(app, ["schema", kind])
    assert json.loads(done.stdout) == make_schema(kind)


def test_a_docstring_below_a_field_describes_it() -> None:
    schema = make_schema("trial")
    reduction = schema["$defs"]["TrainingConfig"]["properties"]["loss_reduction"]
    assert "divided by about 35" in reduction["description"]


@pytest.mark.parametrize("kind", SCHEMA_KINDS)
def test_a_schema_is_valid_json_schema(kind: SchemaKind) -> None:
    Draft202012Validator.check_schema(make_schema(kind))


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_a_packaged_file_is_valid_under_its_schema(kind: SchemaKind, name: str) -> None:
    assert list_errors(kind, find_packaged(FileKind[kind.upper()], name).read_text()) == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("study", f"{STUDY}\n[budgets]\ntrials = 3"),
        ("study", f"{STUDY}\n[budget]\ntrials = 0"),
        ("study", f'{STUDY}\n[budget]\ntime = "15 minutes"'),
        ("study", f"{STUDY}\n[training]\nlearning_rate = 0.1"),
        ("study", f"{STUDY}\n[training]\ntokens = {{ uniform = [1, 2] }}"),
        ("study", 'question = "?"\ncorpus = "ptb"\nspaces = "lstm"'),
        ("study", 'question = "?"\nspaces = ["lstm"]'),
        ("trial", 'corpus = "ptb"\n[model]\nwidth = 8'),
        ("trial", 'corpus = "ptb"\n[model]\nfamily = "lstm"\nwidth = { int = [1, 2] }'),
        ("space", "[model]\nwidth = { int = [1, 2], choice = [3] }"),
        ("space", '[model]\none_of = "family"\nwidth = 3'),
        ("paper", 'title = "x"'),
    ],
)
def test_a_mistake_is_found_by_the_schema(kind: SchemaKind, text: str) -> None:
    assert list_errors(kind, text)


@pytest.mark.parametrize(
    "text",
    [
        f'{STUDY}\n[budget]\ntime = "15m"\n[resources]\ngpu_memory = "24GB"\ngpus_per_trial = "fit"',
        f"{STUDY}\n[training]\ntokens = {{ int = [1, 2], log = true }}",
        f'{STUDY}\n[training.optimiser]\none_of = "kind"\n[training.optimiser.adam]\nlearning_rate = 0.1',
        f'{STUDY}\npoints = "papers"',
    ],
)
def test_what_a_study_may_hold_is_valid(text: str) -> None:
    assert list_errors("study", text) == []


def test_a_study_may_state_priors_without_ranges() -> None:
    study = 'question = "?"\ncorpus = "ptb"\nspaces = ["lstm", "scrn"]\n'
    stated = (
        "model.dropout.prior = 0.1\n[training.optimiser]\nprior = 'adam'\nadam.learning_rate.prior = 3e-3\n"
    )
    assert list_errors("study", study + stated) == []
    assert list_errors("study", study + stated.replace("dropout.prior", "dropout.prio")) != []


def test_a_field_that_no_family_has_is_an_error_next_to_fields_of_several() -> None:
    study = 'question = "?"\ncorpus = "ptb"\nspaces = ["lstm", "scrn"]\n[model]\nlayers = 1\nalpha = 0.9\n'
    assert list_errors("study", study) == []
    assert list_errors("study", study + "alfa = 0.9\n") != []
