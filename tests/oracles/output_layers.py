"""The output layers for one hidden vector, word by word, from their equations.

Log-probabilities may stand for logits: their softmax is themselves.
"""

import math

import torch
from torch import Tensor

Parameters = dict[str, Tensor]


def predict(config, parameters: Parameters, h: Tensor) -> Tensor:
    """What the layer of a configuration gives over the vocabulary after `h`; classes follow Zipf's law."""
    match config.output.kind:
        case "softmax":
            return linear(config, parameters, "output", h)
        case "class_factored":
            return class_factored(config, parameters, h)
        case "adaptive":
            return adaptive(parameters, h)


def linear(config, parameters: Parameters, name: str, h: Tensor) -> Tensor:
    tied = getattr(config, "tie_output", False) and name in ("output", "output.words")
    y = parameters["embedding.weight" if tied else f"{name}.weight"] @ h
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y


def class_factored(config, parameters: Parameters, h: Tensor) -> Tensor:
    classes = linear(config, parameters, "output.classes", h)
    words = linear(config, parameters, "output.words", h)
    members = zipfian_classes(config, len(words), len(classes))
    return of_classes(classes, [torch.stack([words[word] for word in those]) for those in members])


def zipfian_classes(config, words: int, classes: int) -> list[list[int]]:
    return word_classes([1 / (1 + word) for word in range(words)], classes, config.output.mass)


def of_classes(classes: Tensor, words: list[Tensor]) -> Tensor:
    """log p(class) + log p(word | class) from the logits of the classes and those within each."""
    log_p = [
        classes.log_softmax(0)[k] + logit for k, among in enumerate(words) for logit in among.log_softmax(0)
    ]
    return torch.stack(log_p)


def word_classes(counts: list[float], classes: int, mass: str) -> list[list[int]]:
    """The words of each class: as many as reach an equal share of what the classes before have left."""
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


def adaptive(parameters: Parameters, h: Tensor) -> Tensor:
    head = linear(None, parameters, "output.head", h).log_softmax(0)
    clusters = sum(name.endswith("projection.weight") for name in parameters)
    log_p = list(head[: len(head) - clusters])
    for i in range(clusters):
        x = parameters[f"output.clusters.{i}.projection.weight"] @ h
        words = linear(None, parameters, f"output.clusters.{i}.words", x)
        log_p += [head[len(head) - clusters + i] + logit for logit in words.log_softmax(0)]
    return torch.stack(log_p)


def hashed(config, parameters: Parameters, words: list[int], group: int, members: int) -> Tensor:
    """What n-grams add to the logits of the members of a group after the words of a text.

    Contexts are hashed from the last word back, in integers of 64 bits with a sign, and then the group.
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


def connected(config, parameters: Parameters, words: list[int], h: Tensor) -> Tensor:
    """The layer of a configuration with n-gram connections, over the vocabulary, after a text."""
    layer = {name.removeprefix("body."): value for name, value in parameters.items()}
    if config.output.kind == "softmax":
        plain = linear(config, layer, "output", h)
        return plain + hashed(config, parameters, words, 0, len(plain))
    classes = linear(config, layer, "output.classes", h)
    classes = classes + hashed(config, parameters, words, 0, len(classes))
    plain = linear(config, layer, "output.words", h)
    among = [
        torch.stack([plain[word] for word in members])
        + hashed(config, parameters, words, k + 1, len(members))
        for k, members in enumerate(zipfian_classes(config, len(plain), len(classes)))
    ]
    return of_classes(classes, among)
