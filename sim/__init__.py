"""Many centers in one process, with the very decision code that the daemons run."""
