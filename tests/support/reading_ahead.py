"""Oracles that are asked several queries before the first reply is waited for."""

from dataclasses import replace

from counterprobe.oracles import OracleInfo, Query, Reply
from counterprobe.testing import CountingOracle


class ReadsAhead(CountingOracle):
    """Answers when its reply is looked at; notes how many waited at once and were dropped."""

    reach = 3
    waiting = furthest = dropped = 0

    @property
    def info(self) -> OracleInfo:
        return replace(super().info, ahead=self.reach)

    def ask(self, query: Query) -> Reply:
        self.waiting += 1
        self.furthest = max(self.furthest, self.waiting)
        return Reply.later(lambda: self.reply_to(query), self.drop)

    def reply_to(self, query: Query) -> Reply:
        self.waiting -= 1
        self.about_to_reply()
        return super().ask(query)

    def drop(self) -> None:
        self.waiting -= 1
        self.dropped += 1

    def about_to_reply(self) -> None:
        """Do nothing; others may die here."""
