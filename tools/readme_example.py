"""Print the first Python example of README.md, so that it can be run as a reader would run it."""

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def first_python_block(text: str) -> str:
    """Return the body of the first fenced block marked ``python``."""
    block = re.search(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    if block is None:
        sys.exit("README.md must hold a block fenced by ```python, got none")
    return block.group(1)


if __name__ == "__main__":
    print(first_python_block(README.read_text(encoding="utf-8")), end="")
