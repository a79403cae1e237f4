"""Prose of other scripts than Latin: where its sentences end, and what its words are."""

# ruff: noqa: RUF001

import pytest

from memtune.corpora.formats.prose_texts import (
    ProseOptions,
    split_characters,
    split_paragraphs,
    split_sentences,
    tokenise,
    tokenise_sentence,
)


@pytest.mark.parametrize(
    "sentences",
    [
        ["昨日は雨。", "彼は「本当ですか？」と言った！？", "「はい。」", "彼女は笑った。"],
        ["他说：“好吗？”", "我们走了。", "「不。」，他说。"],
    ],
)
def test_sentences_of_chinese_and_japanese_end_at_their_signs_and_keep_their_characters(sentences):
    assert list(split_sentences("".join(sentences))) == sentences
    assert [tokenise(sentence) for sentence in sentences] == [[sentence] for sentence in sentences]
    assert tokenise_sentence(sentences[0], ProseOptions(final="drop"))[0] in ("昨日は雨", "他说：“好吗？”")


@pytest.mark.parametrize(
    ("paragraph", "count"),
    [
        ("Дом стоит. Он большой. École. à Paris.", 3),
        ("राम ने किताब पढ़ी। विद्यार्थी गया।", 2),
        ("هل كتب؟ نعم", 2),
    ],
)
def test_sentences_end_before_any_letter_that_is_not_small(paragraph, count):
    assert len(list(split_sentences(paragraph))) == count


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Tokyo (東京, Tōkyō) is “東京” here…", "Tokyo ( 東京 , Tōkyō ) is “ 東京 ” here …"),
        ("他说“OK”。(100元)用GPU,CPU跑，and fast！", "他说 “ OK ” 。 ( 100元 ) 用GPU , CPU跑， and fast ！"),
        ("他用GPU训练了3.5万次，很快。", "他用GPU训练了3.5万次，很快。"),
        ("他买了“100”本……", "他买了“100”本……"),
        ("\U0001f44d\U0001f3fd “3”-4", "\U0001f44d\U0001f3fd “ 3 ” - 4"),
    ],
)
def test_only_runs_of_chinese_and_japanese_are_kept_whole_beside_latin_words_and_signs(sentence, words):
    assert " ".join(tokenise(sentence)) == words


def test_signs_and_latin_words_between_single_characters_are_words():
    words = "他 说 “ OK ” 。 ( 100 元 ) 用 GPU , CPU 跑 , and fast !"
    assert " ".join(split_characters("他说“OK”。(100元)用GPU,CPU跑,and fast!")) == words
    assert " ".join(split_characters("“他”走了-「a-b」…")) == "“ 他 ” 走 了 - 「 a-b 」 …"


def test_lines_of_chinese_and_japanese_are_joined_without_a_blank():
    lines = ["　これは長い文", "章です。", "It is", "so."]
    assert list(split_paragraphs(lines)) == ["これは長い文章です。 It is so."]


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("विद्यार्थी ने किताब पढ़ी।", "विद्यार्थी ने किताब पढ़ी ।"),
        ("e\u0301cole, كَتَبَ", "e\u0301cole , كَتَبَ"),
        (
            "so \U0001f469\u200d\U0001f467\U0001f44d\U0001f3fd!",
            "so \U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd !",
        ),
    ],
)
def test_combining_marks_and_joiners_do_not_divide_words_and_emoji(sentence, words):
    assert " ".join(tokenise(sentence)) == words
