"""Many centers on one machine: a federation laid out on disk, started, followed and summed up."""
