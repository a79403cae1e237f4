"""`memtune corpus ...` as it is typed: what it makes, and what it says of a mistake."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from memtune import cli
from memtune.corpora import parsing
from memtune.corpora.parsing import Tree
from memtune.execution.settings import Settings


def call(*arguments: object) -> Result:
    """`memtune corpus ...` in this process."""
    return CliRunner().invoke(cli.app, ["corpus", *map(str, arguments)])


def test_a_text_is_parsed_by_the_parser_asked_for_with_the_options_of_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chain(model):
        def parse(sentences):
            for words in sentences:
                relations = ("root", *[model] * (len(words) - 1))
                yield Tree(tuple(words), tuple(range(-1, len(words) - 1)), relations)

        return parse

    monkeypatch.setattr(parsing, "PARSERS", {"stanza": chain})
    questions, target = tmp_path / "q.txt", tmp_path / "q.conllu"
    questions.write_text("1a) It's [on].\n1b) It's [off].\n")
    given = ("--format", "msr-completion", "--option", "clitics=split", "--option", "final=drop")
    parsed = call("parse", questions, target, "--parser", "stanza", "--model", "dep", *given)
    assert parsed.exit_code == 0, parsed.output
    assert "2 sentences" in parsed.output
    rows = [line.split("\t") for line in target.read_text().splitlines() if line]
    assert [(row[1], row[7]) for row in rows[:3]] == [("It", "root"), ("'s", "dep"), ("on", "dep")]


def test_a_parser_that_memtune_does_not_know_is_wrong_usage(tmp_path: Path) -> None:
    refused = call("parse", tmp_path / "a.txt", tmp_path / "a.conllu", "--parser", "spacey")
    assert refused.exit_code == 2
    assert "spacey" in refused.output


def test_a_text_joined_with_questions_is_shown_with_them(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "asked.text").write_text("the cat sleeps <eos>\n")
    (tmp_path / "asked.gold").write_text("2\tsleeps\tsleep\t0\n")
    assert call("import", "asked", "--format", "agreement", "--valid", tmp_path / "asked.text").exit_code == 0
    shown = call("show", "tiny+asked").output
    assert shown.index("tiny,") < shown.index("asked,") < shown.index("agreement")
    told = json.loads(call("show", "tiny+asked", "--json").output)
    assert told["joined"]["manifest"]["annotations"]["agreement"]["files"]["valid"]["rows"] == 1


def test_what_an_import_left_out_is_shown_later_too(settings: Settings, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a sentence\n" * 150 + "\n")
    files = [part for split in ("train", "valid", "test") for part in (f"--{split}", text)]
    assert call("import", "plain", "--format", "ptb", "--skip-bad", *files).exit_code == 0
    assert f"1 left out of {text} (valid): bad entries" in call("show", "plain").output


def test_a_corpus_without_its_files_is_told_which_options_name_them(settings: Settings) -> None:
    refused = call("import", "x")
    assert "--train, --valid and --test" in str(refused.exception)


def test_the_grammar_has_no_data_apart_for_agreement_and_says_where_it_is(settings: Settings) -> None:
    refused = call("demo", "--task", "agreement")
    assert refused.exit_code == 2
    assert "without --task the text is imported" in " ".join(refused.output.replace("│", " ").split())
