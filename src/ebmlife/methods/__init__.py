"""Trainings other than maximum likelihood by Langevin sampling, each a `Loop` as the EBM's `Trainer` is one."""
