"""What trained models do with their memory, and the figures of the papers as values.

Modules on attention and stacks read `sentence_readings`; `parameter_curves` reads reports. Each has a module
of tables and figures in `memtune.reports.inspection`. Import from the modules.
"""
