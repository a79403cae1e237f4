"""Books: removal of headers and licences, paragraphs to sentences, sentences to words."""

import os
import re
from time import process_time

import pytest

from memtune.corpora import TextFile, import_corpus, open_corpus
from memtune.corpora.formats.prose_texts import split_clitics, split_paragraphs, split_sentences, tokenise
from memtune.errors import CorpusError
from tests.fuzz.time_limit import limit_time
from tests.unit.corpora.formats.conftest import read_sentences

OLD = """Project Gutenberg's Etext of Dogs
***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***
Why is this here?  You know: lawyers.
*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*

DOGS

They bark, Mr. Fox
said.  "Do they?" he asked. They _really_ do well-
made things -- and more.

*****

The End of it.

End of Project Gutenberg's Etext of Dogs
"""
BODY = [
    "DOGS",
    "They bark , Mr. Fox said .",
    '" Do they ? " he asked .',
    "They really do well-made things -- and more .",
    "The End of it .",
]


@pytest.fixture
def import_books(store, cache, tmp_path):
    """Imports a folder of books as all three splits."""

    def run(books, **options):
        folder = tmp_path / "books"
        for name, content in books.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        source = TextFile(folder, "gutenberg", options)
        imported = import_corpus(
            "books", dict.fromkeys(("train", "valid", "test"), source), store, cache=cache
        )
        return imported, open_corpus("books", store, cache)

    return run


def test_header_small_print_and_end_of_an_old_book_are_removed(import_books):
    _, corpus = import_books({"1DOGS10.TXT": OLD.replace("\n", "\r\n")})
    assert read_sentences(corpus) == BODY


def test_header_and_licence_of_a_newer_book_are_removed(import_books):
    body = OLD.split("*END*")[2].split("End of Project")[0]
    text = (
        "Title: Dogs\n\n*** START OF THIS PROJECT GUTENBERG EBOOK DOGS ***\n"
        + body
        + "*** END OF THIS PROJECT GUTENBERG EBOOK DOGS ***\nSection 1.\n"
    )
    _, corpus = import_books({"dogs.txt": text})
    assert read_sentences(corpus) == BODY


def test_small_print_at_the_end_does_not_remove_the_book(import_books):
    end = "***START**THE SMALL PRINT!**\nlawyers\n*END*THE SMALL PRINT! *END*\n"
    _, corpus = import_books({"a.txt": f"{'A line. ' * 3}\n\n" * 9 + end})
    assert read_sentences(corpus) == ["A line ."] * 27


def test_a_text_without_header_is_kept_completely(import_books):
    assert read_sentences(import_books({"a.txt": "No header here.\n"})[1]) == ["No header here ."]


def test_the_files_of_a_folder_are_selected_by_pattern_and_sorted_by_name(import_books):
    imported, corpus = import_books(
        {"b/1B.TXT": "Second.", "a/1A.txt": "First.", "list.txt": "No."}, files="1*.txt"
    )
    assert read_sentences(corpus) == ["First .", "Second ."]
    record = imported.manifest.sources["train"]
    assert [beside.name.rsplit("/", 1)[1] for beside in record.beside] == ["1A.txt", "1B.TXT"]
    assert record.bytes == len("First.Second.")


def test_a_folder_without_matching_files_is_refused(import_books):
    with pytest.raises(CorpusError, match=r"has no file named \*\.text; .* --option files=PATTERN"):
        import_books({"a.txt": "Text."}, files="*.text")


def test_a_file_that_is_not_utf_8_is_read_as_latin_1_and_noted(import_books):
    imported, corpus = import_books({"a.txt": "Café noir.".encode("latin-1"), "b.txt": "Déjà vu."})
    assert read_sentences(corpus) == ["Café noir .", "Déjà vu ."]
    assert "a.txt is not UTF-8 and was read as Latin-1" in imported.warnings[0]
    assert not any("b.txt is not" in warning for warning in imported.warnings)


def test_a_binary_file_is_refused_as_a_book(import_books):
    with pytest.raises(CorpusError, match=r"a\.txt: byte 3, line 1: a NUL"):
        import_books({"a.txt": b"abc\0"})


def test_options_drop_final_punctuation_and_split_clitics(import_books):
    _, corpus = import_books({"a.txt": "It isn't Tom's. Is it?"}, final="drop", clitics="split")
    assert read_sentences(corpus) == ["It is n't Tom 's", "Is it"]


