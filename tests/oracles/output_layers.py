"""The output layers for one hidden vector, word by word, from their equations.

Some functions return log-probabilities as logits: the log-softmax of log-probabilities is the same.
"""

import math

import torch
from torch import Tensor

Parameters = dict[str, Tensor]


def predict(config, parameters: Parameters, h: Tensor) -> Tensor:
    """Logits of the configured output layer over the vocabulary for `h`; classes follow Zipf's law."""
    match config.output.kind:
        case "softmax":
            return apply_linear(config, parameters, "output", h)
        case "class_factored":
            return compute_class_factored_logits(config, parameters, h)
        case "adaptive":
            return compute_adaptive_logits(parameters, h)
        case other:
            raise ValueError(f"the oracle has no output.kind {other}")


def apply_linear(config, parameters: Parameters, name: str, h: Tensor) -> Tensor:
    tied = getattr(config, "tie_output", False) and name in ("output", "output.words")
    y = parameters["embedding.weight" if tied else f"{name}.weight"] @ h
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y


def compute_class_factored_logits(config, parameters: Parameters, h: Tensor) -> Tensor:
    classes = apply_linear(config, parameters, "output.classes", h)
    words = apply_linear(config, parameters, "output.words", h)
    members = assign_zipfian_classes(config, len(words), len(classes))
    return combine_class_logits(classes, [words[those] for those in members])


def assign_zipfian_classes(config, words: int, classes: int) -> list[list[int]]:
    return assign_word_classes([1 / (1 + word) for word in range(words)], classes, config.output.mass)


def combine_class_logits(classes: Tensor, words: list[Tensor]) -> Tensor:
    """log p(class) + log p(word | class) from the logits of the classes and those within each."""
    log_p = classes.log_softmax(0)
    return torch.cat([log_p[k] + among.log_softmax(0) for k, among in enumerate(words)])


def assign_word_classes(counts: list[float], classes: int, mass: str) -> list[list[int]]:
    """The words of each class; a class takes words up to an equal share of the counts not yet assigned."""
    masses = [math.sqrt(count) for count in counts] if mass == "square_root" else counts
    members: list[list[int]] = []
    word = 0
    for left in range(classes, 0, -1):
        share = sum(masses[word:]) / left
        members.append([word])
        word += 1
        while len(counts) - word > left - 1 and (
            left == 1 or sum(masses[i] for i in members[-1]) < share * (1 - 1e-12)
        ):
            members[-1].append(word)
            word += 1
    return members


def compute_adaptive_logits(parameters: Parameters, h: Tensor) -> Tensor:
    head = apply_linear(None, parameters, "output.head", h).log_softmax(0)
    clusters = sum(name.endswith("projection.weight") for name in parameters)
    log_p = [head[: len(head) - clusters]]
    for i in range(clusters):
        x = parameters[f"output.clusters.{i}.projection.weight"] @ h
        words = apply_linear(None, parameters, f"output.clusters.{i}.words", x)
        log_p.append(head[len(head) - clusters + i] + words.log_softmax(0))
    return torch.cat(log_p)


def hash_ngram_logits(config, parameters: Parameters, words: list[int], group: int, members: int) -> Tensor:
    """The terms of n-grams in the logits of the members of a group after the words of a text.

    The hash covers the words of a context from the last word back and then the group, in signed 64-bit
    integers.
    """
    order, table = config.maximum_entropy.order, parameters["output.table_S"]
    before = [0] * order + words
    total = table.new_zeros(members)
    for length in range(order):
        key = 0
        for word in list(reversed(before))[:length]:
            key = (key + word + 1) * 6364136223846793005
        key = (key + group + 1) * 6364136223846793005
        signed = (key + 2**63) % 2**64 - 2**63
        start = (signed ^ (signed >> 32)) % (len(table) - members + 1)
        total = total + table[start : start + members]
    return total


def predict_with_ngrams(config, parameters: Parameters, words: list[int], h: Tensor) -> Tensor:
    """Logits of the configured output layer with n-gram connections, over the vocabulary, after a text."""
    layer = {name.removeprefix("body."): value for name, value in parameters.items()}
    if config.output.kind == "softmax":
        plain = apply_linear(config, layer, "output", h)
        return plain + hash_ngram_logits(config, parameters, words, 0, len(plain))
    classes = apply_linear(config, layer, "output.classes", h)
    classes = classes + hash_ngram_logits(config, parameters, words, 0, len(classes))
    plain = apply_linear(config, layer, "output.words", h)
    among = [
        plain[members] + hash_ngram_logits(config, parameters, words, k + 1, len(members))
        for k, members in enumerate(assign_zipfian_classes(config, len(plain), len(classes)))
    ]
    return combine_class_logits(classes, among)
