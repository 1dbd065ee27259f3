"""Energies, Langevin sampling, and the fast gradients that it uses."""
