"""How much is done in one step, and how long it may take."""

from __future__ import annotations

from typing import NamedTuple

LEAST = {"jobs": 200, "singles": 50, "crowd": 200, "storm": 100, "mortals": 200}
USUAL_MAX = 100_000  # jobs of a drain above which a fast peer gets no more than others: all of them take long enough then


class Work(NamedTuple):
    """The amounts of each measurement, and its limits."""

    jobs: int = 20_000
    singles: int = 2_000
    crowd: int = 10_000
    storm: int = 5_000
    pickups: int = 200
    mortals: int = 4_000
    burns: int = 4_000
    loaded_s: float = 4.0
    idle_s: float = 10.0
    answer_s: float = 120.0
    drain_s: float = 300.0
    back_s: float = 75.0  # within which killed jobs have to be back

    @classmethod
    def of(cls, jobs: int) -> Work:
        """All amounts, from the jobs of a drain. More of those do not make everything else longer."""
        usual = cls()
        part = min(1.0, jobs / usual.jobs)
        names = ("singles", "crowd", "storm", "pickups", "mortals", "burns")
        less = {name: max(50, round(getattr(usual, name) * part)) for name in names}
        # A drain of very many jobs is given the time that a slow one of the usual size has.
        return usual._replace(jobs=jobs, drain_s=usual.drain_s * max(1.0, jobs / USUAL_MAX), **less)

    def scaled(self, share: float) -> Work:
        """As much work as is fit for a peer of this share."""
        of_jobs = share if self.jobs <= USUAL_MAX else min(share, 1.0)
        shares = {name: of_jobs if name == "jobs" else min(share, 1.0) for name in LEAST}
        return self._replace(**{name: max(LEAST[name], round(getattr(self, name) * part)) for name, part in shares.items()})
