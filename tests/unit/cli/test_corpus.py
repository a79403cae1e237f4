"""`memtune corpus ...` as it is typed: what it makes, and what it says of a mistake."""

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from memtune import cli
from memtune.corpora import parsing
from memtune.corpora.parsing import Tree


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
