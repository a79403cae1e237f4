"""What every registered text format keeps to."""

import re
from dataclasses import dataclass

import pytest

from memtune.corpora import FORMATS, ImportOptions, TextFile, import_corpus, open_corpus, verify_corpus
from memtune.corpora.sources import END, LineReader
from memtune.errors import CorpusError

LINES = ["the cat sees the dog", " the dog sleeps ", "a  café\tsleeps"]
SENTENCES = [line.split() for line in LINES]


def read(name, content, folder, block_bytes=4096):
    """Sentences that a format finds in a file's bytes, without their ends."""
    path = folder / "text"
    path.write_bytes(content)
    return sentences_of(name, LineReader(path, block_bytes))


def sentences_of(name, reader):
    sentences = []
    for block in FORMATS[name].read(reader, FORMATS[name].options()):
        words = block.words.to_pylist()
        assert int(block.lengths.sum()) == len(words)
        for length in block.lengths:
            *sentence, end = words[:length]
            assert end == END
            sentences.append(sentence)
            words = words[length:]
    return sentences


PLAIN = [name for name in FORMATS if not FORMATS[name].annotations]
ANNOTATED = [name for name in FORMATS if FORMATS[name].annotations]


@pytest.fixture(params=PLAIN)
def name(request):
    return request.param


@pytest.fixture(params=ANNOTATED)
def sample(request):
    """A small text in an annotated format."""
    return request.param, SAMPLES[request.param]


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


@dataclass(frozen=True)
class Sample:
    """A text in an annotated format and what is in it.

    files: by name, the first one being the text; rows: how many annotations it has; bad: items that
    break the format, to stand after the text, each with the reason of its message.
    """

    files: dict[str, str]
    sentences: list[list[str]]
    rows: int
    bad: dict[str, str]


SAMPLES = {
    "conllu": Sample(
        {
            "text": "# text = the café sleeps\n"
            + "1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n"
            + "2\tcafé\tcafé\tNOUN\t_\t_\t3\tnsubj\t_\t_\n"
            + "3\tsleeps\tsleep\tVERB\t_\t_\t0\troot\t_\t_\n\n"
            + "1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n\n"
        },
        [["the", "café", "sleeps"], ["Hi"]],
        2,
        {"1\tHi\thi\n\n": "3 TAB-separated columns instead of 10"},
    ),
}


def write(sample, folder, content=None):
    """The sample's files in a folder; the path of its text."""
    for name, text in sample.files.items():
        (folder / name).write_bytes(text.encode())
    path = folder / next(iter(sample.files))
    if content is not None:
        path.write_bytes(content)
    return path


def text_of(sample):
    return next(iter(sample.files.values()))


def test_the_sentences_of_an_annotated_text(sample, tmp_path):
    name, sample = sample
    assert sentences_of(name, LineReader(write(sample, tmp_path))) == sample.sentences


def test_windows_and_a_missing_last_line_feed_change_no_annotated_text(sample, tmp_path):
    name, sample = sample
    content = text_of(sample).replace("\n", "\r\n").rstrip("\r\n").encode()
    assert sentences_of(name, LineReader(write(sample, tmp_path, content))) == sample.sentences


def test_the_size_of_the_blocks_changes_no_annotated_text(sample, tmp_path):
    name, sample = sample
    longest = max(len(line.encode()) for line in text_of(sample).splitlines(keepends=True))
    assert sentences_of(name, LineReader(write(sample, tmp_path), longest)) == sample.sentences


def test_annotations_are_imported_with_their_text(sample, tmp_path):
    name, sample = sample
    source = TextFile(write(sample, tmp_path), name)
    manifest = import_corpus("any", {"train": source, "test": source}, tmp_path / "store").manifest
    rows = [file.rows for kind in manifest.annotations.values() for file in kind.files.values()]
    assert set(manifest.annotations) <= set(FORMATS[name].annotations)
    assert rows == [sample.rows, sample.rows]
    assert [record.name for record in manifest.sources["test"].beside] == [
        str(tmp_path / beside) for beside in list(sample.files)[1:]
    ]
    assert verify_corpus("any", tmp_path / "store") == []


def bad_lines():
    return [(name, bad, why) for name in ANNOTATED for bad, why in SAMPLES[name].bad.items()]


@pytest.mark.parametrize(("name", "bad", "why"), bad_lines())
def test_a_bad_line_is_named_with_its_reason(tmp_path, name, bad, why):
    text = text_of(SAMPLES[name])
    path = write(SAMPLES[name], tmp_path, (text + bad).encode())
    with pytest.raises(CorpusError, match=rf"line {text.count(chr(10)) + 1}: .*{re.escape(why)}"):
        sentences_of(name, LineReader(path))


@pytest.mark.parametrize(("name", "bad", "why"), bad_lines())
def test_bad_lines_are_skipped_and_counted_on_request(tmp_path, name, bad, why):
    sample = SAMPLES[name]
    source = TextFile(write(sample, tmp_path, (text_of(sample) * 100 + bad).encode()), name)
    options = ImportOptions(skip_bad=True)
    imported = import_corpus("any", {"train": source}, tmp_path / "store", options)
    assert imported.manifest.sources["train"].skipped["bad lines"] == 1
    assert imported.manifest.splits["train"].sentences == 100 * len(sample.sentences)
    assert "1 left out" in imported.warnings[0]


@pytest.mark.parametrize(("name", "bad", "why"), bad_lines())
def test_too_many_bad_lines_stop_an_import_that_skips_them(tmp_path, name, bad, why):
    sample = SAMPLES[name]
    source = TextFile(write(sample, tmp_path, (text_of(sample) + bad).encode()), name)
    with pytest.raises(CorpusError, match=rf"lines are bad, more than 1%; the last one: .*{re.escape(why)}"):
        import_corpus("any", {"train": source}, tmp_path / "store", ImportOptions(skip_bad=True))