@pytest.mark.parametrize(
    ("paragraph", "count"),
    [
        ("One. Two! Three? Four.", 4),
        ("Mr. Fox met Dr. Hare. He ran.", 2),
        ("J. R. Fox came in 300 B.C. from here.", 1),
        ('"Go!" she said. "Why?" he asked.', 2),
        ('He left. "Go on." (So he did.) 12 men came.', 4),
        ("It cost 1.50 pounds. e.g. nothing.", 1),
        ("It was I. He saw Tom's. Then he left.", 3),
    ],
)
def test_sentences_end_at_punctuation_before_a_capital_but_not_at_abbreviations(paragraph, count):
    found = list(split_sentences(paragraph))
    assert len(found) == count
    assert " ".join(found) == paragraph


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Wait--what?", "Wait -- what ?"),
        ('(ll. 411-418) "O king," he said...', '( ll. 411 - 418 ) " O king , " he said ...'),
        ("The girl's well-made hat, at 10:30.", "The girl's well-made hat , at 10:30 ."),
        ("The 3rd of the 1980s, 1,000.5km", "The 3rd of the 1980s , 1,000.5km"),
        ("the <unk> cat 's tail", "the <unk> cat 's tail"),
        ("Mr. J. Fox paid 1,000 francs;", "Mr. J. Fox paid 1,000 francs ;"),
    ],
)
def test_words_and_punctuation_are_separate_tokens(sentence, words):
    assert " ".join(tokenise(sentence)) == words


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("don't", ["do", "n't"]),
        ("I'll", ["I", "'ll"]),
        ("years'", ["years", "'"]),
        ("o'clock", ["o'clock"]),
        ("'tis", ["'tis"]),
    ],
)
def test_clitics_are_split_off(word, parts):
    assert split_clitics(word) == parts


def test_small_print_of_published_novels_is_removed(corpora_folder, store, cache):
    source = TextFile(corpora_folder("msr_completion"), "gutenberg", {"files": "1*.txt"})
    import_corpus("novels", dict.fromkeys(("train", "valid", "test"), source), store, cache=cache)
    corpus = open_corpus("novels", store, cache)
    text = read_sentences(corpus)
    assert text[0] == "The First Book of Adam and Eve"
    assert not any("Etext" in sentence for sentence in text)
    assert 3_000 < len(text) < 4_000


def test_the_time_for_a_paragraph_is_linear_in_its_lines():
    lines = ["a line of words that goes on with-", "out an end"] * 100_000
    started = process_time()
    (joined,) = split_paragraphs(lines)
    assert process_time() - started < 5  # a rescan at every line would take hours
    assert joined.count("-out an end a line") == 99_999


def test_files_without_gutenberg_header_are_noted(import_books):
    imported, _ = import_books({"dogs.txt": OLD, "answers.txt": "1a) They [bark].\n"})
    (warning,) = {each for each in imported.warnings if "header" in each}
    assert re.search(
        r"1 of 2 files .* read completely, such as answers\.txt; choose by --option files=", warning
    )


@pytest.mark.parametrize("paragraph", ["Mr. " * 200_000, "J. " * 200_000, "A. B." * 100_000, "x. " * 200_000])
def test_the_time_for_sentences_is_linear_in_the_paragraph(paragraph):
    with limit_time():
        assert "".join(split_sentences(paragraph)).replace(" ", "") == paragraph.replace(" ", "")


@pytest.mark.parametrize("sentence", ["a." * 200_000 + "aa", "'" * 200_000, "a-" * 200_000, "1," * 200_000])
def test_the_time_for_words_is_linear_in_the_sentence(sentence):
    with limit_time():
        assert "".join(tokenise(sentence)) == sentence


def test_a_long_sequence_of_initials_does_not_end_a_sentence():
    assert list(split_sentences(f"{'A.' * 40} Smith left. He did.")) == [
        f"{'A.' * 40} Smith left.",
        "He did.",
    ]


def test_a_pipe_among_the_books_is_refused(tmp_path, store):
    books = tmp_path / "books"
    books.mkdir()
    os.mkfifo(books / "a.txt")
    with pytest.raises(CorpusError, match=r"a\.txt is a pipe among other files"):
        import_corpus("books", dict.fromkeys(("train", "valid", "test"), TextFile(books, "gutenberg")), store)


def test_a_book_that_is_too_long_to_be_held_in_memory_is_refused(import_books, monkeypatch):
    monkeypatch.setattr("memtune.corpora.formats.prose_texts._MAX_BOOK_BYTES", 100)
    with pytest.raises(CorpusError, match="has more than 100 bytes; give a folder with one file"):
        import_books({"old.txt": OLD})
