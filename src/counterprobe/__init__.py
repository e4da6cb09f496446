"""Parallel unmasking: whole sequences from a masked model with few evaluations.

A target or a model offers an oracle; an ``Unmasking`` is one run against it, with its ledger; a
sampler runs it to completion and returns a ``SampleResult``. ``sample`` does all of it for any
number of sequences.
"""

from counterprobe import discovery as discovery
from counterprobe import evaluation as evaluation
from counterprobe import models as models
from counterprobe import oracles as oracles
from counterprobe import planning as planning
from counterprobe import samplers as samplers
from counterprobe import theory as theory
from counterprobe import trace as trace
from counterprobe.checks import ZeroProbabilityWarning as ZeroProbabilityWarning
from counterprobe.classes import TokenClasses as TokenClasses
from counterprobe.discovery import SoftStructure as SoftStructure
from counterprobe.discovery import Structure as Structure
from counterprobe.discovery import discover as discover
from counterprobe.discovery import load_structure as load_structure
from counterprobe.discovery.compressed import CompressedSettings as CompressedSettings
from counterprobe.discovery.soft import SoftSettings as SoftSettings
from counterprobe.errors import BudgetExceeded as BudgetExceeded
from counterprobe.errors import CheckpointError as CheckpointError
from counterprobe.errors import CounterprobeError as CounterprobeError
from counterprobe.errors import ImpossibleState as ImpossibleState
from counterprobe.errors import Infeasible as Infeasible
from counterprobe.errors import InfeasibleWarning as InfeasibleWarning
from counterprobe.errors import NotAForestError as NotAForestError
from counterprobe.errors import OracleError as OracleError
from counterprobe.errors import StructureError as StructureError
from counterprobe.infilling import fill_mask as fill_mask
from counterprobe.infilling import infill as infill
from counterprobe.oracles import CallableOracle as CallableOracle
from counterprobe.oracles import Oracle as Oracle
from counterprobe.oracles import OracleInfo as OracleInfo
from counterprobe.oracles import Query as Query
from counterprobe.oracles import Readouts as Readouts
from counterprobe.oracles import Reply as Reply
from counterprobe.rows import ClassedRows as ClassedRows
from counterprobe.rows import DenseRows as DenseRows
from counterprobe.rows import Rows as Rows
from counterprobe.run.batches import SampleBatch as SampleBatch
from counterprobe.run.candidates import Candidates as Candidates
from counterprobe.run.ledger import Ledger as Ledger
from counterprobe.run.ledger import Right as Right
from counterprobe.run.lockstep import Lockstep as Lockstep
from counterprobe.run.results import SampleResult as SampleResult
from counterprobe.run.results import StopReason as StopReason
from counterprobe.run.transcript import Level as Level
from counterprobe.run.unmasking import Progress as Progress
from counterprobe.run.unmasking import Request as Request
from counterprobe.run.unmasking import Unmasking as Unmasking
from counterprobe.sampling import sample as sample
from counterprobe.states import MASK as MASK
from counterprobe.streams import Streams as Streams
from counterprobe.targets import ForestLaw as ForestLaw
from counterprobe.targets import FrozenNoise as FrozenNoise
from counterprobe.targets import TableLaw as TableLaw
from counterprobe.targets import families as families
from counterprobe.threads import set_num_threads as set_num_threads
from counterprobe.version import __version__ as __version__
