"""Structure found once and reused: the order of commits, what was found, and its files."""

from counterprobe.structure.order import CommitOrder as CommitOrder
from counterprobe.structure.order import commit_order as commit_order
from counterprobe.structure.structure import Structure as Structure
from counterprobe.structure.structure import discover as discover
from counterprobe.structure.structure import refuse_empty as refuse_empty
