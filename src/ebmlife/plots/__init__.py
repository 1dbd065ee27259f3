"""Pictures of states, and plots of what a training or a chain did."""
