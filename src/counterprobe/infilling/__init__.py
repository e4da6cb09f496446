"""From a model and a text with masks to finished texts, in one call."""

from counterprobe.infilling.call import InfillStep as InfillStep
from counterprobe.infilling.call import infill as infill
from counterprobe.infilling.completions import Completion as Completion
from counterprobe.infilling.completions import Completions as Completions
from counterprobe.infilling.completions import fill_mask as fill_mask
from counterprobe.infilling.family import discover_over as discover_over
from counterprobe.infilling.scoring import Scores as Scores
from counterprobe.infilling.scoring import score as score
