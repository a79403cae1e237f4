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
    counts = [1 / (1 + word) for word in range(len(words))]
    log_p = []
    for k, members in enumerate(word_classes(counts, len(classes), config.output.mass)):
        among = torch.stack([words[word] for word in members])
        log_p += [classes.log_softmax(0)[k] + logit for logit in among.log_softmax(0)]
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
