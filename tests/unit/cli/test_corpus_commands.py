"""`memtune corpus ...`: the corpora it writes, its output and its errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memtune.cli import command_line as cli
from memtune.corpora import import_corpus, list_corpora
from memtune.corpora.importing import dependency_parsers
from memtune.corpora.tokenisation.subwords import train_subwords
from memtune.errors import CorpusError
from memtune.settings import Settings
from tests.unit.cli.invocation import read_error, read_output


def call(*arguments: object) -> Result:
    """Run `memtune corpus ...` in this process."""
    return CliRunner().invoke(cli.app, ["corpus", *map(str, arguments)])


def test_parse_uses_the_chosen_parser_and_the_options_of_the_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chain(model):
        def parse(sentences):
            for words in sentences:
                yield [(word, place - 1, model if place else "root") for place, word in enumerate(words)]

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


@pytest.mark.parametrize("from_file", [False, True])
def test_frequent_subwords_are_shown_as_their_text(
    settings: Settings, tmp_path: Path, from_file: bool
) -> None:
    text = "模型 the 模型 the\n" * 9
    (tmp_path / "text").write_text(text)
    tokens = "bpe:300"
    if from_file:
        tokens = str(tmp_path / "own.json")
        Path(tokens).write_text(train_subwords("bpe", 300, text.splitlines()).document)
    splits = [part for split in ("train", "valid", "test") for part in (f"--{split}", tmp_path / "text")]
    imported = call("import", "chinese", *splits, "--tokens", tokens)
    assert imported.exit_code == 0, imported.output
    assert "_模型 (" in call("show", "chinese").output
    record = json.loads(call("show", "chinese", "--json").output)
    assert "tokeniser_document" not in record
    assert "_模型" not in dict(record["frequent"])


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


def test_the_error_for_demo_data_of_agreement_lists_the_tasks(settings: Settings) -> None:
    refused = call("demo", "--task", "agreement")
    assert refused.exit_code == 2
    assert "'completion', 'sentiment', 'inference'" in " ".join(refused.output.replace("│", " ").split())


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


def test_a_corpus_is_imported_listed_shown_and_verified(settings: Settings, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c\nb c d\n" * 5)
    files = [part for split in ("train", "valid", "test") for part in (f"--{split}", str(text))]
    imported = CliRunner().invoke(cli.app, ["corpus", "import", "letters", *files, "--licence", "CC0"])
    assert imported.exit_code == 0, imported.output
    listed = json.loads(CliRunner().invoke(cli.app, ["corpus", "list", "--json"]).stdout)
    assert [corpus["name"] for corpus in listed] == ["letters", "tiny"]
    shown = json.loads(CliRunner().invoke(cli.app, ["corpus", "show", "letters", "--json"]).stdout)
    assert shown["manifest"]["splits"]["train"]["tokens"] == 40
    assert shown["manifest"]["licence"] == "CC0"
    assert "is intact" in CliRunner().invoke(cli.app, ["corpus", "verify", "letters"]).stdout


def test_questions_are_imported_with_options_of_their_format(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("1a) It's [on].\n1b) It's [off].\n")
    (tmp_path / "a.txt").write_text("1\n")
    options = ["--option", f"answers={tmp_path / 'a.txt'}", "--option", "clitics=split"]
    read_output(
        "corpus", "import", "asked", "--format", "msr-completion", "--test", str(tmp_path / "q.txt"), *options
    )
    manifest = json.loads(read_output("corpus", "show", "asked", "--json"))["manifest"]
    assert manifest["annotations"]["completion"]["files"]["test"]["rows"] == 1
    assert manifest["splits"]["test"]["tokens"] == 10
    assert "completion" in read_output("corpus", "list")
    assert "msr-completion" in read_output("corpus", "formats")


def test_one_file_is_divided_into_splits(settings: Settings, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number}\n" for number in range(200)))
    read_output("corpus", "import", "lines", "--train", str(text), "--split", "60,20,20", "--split-seed", "1")
    splits = json.loads(read_output("corpus", "show", "lines", "--json"))["manifest"]["splits"]
    assert sum(split["sentences"] for split in splits.values()) == 200
    wrong = ["corpus", "import", "lines", "--train", str(text), "--split", f"{'9' * 5_000},1,1"]
    assert CliRunner().invoke(cli.app, wrong).exit_code == 2
    for shares in ("60,40", "0.6,0.2,0.2"):
        wrong = ["corpus", "import", "lines", "--train", str(text), "--split", shares]
        assert "three whole numbers" in CliRunner().invoke(cli.app, wrong).output


def test_an_altered_shard_is_named(settings: Settings) -> None:
    shard = next(Path(settings.corpus_store, "tiny").rglob("train*"))
    content = bytearray(shard.read_bytes())
    content[-200] ^= 1
    shard.write_bytes(content)
    assert shard.name in read_error("corpus", "verify", "tiny")


def test_questions_about_a_text_are_imported_by_seed_and_limit(settings: Settings) -> None:
    text = [[f"w{(7 * row + column) % 300}" for column in range(12)] for row in range(400)]
    import_corpus("text", dict.fromkeys(("train", "valid", "test"), text), settings.corpus_store)
    command = ["corpus", "questions", "text", "asked", "--seed", "1", "--limit", "7"]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
    assert "asked: 7 for valid, 7 for test" in done.output


def test_questions_about_a_missing_corpus_name_the_nearest_one(settings: Settings) -> None:
    done = CliRunner().invoke(cli.app, ["corpus", "questions", "tinny", "asked"])
    assert isinstance(done.exception, CorpusError)
    assert 'did you mean "tiny"' in str(done.exception)


def test_an_empty_store_is_that_of_the_environment(settings: Settings) -> None:
    assert "tiny is intact" in call("verify", "tiny", "--store", "").output
