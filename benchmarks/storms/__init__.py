"""Storms: outages, mass failures and floods, played to the real app, worker, policy and memory store under virtual time.

One file, one scene. Its function plays it, by default in full size; the tests play it smaller. `python -m benchmarks.storms` plays
them all, prints what came out beside what must hold, and draws the plots of docs/guide/storms.md.
"""
