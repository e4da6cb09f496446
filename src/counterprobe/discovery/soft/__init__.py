"""The soft screen: strengths in nats between the positions of a learned model."""

from counterprobe.discovery.soft.findings import SoftBatch as SoftBatch
from counterprobe.discovery.soft.findings import SoftFindings as SoftFindings
from counterprobe.discovery.soft.findings import SoftSettings as SoftSettings
from counterprobe.discovery.soft.screen import soft_screen as soft_screen
