"""A training as a folder: its recipe made into live objects, checkpoints, log, scores, and the trained model."""
