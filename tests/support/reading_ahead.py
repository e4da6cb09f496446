"""Oracles that read several requests of a stage before they answer the first."""

import itertools

from counterprobe.testing import CountingOracle


class ReadsAhead(CountingOracle):
    """Reads up to ``reach`` requests ahead, and notes how far it came."""

    reach = 3
    furthest = 0

    def stream(self, requests):
        ahead, reading = [], iter(requests)
        while True:
            ahead += list(itertools.islice(reading, self.reach - len(ahead)))
            self.furthest = max(self.furthest, len(ahead))
            if not ahead:
                return
            self.about_to_reply()
            yield self.rows(*ahead.pop(0))

    def about_to_reply(self):
        """Do nothing; others may die here."""
