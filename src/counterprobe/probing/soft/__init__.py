"""The soft screen: strengths in nats between the positions of a learned model."""

from counterprobe.probing.soft.findings import SoftBatch as SoftBatch
from counterprobe.probing.soft.findings import SoftFindings as SoftFindings
from counterprobe.probing.soft.findings import SoftSettings as SoftSettings
from counterprobe.probing.soft.screen import soft_screen as soft_screen
