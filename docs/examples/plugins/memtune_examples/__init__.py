"""One plug-in of memtune of each kind. Modules of a package find each other by relative imports."""
