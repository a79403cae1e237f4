"""Files that a user of memtune writes: a family of the templates, its space, and a study next to the LSTM."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "platform/memtune/model_checks/templates/family.py.template"
SPACE_TOML = """
[model]
family = "my_memory"
width = { choice = [4, 8] }
alpha = { float = [0.1, 0.9] }

[training.optimiser]
kind = "sgd"
learning_rate = { float = [0.1, 1.0], log = true }
"""
STUDY_TOML = """question = "Is my memory better than an LSTM?"

corpus = "tiny"
models = ["my_memory.py"]
spaces = ["space.toml", "my_memory"]
points = [{ "model.family" = "my_memory", "model.width" = 4 }, { "model.family" = "lstm", "model.width" = 4 }]

[training]
tokens = 900
report_every = 300

[budget]
trials = 4
"""
LSTM_SPACE_TOML = SPACE_TOML.replace("my_memory", "lstm").replace("alpha = { float = [0.1, 0.9] }\n", "")


def write_family(path: Path, *, marker: Path | None = None, before: str = "") -> Path:
    """A family file; executing it creates `marker`. `before` is put above its imports."""
    text = TEMPLATE.read_text().replace("my_family", "my_memory").replace("MyFamily", "MyMemory")
    touch = f"from pathlib import Path as _Path\n\n_Path({str(marker)!r}).touch()\n" if marker else ""
    docstring, _, rest = text.partition('"""\n\nfrom')
    path.write_text(f'{docstring}"""\n\n{before}{touch}\nfrom{rest}')
    return path


def write_study(folder: Path, *, marker: Path | None = None) -> Path:
    """A study of the family next to the LSTM; returns its file."""
    write_family(folder / "my_memory.py", marker=marker)
    (folder / "my_memory.toml").write_text(SPACE_TOML)
    (folder / "space.toml").write_text(LSTM_SPACE_TOML)
    study = folder / "memories.toml"
    study.write_text(STUDY_TOML)
    return study
