"""docs/integrations.md: its code runs as printed, on real libraries and random weights."""

import re
from pathlib import Path

import pytest
import torch

from small_language import Counted, bert_tokenizer, generating_bert

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"\n## (\w+)\n.*?```python\n(.*?)```", PAGE, flags=re.DOTALL))


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_generate(capsys):
    model = generating_bert(seed=1)
    known: dict[str, object] = {"model": model, "tokenizer": bert_tokenizer()}
    with Counted(model) as counted:
        exec(compile(BLOCKS["transformers"], "docs/integrations.md", "exec"), known)
    assert capsys.readouterr().out.startswith(f"torch.Size([4, 9]) {counted.states} (")


def test_a_pipeline(capsys):
    model = generating_bert(seed=1)
    known: dict[str, object] = {"model": model, "tokenizer": bert_tokenizer(), "torch": torch}
    with Counted(model) as counted:
        exec(compile(BLOCKS["diffusers"], "docs/integrations.md", "exec"), known)
    assert f" {counted.calls} [" in capsys.readouterr().out


def test_every_page_is_short():
    for block in BLOCKS.values():
        assert len(block.strip().splitlines()) <= 14
