"""The build command of memtune's wheel, which adds the files of the library to the package.

pyproject.toml names it. setuptools loads it from the source tree without importing memtune, so this module
imports nothing of memtune.
"""

from pathlib import Path

from setuptools.command.build_py import build_py

FOLDERS = ("search_spaces", "jobs/studies", "jobs/trials", "jobs/papers")
"""Folders of the source tree whose TOML files become package data, under their own paths."""
PACKAGE_FOLDER = "memtune/library/files"


class BuildWithLibrary(build_py):  # type: ignore[misc]  # setuptools has no types
    """Copies the library into wheels. An editable installation reads the folders of the source tree."""

    def run(self) -> None:
        """Build the package, then copy the files of the library."""
        super().run()
        if self.editable_mode:
            return
        for target, source in self._map_library().items():
            self.mkpath(str(Path(target).parent))
            self.copy_file(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """The files that a build writes."""
        outputs: list[str] = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, *self._map_library()]

    def get_source_files(self) -> list[str]:
        """The files that a source distribution needs."""
        return [*super().get_source_files(), *self._map_library().values()]

    def _map_library(self) -> dict[str, str]:
        """The source of each file of the library, by the path of its copy."""
        sources = [source for folder in FOLDERS for source in sorted(Path(folder).glob("*.toml"))]
        root = Path(self.build_lib, PACKAGE_FOLDER)
        return {str(root / source): source.as_posix() for source in sources}
