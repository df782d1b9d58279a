"""The parts of the in-memory host."""
