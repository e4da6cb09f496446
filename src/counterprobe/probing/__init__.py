"""Finding hidden structure by probes: banks, and two kinds of screens."""

from counterprobe.probing.banks import Banks as Banks
from counterprobe.probing.banks import read_banks as read_banks
from counterprobe.probing.packed.fillers import Filler as Filler
from counterprobe.probing.packed.fillers import FillerContext as FillerContext
from counterprobe.probing.packed.fillers import most_likely_filler as most_likely_filler
from counterprobe.probing.packed.fillers import rare_filler as rare_filler
from counterprobe.probing.packed.screen import ScreenRows as ScreenRows
from counterprobe.probing.packed.screen import ScreenSettings as ScreenSettings
from counterprobe.probing.packed.screen import draw_colorings as draw_colorings
from counterprobe.probing.packed.screen import packed_screen as packed_screen
from counterprobe.probing.packed.selectors import RowSelector as RowSelector
from counterprobe.probing.packed.selectors import SeesTranscript as SeesTranscript
from counterprobe.probing.packed.selectors import empty_on_overflow as empty_on_overflow
from counterprobe.probing.packed.selectors import top_votes as top_votes
from counterprobe.probing.packed.transcript import ScreenTranscript as ScreenTranscript
