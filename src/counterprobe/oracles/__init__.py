"""Oracles: the interface, functions as oracles, and wrappers that compose."""

from counterprobe.oracles.abilities import Attends as Attends
from counterprobe.oracles.abilities import AttentionQuery as AttentionQuery
from counterprobe.oracles.abilities import Drawing as Drawing
from counterprobe.oracles.abilities import Drawn as Drawn
from counterprobe.oracles.abilities import DrawsPlans as DrawsPlans
from counterprobe.oracles.abilities import FollowsRuns as FollowsRuns
from counterprobe.oracles.abilities import HistoryQuery as HistoryQuery
from counterprobe.oracles.abilities import KeptWork as KeptWork
from counterprobe.oracles.abilities import RunKey as RunKey
from counterprobe.oracles.abilities import Runs as Runs
from counterprobe.oracles.abilities import depends_on_order as depends_on_order
from counterprobe.oracles.abilities import join as join
from counterprobe.oracles.callable import CallableOracle as CallableOracle
from counterprobe.oracles.oracle import NUMERICAL_FLOOR as NUMERICAL_FLOOR
from counterprobe.oracles.oracle import LawOracle as LawOracle
from counterprobe.oracles.oracle import Oracle as Oracle
from counterprobe.oracles.oracle import OracleInfo as OracleInfo
from counterprobe.oracles.oracle import RowOracle as RowOracle
from counterprobe.oracles.oracle import Wrapper as Wrapper
from counterprobe.oracles.oracle import as_oracle as as_oracle
from counterprobe.oracles.query import Query as Query
from counterprobe.oracles.query import Readouts as Readouts
from counterprobe.oracles.query import Reply as Reply
