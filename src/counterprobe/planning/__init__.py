"""Batches with a price: from the strengths of a structure, or without any."""

from counterprobe.planning.free import distance_plan as distance_plan
from counterprobe.planning.free import nearness as nearness
from counterprobe.planning.free import random_plan as random_plan
from counterprobe.planning.free import spread_plan as spread_plan
from counterprobe.planning.halves import Halves as Halves
from counterprobe.planning.held_out import plan_for as plan_for
from counterprobe.planning.make import make_plan as make_plan
from counterprobe.planning.make import price_curve as price_curve
from counterprobe.planning.plan import Coverage as Coverage
from counterprobe.planning.plan import Plan as Plan
from counterprobe.planning.strengths import price_of_batches as price_of_batches
