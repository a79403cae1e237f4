"""Plug-ins: model families, output layers, tasks, text formats, samplers and rules of users and of packages.

A plug-in is a Python file that a study or a trial names, or an entry point of an installed package. One
`PluginRegistry` per kind holds the built-in entries and those of plug-ins. The digest of a plug-in's source
is part of every configuration that uses it. Source that comes from storage is executed only with consent.
"""

from memtune.plugins.plugin_registry import ConfigRegistry, PluginConfig, PluginRegistry, find_installed_file
from memtune.plugins.source_modules import PluginSource, list_sources, load_source, name_sources
from memtune.plugins.source_store import (
    load_plugin_file,
    load_plugin_files,
    load_sources,
    read_source,
    run_with_sources,
    store_sources,
)
