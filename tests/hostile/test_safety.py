"""The source never runs what it reads, never reads without a bound, and writes in one place."""

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
    # A copy of the library's own result or error, made and read in one line; and what goes to the
    # workers of an executor and comes from them.
    "pickle.loads": {"testing/sampler_checks.py", "executors.py", "oracles/sharding.py"},
    # Unpack without a bound: archives.py measures first.
    "np.load": {"models/small.py"},  # a shipped file
    "zipfile.ZipFile": {"archives.py"},
    "gzip.open": set(), "gzip.decompress": {"trace/examples/__init__.py"},  # shipped files only
    "zlib.decompress": set(), "tarfile.open": set(), "shutil.unpack_archive": set(),
    "np.fromfile": set(), "np.loadtxt": set(), "np.genfromtxt": set(),
    # Read without a bound: files.py has read_bytes and read_text. What is shipped, and what the
    # system says of itself, is short.
    "read_text": {"cli/study.py", "study/config.py", "trace/page.py", "report/page.py"},
    "read_bytes": {"trace/examples/__init__.py"},
}  # fmt: skip
# Bounded functions of files.py, not the methods of paths.
BOUNDED = {"read_text", "read_bytes"}
# What opens, makes or renames files, by whole name or by the last one whatever it is called on.
WRITERS = frozenset(
    """
    os.open os.creat os.write os.pwrite os.writev os.truncate os.ftruncate os.rename os.renames
    os.replace os.link os.symlink os.mkfifo os.mknod os.sendfile os.copy_file_range
    write_text write_bytes touch rename symlink_to hardlink_to tofile savetxt memmap open_memmap
    np.save torch.save save_npz savemat save_file save_pretrained to_csv to_parquet to_json
    FileHandler RotatingFileHandler sqlite3.connect shelve.open dbm.open
    """.split()
)
# What also writes to a stream, which is allowed where it is one of whole_file or of memory.
TO_STREAMS = {"savez", "savez_compressed", "savefig", "write_table", "dump", "print_figure"}
STREAMS = {"whole_file", "io.BytesIO", "io.StringIO"}
# Where the mode of what is opened stands among the arguments of a function; methods have it first.
OPENERS = {"open": 1, "io.open": 1, "os.fdopen": 1, "codecs.open": 1, "io.FileIO": 1,
           "zipfile.ZipFile": 1, "bz2.open": 1, "lzma.open": 1}  # fmt: skip
# files.py opens everything, with these two exceptions: SQLite takes a path, has locks and a
# journal of its own and follows no link with them; and what is sent to the null device is lost.
# A pickler writes into memory.
MAY_WRITE = {
    "study/store.py": {"sqlite3.connect"},
    "oracles/cache.py": {"sqlite3.connect"},
    "cli/output.py": {"os.open"},
    "oracles/sharding.py": {"().dump"},
}
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


def writes(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls that open a file for writing, make one or rename one."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {id(call): own for own in functions for _, call in calls(own)}
    for name, call in calls(tree):
        last = name.rpartition(".")[2]
        if {name, last} & WRITERS or name.partition(".")[0] in ("shutil", "tempfile"):
            yield name, call
        elif last in TO_STREAMS:
            known = streams(inside[id(call)])
            if not any(isinstance(one, ast.Name) and one.id in known for one in call.args):
                yield name, call
        elif _opens_for_writing(name, last, call) or _renames(last, call):
            yield name, call


def streams(function: ast.AST) -> set[str]:
    """Names that a function binds to a stream of ``whole_file`` or of memory, and to no other."""
    bound: dict[str, set[bool]] = {}
    for node in ast.walk(function):
        made: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.With):
            made = [(item.optional_vars, item.context_expr) for item in node.items]
        elif isinstance(node, ast.Assign):
            made = [(target, node.value) for target in node.targets]
        for target, value in made:
            if isinstance(target, ast.Name):
                is_one = isinstance(value, ast.Call) and name_of(value.func) in STREAMS
                bound.setdefault(target.id, set()).add(is_one)
    return {name for name, are in bound.items() if are == {True}}


