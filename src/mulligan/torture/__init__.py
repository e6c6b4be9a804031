"""Torture on real processes: workers that are killed and stopped, a ledger outside the queue, and a checker that reads nothing else."""
