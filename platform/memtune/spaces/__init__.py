"""Search spaces: what a study may try, as TOML trees of a trial's configuration.

A space file mirrors the configuration it samples: a table is a table of the configuration, a plain value a
constant, and a parameter is an inline table of one kind::

    question = "Does a memory beat a layer?"          # optional: what the file asks; no part of the tree

    [model]
    family = "recurrent_memory"                       # a constant
    memory_size = { int = [1, 20] }                   # both ends included; step = 2 or log = true if wanted
    temporal = { choice = [true, false] }             # texts, numbers or true/false
    width = { fit_parameters = 2_000_000 }            # an integer solved so that all models are of one size

    [training]
    clip_norm = { float = [1.0, 10.0], log = true }   # or step = 0.5

    [training.optimiser]                              # a branch: one sub-table is chosen, its name is written
    one_of = "kind"                                   # under `kind`, and only its parameters are sampled
    [training.optimiser.sgd]
    learning_rate = { float = [0.1, 2.0], log = true }
    [training.optimiser.adam]
    learning_rate = { float = [1e-4, 1e-2], log = true }

Parameters are named by their place, options of branches included (`training.optimiser.adam.learning_rate`),
so two options never share one. `combine` makes one space of several families': the family is chosen first,
then everything of its own file, training included, under names that start with the family. `fix` lays a
study's own entries over a space: constants, or other ranges.
"""

from memtune.spaces.checking import check_space
from memtune.spaces.choosing import Chooser, PinnedChooser, RandomChooser, Scalar
from memtune.spaces.fixing import fix
from memtune.spaces.leaves import Categorical, Constant, FittedParameters, Integer, Real
from memtune.spaces.reading import load_space, load_spaces, read_space, space_files
from memtune.spaces.space import CountParameters, Space, combine
from memtune.spaces.tree import Branch, Group, Parameter

__all__ = [
    "Branch",
    "Categorical",
    "Chooser",
    "Constant",
    "CountParameters",
    "FittedParameters",
    "Group",
    "Integer",
    "Parameter",
    "PinnedChooser",
    "RandomChooser",
    "Real",
    "Scalar",
    "Space",
    "check_space",
    "combine",
    "fix",
    "load_space",
    "load_spaces",
    "read_space",
    "space_files",
]
