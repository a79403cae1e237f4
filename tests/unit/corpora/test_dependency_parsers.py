"""Text to CoNLL-U by an installed parser, and the errors without one."""

import importlib.util

import pytest

from memtune.corpora import Example, TextFile, import_corpus, open_corpus
from memtune.corpora.importing import dependency_parsers
from memtune.corpora.importing.dependency_parsers import PARSERS, parse_file
from memtune.errors import CorpusError


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the dogs bark\n\nhello\n" + "so it goes\n" * 600)
    return TextFile(path)


def chain(model: str):
    """A parser that makes each word depend on the one before it, with the relation `model`."""

    def parse(sentences):
        for words in sentences:
            yield [(word, place - 1, model if place else "root") for place, word in enumerate(words)]

    return parse


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_that_is_not_installed_is_reported_with_a_fix(name, text, tmp_path):
    if importlib.util.find_spec(name):
        pytest.skip(f"{name} is installed")
    with pytest.raises(CorpusError, match=f"{name} is not installed; pip install {name}, or parse"):
        parse_file(text, tmp_path / "out.conllu", name, "en")


def test_an_unknown_parser_is_refused(text, tmp_path):
    with pytest.raises(CorpusError, match='no parser "spacey"; did you mean "spacy"'):
        parse_file(text, tmp_path / "out.conllu", "spacey", "en")


def test_a_missing_text_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(dependency_parsers, "PARSERS", {"chain": chain})
    with pytest.raises(CorpusError, match=r"the text .*missing\.txt does not exist"):
        parse_file(TextFile(tmp_path / "missing.txt"), tmp_path / "out.conllu", "chain", "dep")


def test_written_conllu_is_imported_as_it_was_parsed(text, tmp_path, store, cache, monkeypatch):
    monkeypatch.setattr(dependency_parsers, "PARSERS", {"chain": chain})
    assert parse_file(text, tmp_path / "out.conllu", "chain", "dep") == 602
    import_corpus("parsed", {"train": TextFile(tmp_path / "out.conllu", "conllu")}, store, cache=cache)
    expected = [
        Example([words.split()], {"trees": [(tuple(range(-1, count - 1)), ("root", *["dep"] * (count - 1)))]})
        for words, count in [("the dogs bark", 3), ("hello", 1), *[("so it goes", 3)] * 600]
    ]
    import_corpus("given", {"train": expected}, store, cache=cache)
    parsed, given = (open_corpus(name, store, cache) for name in ("parsed", "given"))
    assert parsed.digest == given.digest


def test_a_text_in_another_format_keeps_its_sentences_and_words(tmp_path, store, cache, monkeypatch):
    monkeypatch.setattr(dependency_parsers, "PARSERS", {"chain": chain})
    questions = tmp_path / "questions.txt"
    questions.write_text("1a) the girl's [dog] barks.\n1b) the girl's [cat] barks.\n")
    text = TextFile(questions, "msr-completion", {"clitics": "split", "final": "drop"})
    assert parse_file(text, tmp_path / "out.conllu", "chain", "dep") == 2
    rows = [line.split("\t") for line in (tmp_path / "out.conllu").read_text().splitlines() if line]
    assert " ".join(row[1] for row in rows) == "the girl 's dog barks the girl 's cat barks"
