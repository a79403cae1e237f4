"""`memtune inspect` on a model trained for a moment: tables, JSON and figures have the same numbers."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.api import train
from memtune.cli.command_line import app, run_command
from memtune.corpora import ImportOptions, TextFile, import_corpus
from memtune.results.inspection.attention_weights import average_positions
from memtune.results.inspection.sentence_readings import TextChoice
from memtune.results.loaded_models import open_model
from memtune.settings import Settings

TRIAL = """corpus = "{corpus}"

[model]
family = "{family}"
width = 4
{fields}

[training]
tokens = 300
optimiser = {{ kind = "sgd", learning_rate = 0.1 }}
"""
PNG, SVG, PDF = b"\x89PNG", b"<?xml", b"%PDF"


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["inspect", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def train_model(
    tmp_path: Path, settings: Settings, family: str, fields: str = "", corpus: str = "tiny"
) -> str:
    path = tmp_path / f"{family}.toml"
    path.write_text(TRIAL.format(corpus=corpus, family=family, fields=fields))
    train(path, settings=settings)
    return f"models:/{corpus}@best-{family}"


def test_subwords_are_shown_as_their_text_and_are_tokens_of_the_vocabulary_in_json(
    tmp_path: Path, settings: Settings
) -> None:
    (tmp_path / "text").write_text("模型 the 模型 the 模型 the\n" * 60)
    sources = dict.fromkeys(("train", "valid", "test"), TextFile(tmp_path / "text"))
    import_corpus("chinese", sources, settings.corpus_store, ImportOptions(tokens="bpe:300"))
    for family, fields, commands in (
        ("recurrent_memory", "memory_size = 3", ("links", "samples", "examples", "pairs")),
        ("stack_lstm", "", ("stack-sentence",)),
    ):
        name = train_model(tmp_path, settings, family, fields, "chinese")
        for command in commands:
            far = ["--min-distance", "2"] if command in ("examples", "pairs") else []
            options = [*far, "--max-rank", "300"] if command == "examples" else far
            printed = run(command, name, *options)
            assert "_模型" in printed, command
            assert "Ġ" not in printed, command
            assert "Ġæ¨¡åŀĭ" in str(json.loads(run(command, name, *options, "--json"))), command


def test_attention_commands_print_what_the_functions_return(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = train_model(tmp_path, settings, "recurrent_memory", "memory_size = 5")
    figure = tmp_path / "figure.png"
    (found,) = json.loads(run("positions", name, "--sentences", "3", "--out", str(figure), "--json"))
    model = open_model(name, settings)
    expected = average_positions(model, TextChoice(sentences=3))
    assert found == json.loads(expected.model_dump_json())
    assert figure.read_bytes().startswith(PNG)
    assert f"{expected.positions[-1].mean:.4f}" in run("positions", name, "--sentences", "3")
    for command, options, suffix, start in (
        ("samples", ["--words", "7"], ".svg", SVG),
        ("examples", ["--min-distance", "2", "--max-rank", "20"], ".pdf", PDF),
        ("pairs", ["--min-distance", "2"], ".svg", SVG),
        ("influence", ["--words", "20"], ".svg", SVG),
        ("words", [name], ".png", PNG),
        ("links", ["--text", "the dog sees a cat"], ".svg", SVG),
        ("links", ["--sentence", "1", "--style", "matrix"], ".png", PNG),
    ):
        path = tmp_path / f"{command}{suffix}"
        output = run(command, name, *options, "--out", str(path))
        assert path.read_bytes().startswith(start), command
        assert str(path) in output.replace("\n", "")
    (first, *_) = json.loads(run("examples", name, "--min-distance", "2", "--max-rank", "20", "--json"))
    printed = run("examples", name, "--min-distance", "2", "--max-rank", "20")
    likeliest = first["next_words"][0]
    assert "likeliest next words with log-probabilities in nats" in printed
    assert f'"{likeliest["word"]}" {likeliest["log_probability"]:.2f}' in printed
    for arguments, message in (
        (["samples", name, "--out", str(tmp_path / "a.bmp")], "use .svg, .png, .pdf"),
        (["stack-actions", name], "the inspection of its stack does not cover family"),
        (["relations", name], "has no dependency trees"),
    ):
        monkeypatch.setattr("sys.argv", ["memtune", "inspect", *arguments])
        with pytest.raises(SystemExit):
            run_command()
        assert message in " ".join(capsys.readouterr().err.split())


def test_stack_commands_draw_the_actions(tmp_path: Path, settings: Settings) -> None:
    name = train_model(tmp_path, settings, "stack_lstm", "stack_size = 3")
    actions = json.loads(run("stack-actions", name, "--json", "--out", str(tmp_path / "actions.svg")))
    assert [action["action"] for action in actions["actions"][:3]] == ["stay_0", "push_0", "stay_1"]
    (use,) = json.loads(
        run("stack-sentence", name, "--text", "a cat sleeps", "--json", "--out", str(tmp_path / "use.svg"))
    )
    assert [step["word"] for step in use["steps"]] == ["<eos>", "a", "cat", "sleeps"]
    assert (tmp_path / "actions.svg").read_bytes().startswith(SVG)
    assert (tmp_path / "use.svg").read_bytes().startswith(SVG)


def test_mistakes_need_two_models(settings: Settings) -> None:
    refused = CliRunner().invoke(app, ["inspect", "mistakes", "models:/tiny/1"])
    assert refused.exit_code == 2
    assert "two models" in refused.output
