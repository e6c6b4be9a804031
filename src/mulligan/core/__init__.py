"""The values everything shares, the storage contract, the errors and the clock. Imports nothing of ours."""
