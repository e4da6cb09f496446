"""Finding hidden structure by probes: banks, drafts, colorings, screens, row selectors."""

from counterprobe.probing.banks import Banks as Banks
from counterprobe.probing.banks import read_banks as read_banks
from counterprobe.probing.banks import tail_threshold as tail_threshold
from counterprobe.probing.drafts import Draft as Draft
from counterprobe.probing.drafts import DraftContext as DraftContext
from counterprobe.probing.drafts import most_likely_draft as most_likely_draft
from counterprobe.probing.drafts import rare_draft as rare_draft
from counterprobe.probing.packed import Screen as Screen
from counterprobe.probing.packed import ScreenRows as ScreenRows
from counterprobe.probing.packed import draw_colorings as draw_colorings
from counterprobe.probing.packed import packed_screen as packed_screen
from counterprobe.probing.selectors import RowSelector as RowSelector
from counterprobe.probing.selectors import empty_on_overflow as empty_on_overflow
from counterprobe.probing.selectors import top_votes as top_votes
