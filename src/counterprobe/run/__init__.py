"""Runs: how oracles are asked and charged.

``requests.py`` lists what a rule may ask for. A ``Run`` is one run, which answers a rule's
requests, and charges each stage that ``door.py`` asks and checks; ``driver.py`` lets any number of
runs ask one oracle; ``events.py`` lists what listeners are told; ``together.py`` commits fixed
batches of many sequences at once.
"""

from counterprobe.run.driver import Driver as Driver
from counterprobe.run.events import Finished as Finished
from counterprobe.run.events import Listener as Listener
from counterprobe.run.events import Progress as Progress
from counterprobe.run.events import Standing as Standing
from counterprobe.run.events import Step as Step
from counterprobe.run.events import tell_all as tell_all
from counterprobe.run.requests import Commit as Commit
from counterprobe.run.requests import CommitAll as CommitAll
from counterprobe.run.requests import Committed as Committed
from counterprobe.run.requests import Draft as Draft
from counterprobe.run.requests import Drafted as Drafted
from counterprobe.run.requests import Keep as Keep
from counterprobe.run.requests import Noise as Noise
from counterprobe.run.requests import Preprocess as Preprocess
from counterprobe.run.requests import Probe as Probe
from counterprobe.run.requests import Probed as Probed
from counterprobe.run.requests import Read as Read
from counterprobe.run.requests import Reading as Reading
from counterprobe.run.requests import Refusals as Refusals
from counterprobe.run.requests import Remask as Remask
from counterprobe.run.requests import Request as Request
from counterprobe.run.requests import Requests as Requests
from counterprobe.run.requests import Share as Share
from counterprobe.run.requests import Stream as Stream
from counterprobe.run.requests import Verify as Verify
from counterprobe.run.run import Run as Run
from counterprobe.run.view import View as View
