"""docs/tasks.md agrees with the tasks."""

import re
from pathlib import Path

from memtune.corpora import open_corpus
from memtune.settings import Settings
from memtune.spaces import RandomChooser, combine_spaces
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import check_spaces, load_study
from memtune.studies.definition.study_terms import SharedTerms

PAGE = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text(encoding="utf-8")
STUDY = """question = "Which memory?"

corpus = "tiny"
spaces = ["all_families"]

[task]
kind = "sentiment"

[training]
epochs = 1
"""


def test_with_the_documented_setting_every_network_can_be_the_body_of_a_classifier(
    study_file: Path, settings: Settings
) -> None:
    def find_refusals() -> set[str]:
        study, corpus = load_study(study_file), open_corpus("tiny", settings.corpus_store)
        space = combine_spaces(check_spaces(study_file, study, len(corpus.vocabulary)))
        resolved = ResolvedStudy(study, space, corpus, settings, SharedTerms())
        samples = (resolved.sample(RandomChooser(seed)).model_dump(mode="json") for seed in range(120))
        return {reason for reason in map(resolved.limits.get_refusal_reason, samples) if reason}

    study_file.write_text(STUDY)
    assert len(find_refusals()) == 3
    (setting,) = re.findall(r"```toml\n(\[model\]\noutput.*?)```", PAGE, re.DOTALL)
    study_file.write_text(f"{STUDY}\n{setting}")
    assert find_refusals() == set()
