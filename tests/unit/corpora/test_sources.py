import hashlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memtune.corpora.examples import sentence_blocks
from memtune.corpora.sources import END, LineReader, split_lines
from memtune.errors import CorpusError


def sentences_of(path, block_bytes=64):
    """Words of each line as the reader and the splitter see them."""
    sentences = []
    for lines in LineReader(path, block_bytes).blocks():
        block = split_lines(lines)
        words = block.words.to_pylist()
        for length in block.lengths:
            sentence, words = words[:length], words[length:]
            assert sentence[-1] == END
            sentences.append(sentence[:-1])
        assert words == []
    return sentences


TEXTS = st.text(
    st.one_of(
        st.sampled_from(" \t\n\r\v\f\x1c\x1f\x85\u00a0\u2003\u2028\u3000aé\u65e5\U0001f600"),
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    ),
    max_size=60,
)


@settings(deadline=None)  # the first call makes tables of all letters
@given(text=TEXTS)
@example("a b")
@example("éb\n")
@example("\n\n \n")
@example("a\r\nb\r\n")
def test_words_are_those_of_str_split(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "split.txt"
    path.write_bytes(text.encode())
    lines = text.removeprefix("\ufeff").split("\n")
    expected = lines[:-1] if lines[-1] == "" else lines
    assert sentences_of(path, block_bytes=512) == [line.split() for line in expected]


@pytest.mark.parametrize("block_bytes", [16, 17, 23, 64, 4096])
def test_the_size_of_the_blocks_does_not_show(tmp_path, block_bytes):
    path = tmp_path / "text"
    path.write_text("one two\n\nthree\n four five \nsix\nseven eight")
    expected = [["one", "two"], [], ["three"], ["four", "five"], ["six"], ["seven", "eight"]]
    assert sentences_of(path, block_bytes) == expected


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert sentences_of(path) == [["one"], ["two"]]


def test_the_digest_is_that_of_the_file(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"one two\nthree" * 20)
    reader = LineReader(path, 256)
    for _ in reader.blocks():
        pass
    assert reader.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert reader.bytes_read == path.stat().st_size


def read_all(path, block_bytes=16):
    for _ in LineReader(path, block_bytes).blocks():
        pass


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


def test_a_binary_file_is_refused_with_the_place_of_its_nul(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"one\ntwo\n\x7fE\0F")
    with pytest.raises(CorpusError, match="binary: byte 10, line 3: a NUL byte"):
        read_all(path)


def test_a_binary_file_without_lines_is_called_binary(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"\x01\0" * 100)
    with pytest.raises(CorpusError, match="byte 1, line 1: a NUL byte"):
        read_all(path)


def test_a_line_beyond_all_measure_is_refused(tmp_path):
    path = tmp_path / "one_line"
    path.write_bytes(b"short\n" + b"word " * 100)
    with pytest.raises(CorpusError, match="byte 6, line 2: a line of more than 16 bytes"):
        read_all(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"cannot read .*absent: No such file"):
        read_all(tmp_path / "absent")


def test_sentences_of_a_program_come_in_blocks_with_their_ends():
    sentences = [["a", "b"], [], ["c"]] * 5000
    blocks = list(sentence_blocks(iter(sentences)))
    words = [word for block in blocks for word in block.words.to_pylist()]
    assert len(blocks) > 1
    assert words == [word for sentence in sentences for word in (*sentence, END)]
    assert [int(length) for block in blocks for length in block.lengths] == [3, 1, 2] * 5000


@pytest.mark.parametrize("word", ["", " ", "two words", "end\n", "nul\0"])
def test_a_word_that_no_file_could_hold_is_refused(word):
    with pytest.raises(CorpusError, match="is no word"):
        list(sentence_blocks([["fine", word]]))
