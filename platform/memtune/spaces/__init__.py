"""Search spaces: the configurations that a study may sample, as TOML trees.

A space file mirrors the configuration that it samples: a table is a table of the configuration, a plain
value is a constant, and a parameter is an inline table of one kind::

    question = "Does a memory beat a layer?"          # optional research question; not part of the tree

    [model]
    family = "recurrent_memory"                       # a constant
    memory_size = { int = [1, 20] }                   # both ends included; optional: step = 2 or log = true
    temporal = { choice = [true, false] }             # texts, numbers or true/false
    layers = { int = [1, 4], prior = 2, confidence = "high" }   # believed to be good: docs/samplers.md
    width = { fit_parameters = 2_000_000 }            # an integer solved for a number of parameters;
                                                      # or fit_multiply_adds (per token), or fit_state

    [training]
    clip_norm = { float = [1.0, 10.0], log = true }   # or step = 0.5

    [training.optimiser]                              # a branch: `kind` holds the chosen sub-table,
    one_of = "kind"                                   # and only its parameters are sampled
    [training.optimiser.sgd]
    learning_rate = { float = [0.1, 2.0], log = true }
    [training.optimiser.adam]
    learning_rate = { float = [1e-4, 1e-2], log = true }

The name of a parameter is its path, options of branches included (for example
`training.optimiser.adam.learning_rate`), so two options never share a parameter. `combine_spaces` joins the
spaces of several families: the family is chosen first, then the parameters of its file, training included,
with names that start with the family.
`override_space` replaces entries of a space by constants, other ranges or other priors. A file may also hold
`points`, the settings of papers, as values by dotted field (`space_points`).
"""

from memtune.spaces.choosers import Chooser, RandomChooser, Scalar
from memtune.spaces.space import FAMILY_FIELD, MeasureSize, Space, check_space, combine_spaces
from memtune.spaces.space_files import list_space_files, load_space, load_spaces, override_space, read_space
from memtune.spaces.space_points import adapt_point, draw_prior_points, pin_point
from memtune.spaces.space_tree import (
    MAX_ALTERNATIVES,
    SIZE_NOUNS,
    Branch,
    Categorical,
    Constant,
    FittedSize,
    Group,
    Integer,
    Parameter,
    Real,
    SizeKind,
)
