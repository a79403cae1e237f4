"""What trained models do with their memory, and the figures of the papers as values.

Modules on attention and stacks read an `inspected_model`; `parameter_curves` reads reports. Each has a module
of tables and figures in `memtune.reports.inspection`. Import from the modules.
"""
