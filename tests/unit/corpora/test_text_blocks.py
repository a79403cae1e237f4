import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import SourceFile
from memtune.corpora.text_blocks import (
    SENTENCE_END,
    BadLineError,
    Example,
    make_blocks,
    parse_number,
    split_lines,
)
from memtune.errors import CorpusError


def split_sentences(path, block_bytes=64):
    """Words of each line, by the reader and the splitter."""
    sentences = []
    for lines in LineReader(path, block_bytes).read_blocks():
        block = split_lines(lines)
        words = block.words.to_pylist()
        for length in block.lengths:
            sentence, words = words[:length], words[length:]
            assert sentence[-1] == SENTENCE_END
            sentences.append(sentence[:-1])
        assert words == []
    return sentences


# A carriage return within a line is refused, so it is drawn only before line feeds.
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([*" \t\n\v\f\x1c\x1f\x85\u00a0\u2003\u2028\u3000aé\u65e5\U0001f600", "\r\n"]),
        st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]),
    ),
    max_size=60,
).map("".join)


@given(text=TEXTS)
@example("a b")
@example("éb\n")
@example("\n\n \n")
@example("a\r\nb\r\n")
def test_words_are_split_as_by_str_split(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "split.txt"
    path.write_bytes(text.encode())
    lines = text.removeprefix("\ufeff").split("\n")
    expected = lines[:-1] if lines[-1] == "" else lines
    assert split_sentences(path, block_bytes=512) == [line.split() for line in expected]


@pytest.mark.parametrize("block_bytes", [16, 17, 23, 64, 4096])
def test_the_block_size_does_not_change_the_sentences(tmp_path, block_bytes):
    path = tmp_path / "text"
    path.write_text("one two\n\nthree\n four five \nsix\nseven eight")
    expected = [["one", "two"], [], ["three"], ["four", "five"], ["six"], ["seven", "eight"]]
    assert split_sentences(path, block_bytes) == expected


def test_a_byte_order_mark_is_not_part_of_the_first_word(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert split_sentences(path) == [["one"], ["two"]]


def test_the_digest_is_that_of_the_file(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"one two\nthree" * 20)
    reader = LineReader(path, 256)
    for _ in reader.read_blocks():
        pass
    assert reader.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert reader.bytes_read == path.stat().st_size


def read_all(path, block_bytes=16):
    for _ in LineReader(path, block_bytes).read_blocks():
        pass


def test_a_file_system_that_gives_only_a_text_is_reported_by_it(tmp_path, monkeypatch):
    """Those of pyarrow raise OSError without a number."""
    (tmp_path / "text").write_text("one\n")

    def fail(*_: object) -> None:
        raise OSError("the connection was lost")

    monkeypatch.setattr(SourceFile, "read_chunks", fail)
    with pytest.raises(CorpusError, match=r"cannot read .*text: the connection was lost"):
        read_all(tmp_path / "text")


def test_bytes_that_are_not_utf8_are_refused_with_file_byte_and_line(tmp_path):
    path = tmp_path / "latin1"
    path.write_bytes(b"good line\nanother one\nthird caf\xe9 line\n")
    with pytest.raises(CorpusError, match=r"latin1: byte 31, line 3: not UTF-8 \(0xe9"):
        read_all(path)


def test_a_letter_cut_at_the_end_of_the_file_is_refused(tmp_path):
    path = tmp_path / "cut"
    path.write_bytes("good\ncafé".encode()[:-1])
    with pytest.raises(CorpusError, match="byte 8, line 2: not UTF-8"):
        read_all(path)


def test_a_binary_file_is_refused_with_the_position_of_its_nul(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"one\ntwo\n\x7fE\0F")
    with pytest.raises(CorpusError, match="binary: byte 10, line 3: a NUL byte"):
        read_all(path)


def test_a_binary_file_without_lines_is_refused_as_binary(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"\x01\0" * 100)
    with pytest.raises(CorpusError, match="byte 1, line 1: a NUL byte"):
        read_all(path)


def test_a_line_longer_than_a_block_is_refused(tmp_path):
    path = tmp_path / "one_line"
    path.write_bytes(b"short\n" + b"word " * 100)
    with pytest.raises(CorpusError, match="byte 6, line 2: a line of more than 16 bytes"):
        read_all(path)


def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    with pytest.raises(CorpusError, match=r"the file .*absent does not exist"):
        read_all(tmp_path / "absent")


def test_generated_sentences_form_blocks_with_sentence_ends():
    sentences = [["a", "b"], [], ["c"]] * 5000
    blocks = list(make_blocks(Example((words,)) for words in sentences))
    words = [word for block in blocks for word in block.words.to_pylist()]
    assert len(blocks) > 1
    assert words == [word for sentence in sentences for word in (*sentence, SENTENCE_END)]
    assert [int(length) for block in blocks for length in block.lengths] == [3, 1, 2] * 5000


@pytest.mark.parametrize("word", ["", " ", "two words", "end\n", "nul\0", "\ud800"])
def test_a_word_with_whitespace_or_nul_is_refused(word):
    with pytest.raises(CorpusError, match="is not a word"):
        list(make_blocks([Example([["fine", word]])]))


@pytest.mark.parametrize(
    ("content", "place"), [(b"one\rtwo\r", "byte 3, line 1"), (b"one\ntwo\rthree\n", "byte 7, line 2")]
)
def test_line_ends_of_old_macs_are_refused_with_their_conversion(tmp_path, content, place):
    path = tmp_path / "mac"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=rf"{place}: a carriage return within a line; .* \(tr '"):
        read_all(path, 4096)


def test_a_long_file_with_line_ends_of_old_macs_is_not_reported_as_one_long_line(tmp_path):
    path = tmp_path / "mac"
    path.write_bytes(b"word\r" * 100)
    with pytest.raises(CorpusError, match="a carriage return within a line"):
        read_all(path)


def test_several_carriage_returns_before_a_line_feed_end_one_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"one\r\r\ntwo\r\n")
    assert split_sentences(path) == [["one"], ["two"]]


@pytest.mark.parametrize("text", ["2147483648", "-1", "1.0", "", "9" * 5_000, "²"])
def test_a_field_that_is_not_a_number_in_range_is_reported(text):
    with pytest.raises(BadLineError, match=r'the place ".*" is not a whole number from 0 to 2147483647'):
        parse_number(text, "the place")


def test_a_number_may_have_space_around_it_and_digits_of_any_script():
    assert [parse_number(text, "n") for text in (" 7 ", "007", "٣", "2147483647")] == [7, 7, 3, 2**31 - 1]


def test_the_reason_for_a_bad_line_is_short_and_printable():
    reason = BadLineError("\ud800" + "x" * 10_000).reason
    assert len(reason.encode()) < 400
    assert reason.startswith("\\ud800xxx")
