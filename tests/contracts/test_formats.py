"""The contract of every registered text format."""

import re
from dataclasses import dataclass

import pytest

from memtune.corpora import FORMATS, ImportOptions, TextFile, import_corpus, open_corpus, verify_corpus
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.text_blocks import SENTENCE_END
from memtune.errors import CorpusError

LINES = ["the cat sees the dog", " the dog sleeps ", "a  café\tsleeps"]
SENTENCES = [line.split() for line in LINES]


def read(name, content, folder, block_bytes=4096):
    """Sentences that a format reads from bytes, without <eos>."""
    path = folder / "text"
    path.write_bytes(content)
    return read_sentences(name, LineReader(path, block_bytes))


def read_sentences(name, reader):
    sentences = []
    for block in FORMATS[name].read(reader, FORMATS[name].options()):
        words = block.words.to_pylist()
        assert int(block.lengths.sum()) == len(words)
        for length in block.lengths:
            *sentence, end = words[:length]
            assert end == SENTENCE_END
            sentences.append(sentence)
            words = words[length:]
    return sentences


LINE_FORMATS = ["text", "ptb", "wikitext"]
BINARY_FORMATS = ["parquet", "arrow"]
"""The contract of these is in test_record_formats."""
OTHERS = [name for name in FORMATS if name not in (*LINE_FORMATS, *BINARY_FORMATS, "raw")]
"""Raw text has no words; test_tokenisation reads it."""


@pytest.fixture(params=LINE_FORMATS)
def name(request):
    return request.param


@pytest.fixture(params=OTHERS)
def sample(request):
    """A small text in a format with more than one sentence per line."""
    return request.param, SAMPLES[request.param]


def test_a_line_is_a_sentence_of_words_without_whitespace(name, tmp_path):
    assert read(name, "\n".join([*LINES, ""]).encode(), tmp_path) == SENTENCES


def test_a_last_line_without_line_feed_is_a_sentence(name, tmp_path):
    assert read(name, "\n".join(LINES).encode(), tmp_path) == SENTENCES


def test_windows_line_ends_change_nothing(name, tmp_path):
    assert read(name, "\r\n".join([*LINES, ""]).encode(), tmp_path) == SENTENCES


@pytest.mark.parametrize("block_bytes", [24, 31, 48])
def test_the_block_size_changes_nothing(name, tmp_path, block_bytes):
    content = "\n".join(LINES * 5).encode()
    assert read(name, content, tmp_path, block_bytes) == SENTENCES * 5


def test_markers_of_other_corpora_are_ordinary_words(name, tmp_path):
    assert read(name, b"<unk> N @-@ = Title =\n", tmp_path) == [["<unk>", "N", "@-@", "=", "Title", "="]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\nnot \xff fine\n", "byte 9, line 2: not UTF-8"),
        (b"fine\nnot\0fine\n", "byte 8, line 2: a NUL"),
    ],
    ids=["encoding", "binary"],
)
def test_binary_data_is_refused_with_its_position(name, tmp_path, content, message):
    with pytest.raises(CorpusError, match=message):
        read(name, content, tmp_path)


def test_imported_sentences_equal_those_of_the_file(name, tmp_path):
    path = tmp_path / "text"
    path.write_text("\n".join(LINES))
    import_corpus("any", dict.fromkeys(("train", "valid", "test"), TextFile(path, name)), tmp_path / "store")
    corpus = open_corpus("any", tmp_path / "store", tmp_path / "cache")
    words = corpus.vocabulary.decode(corpus["test"].read_tokens(0, corpus["test"].token_count))
    assert words == [word for sentence in SENTENCES for word in (*sentence, "<eos>")]
    assert verify_corpus("any", tmp_path / "store") == []


BLANK = b"one two\n\n   \nthree\n\n"


def test_text_skips_blank_lines(tmp_path):
    assert read("text", BLANK, tmp_path) == [["one", "two"], ["three"]]


def test_wikitext_counts_a_boundary_for_every_blank_line(tmp_path):
    assert read("wikitext", BLANK, tmp_path) == [["one", "two"], [], [], ["three"], []]


def test_ptb_refuses_a_blank_line_with_its_number(tmp_path):
    with pytest.raises(CorpusError, match='line 2: a blank line; format "text" skips those'):
        read("ptb", BLANK, tmp_path)


def test_ptb_counts_lines_over_blocks(tmp_path):
    with pytest.raises(CorpusError, match="line 21: a blank line"):
        read("ptb", b"one two\n" * 20 + b"\n", tmp_path, block_bytes=16)