def _opens_for_writing(name: str, last: str, call: ast.Call) -> bool:
    if name not in OPENERS and last != "open":
        return False
    modes = [word.value for word in call.keywords if word.arg == "mode"]
    if name in OPENERS:
        modes += call.args[OPENERS[name] : OPENERS[name] + 1]
        return any(not _is_reading(mode) for mode in modes)
    # Other things than files have a method of this name; a mode is a text, or called one.
    modes += [one for one in call.args[:1] if _is_text(one) or "mode" in ast.unparse(one)]
    return any(not _is_reading(mode) for mode in modes)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_reading(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not set(str(node.value)) & set("wax+")


def _renames(last: str, call: ast.Call) -> bool:
    """Whether it is ``Path.replace``: that of texts has two arguments, the others keywords."""
    is_method = isinstance(call.func, ast.Attribute)
    return is_method and last == "replace" and len(call.args) == 1 and not call.keywords


def test_nothing_that_is_read_is_run_and_all_of_it_is_bounded(trees):
    assert [found for file, tree in trees.items() for found in offences(file, tree)] == []


def test_everything_that_is_written_is_opened_in_one_place(trees):
    for file, tree in trees.items():
        for name, call in writes(tree) if file != "files.py" else ():
            said = f"{file}:{call.lineno} writes by {name}; use whole_file or LockedFile"
            assert name in MAY_WRITE.get(file, ()), said
            assert name != "os.open" or ast.unparse(call.args[0]) == "os.devnull", said


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
        "np.savez(f, a=1)", "subprocess.run(c, shell=True)",
    ],
)  # fmt: skip
def test_each_offence_is_seen(text):
    assert offences("new.py", ast.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "open(f, 'w')", "open(f, 'ab')", "open(f, mode='x')", "open(f, 'r+')", "open(f, mode)",
        "io.open(f, 'w')", "Path(f).open('w')", "f.open(mode='a')", "f.open(mode)",
        "os.open(f, os.O_RDWR)", "os.fdopen(h, 'w')", "Path(f).write_text(s)", "f.write_bytes(b)",
        "f.touch()", "f.rename(g)", "Path(f).replace(g)", "f.symlink_to(g)", "os.replace(a, b)",
        "np.save(f, a)", "np.savez(f, a=a)", "np.savez_compressed(path, a=a)", "a.tofile(f)",
        "np.memmap(f)", "json.dump(x, open(f))", "figure.savefig(path)", "torch.save(m, f)",
        "parquet.write_table(t, path)", "frame.to_csv(f)", "sqlite3.connect(f)",
        "tempfile.NamedTemporaryFile()", "shutil.copy(a, b)", "zipfile.ZipFile(f, 'w')",
        "logging.FileHandler(f)", "with open(f) as stream:\n        np.savez(stream, a=a)",
    ],
)  # fmt: skip
def test_each_way_of_writing_is_seen(text):
    assert [*writes(ast.parse(f"def new(f, path, stream):\n    {text}"))]


def test_what_is_harmless_passes():
    text = "read_text(f); torch.load(f, weights_only=True); network.eval(); json.loads(s)"
    assert offences("new.py", ast.parse(text)) == []
    text = """def new():
        open(f); open(f, "rb"); f.open(); readings.open(states, other); text.replace("w", "a")
        replace(record, name=1); day.replace(hour=1); executor.open(device)
        with whole_file(f) as stream:
            stream.write(b"")
            np.savez_compressed(stream, a=a)
        buffer = io.BytesIO()
        figure.savefig(buffer)
    """
    assert [*writes(ast.parse(text))] == []


def test_every_permission_is_needed(trees):
    for name, files in FORBIDDEN.items():
        for file in files:
            called = {full for full, _ in calls(trees[file])}
            short = {full.rpartition(".")[2] for full in called}
            assert name in called | (short if name in BOUNDED else set()), (name, file)
    for file, allowed in MAY_WRITE.items():
        assert allowed == {name for name, _ in writes(trees[file])}, file
