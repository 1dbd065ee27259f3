"""Runs: a training in its folder, with recipe, checkpoints, log and scores, and the model that it trained."""
