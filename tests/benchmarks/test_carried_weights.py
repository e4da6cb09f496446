from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.models.weights import package_folder

TOOL = Path(__file__).parents[2] / "tools" / "carry_weights.py"
TEXT = "EVQLVESGGGLVQPGGSLRLSCXXSGFXXSDTYIHWVRQAPGKGLEWVA"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("carry_weights", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sapiens_rows() -> tuple[torch.dtype, np.ndarray]:
    model = cp.models.load("sapiens-heavy", device="cpu")
    template = model.template(TEXT)
    readouts = cp.Readouts.same(1, template.masked)
    rows = model.oracle(template, row_error=1e-6).rows(template.given[None], readouts)
    return next(model.network.parameters()).dtype, np.asarray(rows.dense())


def test_tensors_are_halved_counts_kept_and_unneeded_heads_left_out(tool):
    state = {"a.weight": torch.ones(2), "a.count": torch.ones(2, dtype=torch.int64), "b.x": 0}
    kept = tool.halved(state, without=("b.",))
    assert kept["a.weight"].dtype == torch.float16
    assert kept["a.count"].dtype == torch.int64
    assert list(kept) == ["a.weight", "a.count"]


def test_the_library_reads_carried_weights_as_it_reads_installed_ones(tool, tmp_path, monkeypatch):
    installed = sapiens_rows()[1]
    tool.carry_sapiens(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert "sapiens" not in sys.modules
    assert package_folder("sapiens", "", "").parent == tmp_path
    dtype, carried = sapiens_rows()
    assert dtype == torch.float32
    assert np.abs(carried - installed).sum(axis=1).max() / 2 < 0.005


def test_frame2seq_is_carried_with_its_source(tool, tmp_path):
    tool.main([str(tmp_path), "frame2seq"])
    known = package_folder("frame2seq", "", "")
    for name in ("model1", "model2", "model3"):
        file = f"trained_models/{name}.ckpt"
        carried, whole = (
            torch.load(folder / file, map_location="cpu", weights_only=True)
            for folder in (tmp_path / "frame2seq", known)
        )
        assert carried["hyper_parameters"]["config"] == whole["hyper_parameters"]["config"]
        assert carried["state_dict"].keys() == whole["state_dict"].keys()
    assert (tmp_path / "frame2seq" / "model" / "Frame2seq.py").is_file()
    assert (tmp_path / "einops" / "__init__.py").is_file()


def test_a_package_that_is_not_there_is_named(tool):
    with pytest.raises(ValueError, match="no_such_package must be installed"):
        tool.installed("no_such_package")


def test_what_is_carried_is_chosen_by_name(tool, tmp_path, capsys):
    assert tool.main([str(tmp_path), "arrays"]) == 0
    assert [part.name for part in tmp_path.iterdir()] == ["array_api_compat"]
    assert tool.main([str(tmp_path), "rivals"]) == 2
    assert "what must be among proteinmpnn" in capsys.readouterr().err


def test_a_rival_is_carried_as_sources_and_arrays(tool, tmp_path, monkeypatch):
    home, folder = tmp_path / "home", tmp_path / "folder"
    files = [f"colabdesign/mpnn/{name}.py" for name in ("modules", "sample", "score", "utils")]
    files += ["colabdesign/shared/prng.py", "haiku/a.py", "haiku/a_test.py"]
    files += [
        f"{name}/__init__.py" for name in ("colabdesign", "haiku", "jmp", "tabulate", "absl")
    ]
    for file in files:
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text("1 / 0")
    (home / "joblib.py").write_text(
        "import numpy as np\n"
        "def load(file):\n"
        "    return {'num_edges': 48, 'model_state_dict': {'a/b': {'w': np.ones(3)}}}\n"
    )
    monkeypatch.syspath_prepend(home)
    monkeypatch.delitem(sys.modules, "joblib", raising=False)
    tool.carry_colabdesign(folder)
    sys.modules.pop("joblib", None)  # what was there before comes back by itself
    assert (folder / "colabdesign/__init__.py").read_text() == ""
    assert (folder / "colabdesign/mpnn/sample.py").read_text() == "1 / 0"
    assert not (folder / "haiku/a_test.py").exists() and (folder / "haiku/a.py").exists()
    with np.load(folder / "colabdesign/v_48_020.npz") as arrays:
        assert int(arrays["num_edges"]) == 48 and arrays["a/b|w"].tolist() == [1, 1, 1]
