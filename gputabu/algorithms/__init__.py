"""The searches, and what they share: restarts, seeding, the tabu list, monitoring, checkpoints."""
