"""How models learn: chains and where they start, the EBM's trainer, and the other methods beside it."""
