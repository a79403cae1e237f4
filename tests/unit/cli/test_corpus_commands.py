"""`memtune corpus ...`: the corpora it writes, its output and its errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memtune.cli import command_line as cli
from memtune.corpora import list_corpora
from memtune.corpora.importing import dependency_parsers
from memtune.corpora.importing.dependency_parsers import ParsedSentence
from memtune.settings import Settings


def call(*arguments: object) -> Result:
    """Run `memtune corpus ...` in this process."""
    return CliRunner().invoke(cli.app, ["corpus", *map(str, arguments)])


def test_parse_uses_the_chosen_parser_and_the_options_of_the_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chain(model):
        def parse(sentences):
            for words in sentences:
                relations = ("root", *[model] * (len(words) - 1))
                yield ParsedSentence(tuple(words), tuple(range(-1, len(words) - 1)), relations)

        return parse

    monkeypatch.setattr(dependency_parsers, "PARSERS", {"stanza": chain})
    questions, target = tmp_path / "q.txt", tmp_path / "q.conllu"
    questions.write_text("1a) It's [on].\n1b) It's [off].\n")
    options = ("--format", "msr-completion", "--option", "clitics=split", "--option", "final=drop")
    parsed = call("parse", questions, target, "--parser", "stanza", "--model", "dep", *options)
    assert parsed.exit_code == 0, parsed.output
    assert "2 sentences" in parsed.output
    rows = [line.split("\t") for line in target.read_text().splitlines() if line]
    assert [(row[1], row[7]) for row in rows[:3]] == [("It", "root"), ("'s", "dep"), ("on", "dep")]


def test_an_unknown_parser_is_wrong_usage(tmp_path: Path) -> None:
    refused = call("parse", tmp_path / "a.txt", tmp_path / "a.conllu", "--parser", "spacey")
    assert refused.exit_code == 2
    assert "spacey" in refused.output


def test_a_text_joined_with_questions_is_shown_with_them(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "asked.text").write_text("the cat sleeps <eos>\n")
    (tmp_path / "asked.gold").write_text("2\tsleeps\tsleep\t0\n")
    assert call("import", "asked", "--format", "agreement", "--valid", tmp_path / "asked.text").exit_code == 0
    shown = call("show", "tiny+asked").output
    assert shown.index("tiny,") < shown.index("asked,") < shown.index("agreement")
    record = json.loads(call("show", "tiny+asked", "--json").output)
    assert record["joined"]["manifest"]["annotations"]["agreement"]["files"]["valid"]["rows"] == 1


def test_show_lists_the_entries_that_an_import_skipped(settings: Settings, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a sentence\n" * 150 + "\n")
    files = [part for split in ("train", "valid", "test") for part in (f"--{split}", text)]
    assert call("import", "plain", "--format", "ptb", "--skip-bad", *files).exit_code == 0
    assert f"1 left out of {text} (valid): bad entries" in call("show", "plain").output


def test_the_error_for_an_import_without_files_names_the_options(settings: Settings) -> None:
    refused = call("import", "x")
    assert "--train, --valid and --test" in str(refused.exception)


def test_the_error_for_demo_data_of_agreement_names_the_text_that_has_it(settings: Settings) -> None:
    refused = call("demo", "--task", "agreement")
    assert refused.exit_code == 2
    assert "without --task the text is imported" in " ".join(refused.output.replace("│", " ").split())


def test_show_and_the_import_warning_agree_on_the_share_of_unknown_words(
    settings: Settings, tmp_path: Path
) -> None:
    texts = {"train": "the cat sleeps\n", "valid": "the emu\nemu\nthe cat\na\n", "test": "the cat\n"}
    for split, text in texts.items():
        (tmp_path / split).write_text(text)
    files = [part for split in texts for part in (f"--{split}", tmp_path / split)]
    assert "50.0% of the valid words are outside" in " ".join(call("import", "small", *files).output.split())
    assert "50.00%" in call("show", "small").output


def test_a_text_is_imported_from_the_standard_input(settings: Settings, tmp_path: Path) -> None:
    store = tmp_path / "store"
    command = [sys.executable, "-m", "memtune.cli", "corpus", "import", "piped", "--store", str(store)]
    text = "".join(f"sentence number {number}\n" for number in range(100))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [*command, "--train", "-", "--split", "80,10,10"],
        input=text,
        text=True,
        capture_output=True,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    manifest = list_corpora(store)[0]
    assert sum(split.sentences for split in manifest.splits.values()) == 100
