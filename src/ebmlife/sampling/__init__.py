"""Energies, the Langevin loop over them, and the fast gradient that it runs on."""
