"""The source never runs what it reads, never reads without a bound, and writes files whole."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import counterprobe as cp

SOURCE = Path(cp.__file__).parent

# Calls by their last name, or by their whole name, and the files that may make them.
FORBIDDEN: dict[str, set[str]] = {
    # Run what they are given.
    "eval": set(), "exec": set(), "compile": set(), "os.system": set(), "os.popen": set(),
    "pickle.load": set(), "marshal.loads": set(), "shelve.open": set(), "joblib.load": set(),
    "dill.loads": set(), "yaml.load": set(), "torch.hub.load": set(), "subprocess.run": set(),
    "subprocess.Popen": set(), "__import__": set(),
    # A copy of the library's own result or error, made and read in one line; and the jobs that an
    # engine sends to workers which it has started itself.
    "pickle.loads": {
        "testing/sampler_checks.py", "engines/outcomes.py", "engines/processes.py",
        "engines/cluster.py",
    },
    # Unpack without a bound: archives.py measures first.
    "np.load": {"models/small.py"},  # a shipped file
    "zipfile.ZipFile": {"archives.py", "discovery/structure/file.py"},
    "gzip.open": set(), "gzip.decompress": {"trace/examples/__init__.py"},  # shipped files only
    "zlib.decompress": set(), "tarfile.open": set(), "shutil.unpack_archive": set(),
    "np.fromfile": set(), "np.loadtxt": set(), "np.genfromtxt": set(),
    # Read without a bound: files.py has read_bytes and read_text. What is shipped, and what the
    # system says of itself, is short.
    "read_text": {"files.py", "cli/study.py", "study/config.py",
                  "trace/page.py", "report/page.py"},
    "read_bytes": {"trace/examples/__init__.py"},
    # Temporary files of one's own: whole_file cleans up.
    "tempfile.mkstemp": set(), "tempfile.mkdtemp": set(), "tempfile.NamedTemporaryFile": set(),
    "os.replace": {"files.py"}, "os.rename": set(),
}  # fmt: skip
# Bounded functions of files.py, not the methods of paths.
BOUNDED = {"read_text", "read_bytes"}
# What makes files whole, and the log that grows by records with a checksum each.
MAY_WRITE = {"files.py", "oracles/reply_file.py"}
# The one place where a user may say that code in a model's folder is to be trusted.
MAY_TRUST = {"models/transformers.py"}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Every module of the source, parsed."""
    return {
        file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(SOURCE.rglob("*.py"))
    }


def name_of(node: ast.expr) -> str:
    """Return a dotted name, such as ``os.replace``; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}".lstrip(".")
    return f"().{node.func.attr}" if isinstance(node, ast.Call) and isinstance(
        node.func, ast.Attribute) else "()"  # fmt: skip


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield name_of(node.func), node


def offences(file: str, tree: ast.AST) -> list[str]:
    """List the forbidden calls of a module."""
    found = []
    for name, call in calls(tree):
        last = name.rpartition(".")[2]
        # A bare function of this name is the bounded one; a method is the unbounded.
        if name in BOUNDED:
            continue
        for key in {name, last if last in BOUNDED else name} & FORBIDDEN.keys():
            if file not in FORBIDDEN[key]:
                found.append(f"{file}:{call.lineno} calls {name}")
        values = {word.arg: word.value for word in call.keywords}
        if (
            last == "load"
            and name.startswith("torch")
            and not _is(values.get("weights_only"), True)
        ):
            found.append(f"{file}:{call.lineno} loads without weights_only=True")
        if "allow_pickle" in values and not _is(values["allow_pickle"], False):
            found.append(f"{file}:{call.lineno} allows pickles")
        if "trust_remote_code" in values and file not in MAY_TRUST:
            found.append(f"{file}:{call.lineno} may run a model's code")
        if last in ("savez", "savez_compressed", "save", "read_array") and name.startswith("np."):
            if not _is(values.get("allow_pickle"), False):
                found.append(f"{file}:{call.lineno} must say allow_pickle=False")
        if last in ("run", "Popen", "call") and _is(values.get("shell"), True):
            found.append(f"{file}:{call.lineno} starts a shell")
    return found


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def writes(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that put content under a name."""
    for name, call in calls(tree):
        last = name.rpartition(".")[2]
        mode = next((a.value for a in call.args if isinstance(a, ast.Constant)), "")
        is_open = last == "open" and isinstance(mode, str) and set(mode) & set("wax+")
        is_method = isinstance(call.func, ast.Attribute)
        if (is_method and last in ("write_text", "write_bytes", "savefig")) or is_open:
            yield call


def target_of(call: ast.Call) -> str:
    """Return what a call writes to."""
    func = call.func
    assert isinstance(func, (ast.Attribute, ast.Name))
    is_figure = isinstance(func, ast.Attribute) and func.attr == "savefig"
    if isinstance(func, ast.Name) or is_figure:
        return ast.unparse(call.args[0])
    return ast.unparse(func.value)


def test_nothing_that_is_read_is_run_and_all_of_it_is_bounded(trees):
    assert [found for file, tree in trees.items() for found in offences(file, tree)] == []


def test_what_is_written_goes_to_a_partial_file_first(trees):
    for file, tree in trees.items():
        for call in writes(tree) if file not in MAY_WRITE else ():
            said = f"{file}:{call.lineno} writes without whole_file"
            assert target_of(call) in ("partial", "output"), said


def test_no_remote_code_is_trusted_by_default(trees):
    (file,) = MAY_TRUST
    for node in ast.walk(trees[file]):
        if isinstance(node, ast.FunctionDef):
            names = [word.arg for word in node.args.kwonlyargs]
            for name, default in zip(names, node.args.kw_defaults, strict=True):
                assert name != "trust_remote_code" or _is(default, False)


@pytest.mark.parametrize(
    "text",
    [
        "eval(x)", "np.load(f)", "np.load(f, allow_pickle=True)", "torch.load(f)",
        "torch.load(f, weights_only=False)", "pickle.loads(b)", "Path(f).read_text()",
        "f.read_bytes()", "zipfile.ZipFile(f)", "m.from_pretrained(p, trust_remote_code=True)",
        "np.savez(f, a=1)", "subprocess.run(c, shell=True)", "os.replace(a, b)",
    ],
)  # fmt: skip
def test_each_offence_is_seen(text):
    assert offences("new.py", ast.parse(text))


def test_what_is_harmless_passes():
    text = "read_text(f); torch.load(f, weights_only=True); network.eval(); json.loads(s)"
    assert offences("new.py", ast.parse(text)) == []
    (call,) = writes(ast.parse("Path(f).write_text(s)"))
    assert target_of(call) == "Path(f)"


def test_every_permission_is_needed(trees):
    for name, files in FORBIDDEN.items():
        for file in files:
            called = {full for full, _ in calls(trees[file])}
            short = {full.rpartition(".")[2] for full in called}
            assert name in called | (short if name in BOUNDED else set()), (name, file)
