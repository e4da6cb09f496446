"""Finding hidden structure by probes: banks, three kinds of screens, and what they find."""

from counterprobe.discovery.averaging import average_structures as average_structures
from counterprobe.discovery.banks import Banks as Banks
from counterprobe.discovery.banks import read_banks as read_banks
from counterprobe.discovery.checking import check_oracle as check_oracle
from counterprobe.discovery.checking import context_for as context_for
from counterprobe.discovery.compressed import CompressedSettings as CompressedSettings
from counterprobe.discovery.discovering import discover as discover
from counterprobe.discovery.packed.fillers import Filler as Filler
from counterprobe.discovery.packed.fillers import FillerContext as FillerContext
from counterprobe.discovery.packed.fillers import most_likely_filler as most_likely_filler
from counterprobe.discovery.packed.fillers import rare_filler as rare_filler
from counterprobe.discovery.packed.screen import ScreenRows as ScreenRows
from counterprobe.discovery.packed.screen import ScreenSettings as ScreenSettings
from counterprobe.discovery.packed.screen import draw_colorings as draw_colorings
from counterprobe.discovery.packed.screen import packed_screen as packed_screen
from counterprobe.discovery.packed.selectors import RowSelector as RowSelector
from counterprobe.discovery.packed.selectors import ScreenTranscript as ScreenTranscript
from counterprobe.discovery.packed.selectors import SeesTranscript as SeesTranscript
from counterprobe.discovery.packed.selectors import empty_on_overflow as empty_on_overflow
from counterprobe.discovery.packed.selectors import top_votes as top_votes
from counterprobe.discovery.soft import SoftSettings as SoftSettings
from counterprobe.discovery.structure import Certificate as Certificate
from counterprobe.discovery.structure import Strengths as Strengths
from counterprobe.discovery.structure import Structure as Structure
