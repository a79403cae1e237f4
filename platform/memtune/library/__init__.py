"""The search spaces, studies, trials and tables of papers that memtune brings, found by name.

A clone has them in the folders of its root, and an installed package in its folder `files`, where
`wheel_build` puts them. A file of the user has precedence over a packaged one of the same name.
"""

from memtune.library.library_files import (
    LIBRARY_ROOT,
    FileKind,
    copy_packaged,
    find_file,
    find_packaged,
    format_argument,
    list_packaged,
    read_question,
)