def test_ptb_skips_blank_lines_on_request(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"one two\n" * 150 + b"\n" + b"three\n" * 50)
    sources = dict.fromkeys(("train", "valid", "test"), TextFile(path, "ptb"))
    manifest = import_corpus("any", sources, tmp_path / "store", ImportOptions(skip_bad=True)).manifest
    assert manifest.sources["test"].skipped == {"bad entries": 1}
    assert manifest.splits["test"].sentences == 200


@dataclass(frozen=True)
class Sample:
    """A text in a format with more than one sentence per line, and its content.

    files: by name, the text first; rows: the number of annotations; bad: invalid texts to append, with their
    errors; after: what the other files then need in addition.
    """

    files: dict[str, str]
    sentences: list[list[str]]
    rows: int
    bad: tuple[tuple[str, str], ...] = ()
    after: str = ""

    @property
    def text(self):
        return next(iter(self.files.values()))


PAIR = [["a", "café", "opens"], ["it", "opens"]]
SAMPLES = {
    "prose": Sample(
        {"text": "Mr. Cat's dog\nsleeps. The café\nis open!\n\nIt rains.\n\n"},
        [
            ["Mr.", "Cat's", "dog", "sleeps", "."],
            ["The", "café", "is", "open", "!"],
            ["It", "rains", "."],
        ],
        0,
    ),
    "jsonl": Sample(
        {
            "text": '{"id": 1, "text": "the café sleeps\\nit rains"}\n'
            '{"text": ["words", "of", "one"]}\n\n{"text": "\\u00e9 is\\tfine ", "more": {"a": 1, "a": {}}}\n'
        },
        [["the", "café", "sleeps"], ["it", "rains"], ["words", "of", "one"], ["é", "is", "fine"]],
        0,
        (
            ('{"text": "a\n', "not JSON"),
            ('[{"text": "a"},\n', "give each object a line of its own, without brackets and commas"),
            ('{"text": "a", "text": "b"}\n', 'two fields named "text" in one object'),
            ('{"content": "a", "id": 1}\n', 'no column "text"; there is content, id: choose one'),
            ('{"text": 3}\n', '"text" is int, not a text or a list of words'),
            ('{"text": {"a": 3}}\n', '"text" is an object, not a text or a list of words'),
            ('["a"]\n', "list instead of an object with fields"),
            ("[" * 100_000 + "\n", "brackets nested too deeply"),  # Python 3.13 parses 5,000
        ),
    ),
    "csv": Sample(
        {"text": 'id,text\n1,the café sleeps\n2,"it ""rains"", and\npours"\n\n'},
        [["the", "café", "sleeps"], ["it", '"rains",', "and"], ["pours"]],
        0,
        (
            ("3,a,b\n", "3 columns instead of 2 as in the header"),
            ("3\n", "1 column instead of 2 as in the header"),
        ),
    ),
    "conllu": Sample(
        {
            "text": "# text = the café sleeps\n"
            "1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n"
            "2\tcafé\tcafé\tNOUN\t_\t_\t3\tnsubj\t_\t_\n"
            "3\tsleeps\tsleep\tVERB\t_\t_\t0\troot\t_\t_\n\n"
            "1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n\n"
        },
        [["the", "café", "sleeps"], ["Hi"]],
        2,
        (
            ("1\tHi\thi\n\n", "3 TAB-separated columns instead of 10"),
            ("1 Hi hi\n\n", "1 TAB-separated column instead of 10"),
            ("1\tHi\thi\tX\t_\t_\t2\troot\t_\t_\n\n", "head 2 in a sentence of 1 word"),
            ("1\tHi\thi\tX\t_\t_\t" + "1" * 5_000 + "\troot\t_\t_\n\n", "is not a whole number from 0"),
        ),
    ),
    "sst": Sample(
        {"text": "(3 (2 A) (4 (3 good) (2 café)))\n(1 no)\n"},
        [["A", "good", "café"], ["no"]],
        6,
        (
            ("(3 (2 A) (4 good)\n", "brackets left open: 1"),
            ("(3 A)) \n", "there is text after the tree"),
            (")\n", "a closing bracket without an opening one"),
            ("(" + "3" * 5_000 + " A)\n", "is not from 0 to 4"),
            ("(5 A)\n", 'the label "5" is not from 0 to 4'),
            ("(3 (2 ) (2 A))\n", "a phrase without words"),
            ("A good film\n", "words without a tree"),
        ),
    ),
    "snli": Sample(
        {
            "text": '{"gold_label": "neutral", "sentence1_binary_parse": "( a ( café opens ) )", '
            '"sentence2_binary_parse": "( it opens )"}\n'
        },
        PAIR,
        1,
        (
            ('{"gold_label": \n', "not JSON"),
            ("[1]\n", "not a JSON object"),
            ("[" * 100_000 + "\n", "not JSON (brackets nested too deeply)"),
            ('{"gold_label": ' + "1" * 5_000 + "}\n", "not JSON"),
            (
                '{"gold_label": "neutral", "sentence1_binary_parse": "\\ud800", '
                '"sentence2_binary_parse": "a"}\n',
                "a lone surrogate, which no text may contain",
            ),
            ('{"gold_label": "maybe"}\n', 'the label "maybe" is none of entailment, neutral, contradiction'),
            ('{"gold_label": "neutral"}\n', "a pair without its binary parses"),
        ),
    ),
    "snli-tsv": Sample(
        {"text": "a café opens\tit opens\t1\n"},
        PAIR,
        1,
        (
            ("one\ttwo\n", "2 TAB-separated columns instead of 3"),
            ("one\ttwo\t3\n", 'the label "3" is none of entailment, neutral, contradiction, 0, 1, 2'),
            ("one\t \t0\n", "a sentence without words"),
        ),
    ),
    "agreement": Sample(
        {
            "small.text": "the dog near cafés sleeps <eos>\nthey are here\n",
            "small.gold": "4\tsleeps\tsleep\t1\n1\tare\tis\t0\n",
        },
        [["the", "dog", "near", "cafés", "sleeps"], ["they", "are", "here"]],
        2,
        (("they are", 'word 0 is "they", its gold line says "are"'),),
        after="0\tare\tis\t0\n",
    ),
    "agreement-prefix": Sample(
        {"text": "VBZ\tthe dog near cafés\nplur\tthey\n"},
        [["the", "dog", "near", "cafés", "is"], ["they", "are"]],
        2,
        (
            ("VB\tthey\n", 'the label "VB" is none of VBZ, sing, singular, VBP, plur, plural'),
            ("VBZ\t \n", "no words after the label and a TAB"),
        ),
    ),
    "linzen-tsv": Sample(
        {
            "text": "orig_sentence\tpos_sentence\tverb\tverb_index\tn_diff_intervening\n"
            "the dog near cafés sleeps\tDT NN IN NNS VBZ\tsleeps\t5\t1\n"
            "they sleep\tPRP VBP\tsleep\t2\t0\n"
        },
        [["the", "dog", "near", "cafés", "sleeps"], ["they", "sleep"]],
        2,
        (
            ("they sleep\tPRP VBP\tsleep\t3\t0\n", 'word 3 of the sentence is not the verb "sleep"'),
            ("they sleep\tPRP VBP\tsleep\t2\n", "4 TAB-separated columns instead of 5"),
            (
                "they sleep\tPRP VBP\tsleep\t2\t2147483648\n",
                'n_diff_intervening "2147483648" is not a whole number from 0 to 2147483647',
            ),
            (
                "they sleep\tPRP VBP\tsleep\t" + "2" * 5_000 + "\t0\n",
                'verb_index "' + "2" * 40 + '..." is not a whole number',
            ),
            ("they " * 30_000 + "\tPRP VBP\tthey\t1\t0\n", "not TAB-separated columns: one is too long"),
        ),
    ),
    "msr-completion": Sample(
        {
            "q.questions.txt": "1a) the [café] opens\n1b) the [cat] opens\n\n",
            "q.answers.txt": "1a) the [café] opens\n",
        },
        [["the", "café", "opens"], ["the", "cat", "opens"]],
        1,
        (
            ("2a) no blank\n", 'not "12c) ... [word] ..."'),
            ("2a) a [b]\n2c) a [c]\n", "question 2 has the candidates a, c instead of a, b, c, ..."),
            ("2a) a [b]\n2b) a [c]\n", "question 2 has no answer among its candidates"),
            ("1a) a [b]\n1b) a a [c]\n", "question 1 has candidates that differ outside the brackets"),
            ("1a) a [b] c\n1b) a [c] d\n", "question 1 has candidates that differ outside the brackets"),
            ("1a) a [b]\n1b) a [c]\n1c) a [b ]\n", "question 1 has the same candidate twice, a and c"),
            ("1a) a [b]\n1b) a [ ]\n", "question 1 has a candidate without a word in the brackets"),
        ),
    ),
    "gutenberg": Sample(
        {
            "text": "Produced by hand\n\n*** START OF THE PROJECT GUTENBERG EBOOK DOGS ***\n\n"
            "The café is\nopen. Go!\n\n*** END OF THE PROJECT GUTENBERG EBOOK DOGS ***\nLicence\n"
        },
        [["The", "café", "is", "open", "."], ["Go", "!"]],
        0,
    ),
}


