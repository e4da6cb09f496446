"""Structure found once and reused: the order of commits, what was found, and its files."""

from counterprobe.planning.order import CommitOrder as CommitOrder
from counterprobe.planning.order import commit_order as commit_order
from counterprobe.structure.discovery import discover as discover
from counterprobe.structure.discovery import load_structure as load_structure
from counterprobe.structure.soft import SoftStructure as SoftStructure
from counterprobe.structure.structure import Structure as Structure
from counterprobe.structure.structure import refuse_empty as refuse_empty
