"""The compressed screen: every neighbourhood at once, from a logarithmic number of probes."""

from counterprobe.discovery.compressed.findings import CompressedSettings as CompressedSettings
from counterprobe.discovery.compressed.findings import Findings as Findings
from counterprobe.discovery.compressed.screen import compressed_screen as compressed_screen