def write(sample, folder, times=1, bad=""):
    """Write the sample's files, repeated `times`, with `bad` appended; returns the path of the text."""
    for name, text in sample.files.items():
        header = text[: text.index("\n") + 1] if text.startswith("orig") else ""
        end = bad if text == sample.text else sample.after * bool(bad)
        (folder / name).write_bytes((text + text.removeprefix(header) * (times - 1) + end).encode())
    return folder / next(iter(sample.files))


def import_sample(name, sample, folder, options=None):
    """The manifest of an import of the text as all three splits."""
    sources = dict.fromkeys(("train", "valid", "test"), TextFile(folder / next(iter(sample.files)), name))
    return import_corpus("any", sources, folder / "store", options)


def test_a_text_has_the_expected_sentences(sample, tmp_path):
    name, sample = sample
    assert read_sentences(name, LineReader(write(sample, tmp_path))) == sample.sentences


def test_windows_and_a_missing_last_line_feed_change_nothing(sample, tmp_path):
    name, sample = sample
    path = write(sample, tmp_path)
    path.write_bytes(sample.text.replace("\n", "\r\n").rstrip("\r\n").encode())
    assert read_sentences(name, LineReader(path)) == sample.sentences


def test_small_blocks_change_nothing(sample, tmp_path):
    name, sample = sample
    longest = max(len(line.encode()) for line in sample.text.splitlines(keepends=True))
    assert read_sentences(name, LineReader(write(sample, tmp_path), longest)) == sample.sentences


