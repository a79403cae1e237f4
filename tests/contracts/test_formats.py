"""What every registered text format keeps to."""

import pytest

from memtune.corpora import FORMATS, TextFile, import_corpus, open_corpus, verify_corpus
from memtune.corpora.sources import END, LineReader
from memtune.errors import CorpusError

LINES = ["the cat sees the dog", " the dog sleeps ", "a  café\tsleeps"]
SENTENCES = [line.split() for line in LINES]


def read(name, content, folder, block_bytes=4096):
    """Sentences that a format finds in a file's bytes, without their ends."""
    path = folder / "text"
    path.write_bytes(content)
    sentences = []
    for block in FORMATS[name].read(LineReader(path, block_bytes), FORMATS[name].options()):
        words = block.words.to_pylist()
        assert int(block.lengths.sum()) == len(words)
        for length in block.lengths:
            *sentence, end = words[:length]
            assert end == END
            sentences.append(sentence)
            words = words[length:]
    return sentences


@pytest.fixture(params=sorted(name for name in FORMATS if not FORMATS[name].annotations))
def name(request):
    return request.param


def test_a_line_is_a_sentence_of_words_without_whitespace(name, tmp_path):
    assert read(name, "\n".join([*LINES, ""]).encode(), tmp_path) == SENTENCES


def test_the_last_line_counts_without_a_line_feed(name, tmp_path):
    assert read(name, "\n".join(LINES).encode(), tmp_path) == SENTENCES


def test_line_ends_of_windows_change_nothing(name, tmp_path):
    assert read(name, "\r\n".join([*LINES, ""]).encode(), tmp_path) == SENTENCES


@pytest.mark.parametrize("block_bytes", [24, 31, 48])
def test_the_size_of_the_blocks_changes_nothing(name, tmp_path, block_bytes):
    content = "\n".join(LINES * 5).encode()
    assert read(name, content, tmp_path, block_bytes) == SENTENCES * 5


def test_marks_of_other_corpora_are_ordinary_words(name, tmp_path):
    assert read(name, b"<unk> N @-@ = Title =\n", tmp_path) == [["<unk>", "N", "@-@", "=", "Title", "="]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\nnot \xff fine\n", "byte 9, line 2: not UTF-8"),
        (b"fine\nnot\0fine\n", "byte 8, line 2: a NUL"),
    ],
    ids=["encoding", "binary"],
)
def test_what_is_no_text_is_refused_with_its_place(name, tmp_path, content, message):
    with pytest.raises(CorpusError, match=message):
        read(name, content, tmp_path)


def test_an_import_gives_the_sentences_back(name, tmp_path):
    path = tmp_path / "text"
    path.write_text("\n".join(LINES))
    import_corpus("any", dict.fromkeys(("train", "valid", "test"), TextFile(path, name)), tmp_path / "store")
    corpus = open_corpus("any", tmp_path / "store", tmp_path / "cache")
    words = corpus.vocabulary.decode(corpus["test"].tokens(0, corpus["test"].token_count))
    assert words == [word for sentence in SENTENCES for word in (*sentence, "<eos>")]
    assert verify_corpus("any", tmp_path / "store") == []


BLANK = b"one two\n\n   \nthree\n\n"


def test_text_skips_blank_lines(tmp_path):
    assert read("text", BLANK, tmp_path) == [["one", "two"], ["three"]]


def test_wikitext_counts_a_boundary_for_every_blank_line(tmp_path):
    assert read("wikitext", BLANK, tmp_path) == [["one", "two"], [], [], ["three"], []]


def test_ptb_refuses_a_blank_line_by_number(tmp_path):
    with pytest.raises(CorpusError, match='line 2 is blank; format "text" skips blank lines'):
        read("ptb", BLANK, tmp_path)


def test_ptb_counts_lines_over_blocks(tmp_path):
    with pytest.raises(CorpusError, match="line 21 is blank"):
        read("ptb", b"one two\n" * 20 + b"\n", tmp_path, block_bytes=16)
