"""The compressed screen: every neighbourhood at once, from a logarithmic number of probes."""

from counterprobe.probing.compressed.findings import CompressedSettings as CompressedSettings
from counterprobe.probing.compressed.findings import Findings as Findings
from counterprobe.probing.compressed.screen import compressed_screen as compressed_screen
