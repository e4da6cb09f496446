"""``make run`` is told what an evaluation of a measured network takes."""

import json
import sys

import evaluation_ms
import pytest


def test_the_number_and_the_sentence_are_those_of_the_file(monkeypatch, capsys):
    content = json.loads(evaluation_ms.MEASURED.read_text(encoding="utf-8"))
    for network in content["networks"]:
        said = []
        for words in ([], ["--say"]):
            monkeypatch.setattr(sys, "argv", ["evaluation_ms.py", "--network", network, *words])
            evaluation_ms.main()
            said.append(capsys.readouterr().out.strip())
        alone = content["networks"][network]["milliseconds"]["1"]
        assert float(said[0]) == pytest.approx(alone, rel=5e-3)
        assert said[0] in said[1] and f"{content['tokens']:,} tokens" in said[1]
        assert content["device"] in said[1]
