"""Atomic files, checkpoints, and workspaces for long work that can be stopped and resumed."""
