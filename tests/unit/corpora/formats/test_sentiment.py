"""Trees of the Stanford Sentiment Treebank: spans, labels and escaped characters."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtune.corpora import TextFile, import_corpus, open_corpus
from tests.unit.corpora.formats.conftest import read_sentences


def read_phrases(corpus):
    rows = corpus.annotations["sentiment"]["train"].to_pylist()
    return [(row["sentence"], row["start"], row["stop"], row["label"], row["root"]) for row in rows]


def test_every_node_is_a_span_of_its_sentence(import_text):
    corpus = import_text("sst", "(1 no)\n(3 (2 It) (4 (2 really) (4 works)))\n")
    assert read_phrases(corpus) == [
        (0, 0, 1, 1, True),
        (1, 0, 3, 3, True),
        (1, 0, 1, 2, False),
        (1, 1, 3, 4, False),
        (1, 1, 2, 2, False),
        (1, 2, 3, 4, False),
    ]
    assert corpus.manifest.annotations["sentiment"].labels[3] == "positive"


def test_escaped_brackets_and_slashes_are_unescaped(import_text):
    corpus = import_text("sst", "(2 (2 -LRB-) (2 (2 and\\/or) (2 (2 \\*) (2 -RRB-))))\n")
    assert read_sentences(corpus) == ["( and/or * )"]


def test_a_leaf_with_a_hard_space_is_a_phrase_of_two_words(import_text):
    corpus = import_text("sst", "(3 (2 8\xa01\\/2) (2 women))\n")
    assert read_sentences(corpus) == ["8 1/2 women"]
    assert read_phrases(corpus)[1] == (0, 0, 2, 2, False)


LEAVES = st.tuples(st.integers(0, 4), st.sampled_from(["a", "é", "-LRB-", "1\\/2", "n't"]))
TREES = st.recursive(LEAVES, lambda below: st.tuples(st.integers(0, 4), below, below), max_leaves=12)


def format_tree(tree):
    label, *below = tree
    return f"({label} {' '.join(part if isinstance(part, str) else format_tree(part) for part in below)})"


def list_spans(tree, start=0):
    """(start, stop, label) of every node, each before those below it."""
    label, *below = tree
    if isinstance(below[0], str):
        return [(start, start + 1, label)]
    inner, stop = [], start
    for part in below:
        inner += (found := list_spans(part, stop))
        stop = found[0][1]
    return [(start, stop, label), *inner]


@given(st.lists(TREES, min_size=1, max_size=4))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_tree_is_read_as_written(import_text, trees):
    corpus = import_text("sst", "".join(f"{format_tree(tree)}\n" for tree in trees))
    found = [
        [(start, stop, label) for at, start, stop, label, _ in read_phrases(corpus) if at == number]
        for number in range(len(trees))
    ]
    assert found == [list_spans(tree) for tree in trees]


def test_the_treebank_has_its_published_counts(corpora_folder, store, cache):
    folder = corpora_folder("sst")
    files = {"train": "train", "valid": "dev", "test": "test"}
    sources = {split: TextFile(folder / f"{name}.txt", "sst") for split, name in files.items()}
    import_corpus("sst", sources, store, cache=cache)
    corpus = open_corpus("sst", store, cache)
    counts = {}
    for split, table in corpus.annotations["sentiment"].items():
        roots = table.filter(table["root"])["label"].to_numpy()
        counts[split] = (len(roots), int((roots != 2).sum()))
    assert counts == {"train": (8_544, 6_920), "valid": (1_101, 872), "test": (2_210, 1_821)}
    assert corpus.annotations["sentiment"]["train"].num_rows == 318_582
