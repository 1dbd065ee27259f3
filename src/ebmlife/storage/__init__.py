"""Files that appear whole or not at all, checkpoints, and work that survives being stopped."""