def test_annotations_are_imported_with_their_text(sample, tmp_path):
    name, sample = sample
    write(sample, tmp_path)
    manifest = import_sample(name, sample, tmp_path).manifest
    rows = [file.rows for kind in manifest.annotations.values() for file in kind.files.values()]
    kinds = FORMATS[name].annotations
    assert tuple(manifest.annotations) == kinds[: len(manifest.annotations)]
    assert bool(manifest.annotations) == bool(kinds)
    assert rows == [sample.rows] * 3 * len(manifest.annotations)
    assert [record.name for record in manifest.sources["test"].beside] == [
        str(tmp_path / beside) for beside in list(sample.files)[1:]
    ]
    assert verify_corpus("any", tmp_path / "store") == []


bad_lines = pytest.mark.parametrize(
    ("name", "bad", "why"), [(name, *bad) for name in OTHERS for bad in SAMPLES[name].bad]
)


@bad_lines
def test_a_bad_line_is_reported_with_its_reason(tmp_path, name, bad, why):
    path = write(SAMPLES[name], tmp_path, bad=bad)
    line = SAMPLES[name].text.count("\n") + 1
    with pytest.raises(CorpusError, match=rf"line {line}: .*{re.escape(why)}"):
        read_sentences(name, LineReader(path))


@pytest.mark.parametrize("name", [name for name in OTHERS if SAMPLES[name].bad])
def test_a_file_in_another_format_gets_no_advice_to_skip_lines(tmp_path, name):
    (tmp_path / "text").write_text("a plain\ttext\n")
    with pytest.raises(CorpusError) as refused:
        read_sentences(name, LineReader(tmp_path / "text"))
    assert "--skip-bad" not in str(refused.value)


@bad_lines
def test_bad_lines_are_skipped_and_counted_on_request(tmp_path, name, bad, why):
    sample = SAMPLES[name]
    write(sample, tmp_path, times=100, bad=bad)
    imported = import_sample(name, sample, tmp_path, ImportOptions(skip_bad=True))
    assert imported.manifest.sources["train"].skipped == {"bad entries": 1}
    assert imported.manifest.splits["train"].sentences == 100 * len(sample.sentences)
    assert "1 left out" in imported.warnings[0]


@bad_lines
def test_too_many_bad_lines_stop_an_import_that_skips_them(tmp_path, name, bad, why):
    write(SAMPLES[name], tmp_path, bad=bad)
    with pytest.raises(CorpusError, match=rf"bad entries: 1 of \d, more than 1%; .* one: .*{re.escape(why)}"):
        import_sample(name, SAMPLES[name], tmp_path, ImportOptions(skip_bad=True))
