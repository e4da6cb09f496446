"""Every other way to run a sampler: what it drew, what it was charged, what reached the model.

``WAYS`` names them. Each is a function of a folder for files that returns its outcomes by run, as
plain values: digests of tokens and rounds, stops, ledgers, and where the model is a plain function
how often it was called, with how many states, and a digest of these whatever their order. Of
floating-point numbers only those of exact laws are kept, to six places.
"""

import hashlib
from dataclasses import astuple
from functools import cache

import numpy as np

import counterprobe as cp
from counterprobe.models import Backbone, Letters, SequenceModel
from counterprobe.samplers import SAMPLERS
from counterprobe.samplers.registry import build_sampler
from recorded_calls import draw, draw_by, fill_in, find, sharded

LENGTH, VOCAB = 12, 4
# They have to be told about a law, and a model has none.
TOLD = {
    "centroid-layers",
    "chen-cong-li",
    "information-curve",
    "li-cai",
    "packed-theory",
    "planned",
}
MODEL_RULES = [name for name in SAMPLERS if name not in TOLD]
# Of each kind of rule one: fixed batches, rights of every sort, probes beside commits, a screen.
SOME_RULES = [
    "sequential",
    "random-balanced",
    "threshold",
    "maskgit",
    "punt",
    "remdm",
    "autospeculation",
    "compressed",
    "lookum",
    "dawn",
    "packed",
]


class Interrupted(BaseException):
    """Stands for whatever ends a process; nothing repeats it."""


class Network:
    """Log-linear rows: each revealed token tilts every other position. No law has these rows.

    Parameters
    ----------
    length, vocab_size : int
    every : int, optional
        Calls whose number it divides fail once.
    lives : int, optional
        Calls after which the process dies.
    """

    def __init__(self, length=LENGTH, vocab_size=VOCAB, *, every=None, lives=None):
        rng = np.random.default_rng(5)
        self.field = 2 * rng.normal(size=(length, vocab_size))
        self.tilt = rng.normal(size=(length, vocab_size, length, vocab_size)) / 2
        self.every, self.lives = every, lives
        self.calls = self.failed = 0
        self.asked = []

    def __call__(self, states):
        if self.lives is not None and self.calls == self.lives:
            raise Interrupted
        self.calls += 1
        if self.every is not None and (self.calls + self.failed) % self.every == 0:
            self.calls -= 1
            self.failed += 1
            raise ConnectionError("no reply")
        self.asked += [state.astype("<i8").tobytes() for state in states]
        logits = np.tile(self.field, (len(states), 1, 1))
        # Position by position: a row does not depend on what is asked beside it, to the last bit.
        for position, tilt in enumerate(self.tilt):
            token = states[:, position]
            logits += np.where((token >= 0)[:, None, None], tilt[np.maximum(token, 0)], 0.0)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    @property
    def reached(self):
        """How many calls and states arrived, and which states."""
        return {
            "calls": self.calls,
            "states": len(self.asked),
            "asked": digest_of(b"".join(sorted(self.asked))),
            **({"failed": self.failed} if self.failed else {}),
        }


def oracle_of(network):
    """Make an oracle of a plain function."""
    return cp.CallableOracle(network, LENGTH, VOCAB, name="network")


@cache
def path():
    """Return a law with sessions and classed rows."""
    return cp.families.path(24, target_seed=0)


def rule_for_path(name):
    """Return a sampler that knows what it has to know of the law."""
    return build_sampler(name, {}).informed_by(path())


# ----- What is kept -------------------------------------------------------------------------


def digest_of(content):
    """Return a short digest."""
    return hashlib.sha256(content).hexdigest()[:12]


def digest_of_array(array):
    """Return a short digest of whole numbers."""
    return digest_of(np.ascontiguousarray(array).astype("<i8").tobytes())


def outcome(batch, **beside):
    """Return what must not change of a batch."""
    stops = sorted({str(result.stop) for result in batch.results})
    kept = {
        "tokens": digest_of_array(batch.sequences),
        "rounds": digest_of_array([result.round_of_position for result in batch.results]),
        "stop": ", ".join(stops),
        "whole": astuple(batch.ledger),
        "each": [ledger.evaluations for ledger in batch.ledgers],
        "ledgers": digest_of_array([astuple(ledger) for ledger in batch.ledgers]),
    }
    undone = [result.undone for result in batch.results]
    return kept | ({"undone": undone} if any(undone) else {}) | beside


def structure_outcome(structure, **beside):
    """Return what must not change of a structure."""
    edges = np.sort(np.sort(structure.edges, axis=1), axis=0)
    return {"edges": digest_of_array(edges), "whole": astuple(structure.ledger)} | beside


# ----- Side by side -------------------------------------------------------------------------


def contexts(length, vocab_size, count, *, alike):
    """Return contexts, of the same positions or each of its own."""
    rng = np.random.default_rng(3)
    given = rng.integers(0, vocab_size, (count, length))
    shown = rng.random((count, length)) < 0.3
    return np.where(shown[:1] if alike else shown, given, cp.MASK)


SIDE_BY_SIDE = {
    "alone": {"count": 1},
    "shared": {"count": 3},
    "few at once, fresh": {"count": 3, "at_once": 2, "orders": "fresh"},
    "in groups": {"count": 4, "orders": 2, "at_once": 3},
    "with a budget": {"count": 3, "max_evaluations": 7},
}


def side_by_side(options, rules=None):
    """Return a way that runs every sampler, or these, of a law and of a network."""

    def runs(folder):
        found = {}
        for name in rules or SAMPLERS:
            batch = draw(path().oracle(), rule_for_path(name), seed=1, **options)
            found[f"path {name}"] = outcome(batch)
        for name in rules or MODEL_RULES:
            network = Network()
            batch = draw(oracle_of(network), name, seed=2, **options)
            found[f"network {name}"] = outcome(batch, **network.reached)
        return found

    return runs


def in_contexts(folder):
    """Run with context: of each sequence its own, of all the same positions, of all the same."""
    found = {}
    for label, alike in (("own", False), ("alike", True)):
        of_path = contexts(path().length, path().vocab_size, 3, alike=alike)
        of_network = contexts(LENGTH, VOCAB, 3, alike=alike)
        for name in SOME_RULES:
            rule = rule_for_path(name)
            batch = draw(path().oracle(), rule, 3, seed=4, given=of_path)
            found[f"path {label} {name}"] = outcome(batch)
            network = Network()
            batch = draw(oracle_of(network), name, 3, seed=4, given=of_network)
            found[f"network {label} {name}"] = outcome(batch, **network.reached)
    return found


def scored(folder):
    """Keep how probable tokens were in the rows they were drawn from."""
    found = {}
    for name in SOME_RULES:
        rule = rule_for_path(name)
        batch = draw(path().oracle(), rule, 2, seed=5, log_probs=True)
        scores = [f"{score:.6f}" for score in batch.log_probs]
        found[f"path {name}"] = outcome(batch, scores=scores)
    return found


def steps_to(hear):
    """Listen to steps alone."""
    return cp.run.Listener(hear, cp.run.Step)


def told_of_steps(folder):
    """Hear of every commit round."""
    found = {}
    for name in SOME_RULES:
        steps = []
        network = Network()
        batch = draw(oracle_of(network), name, 3, seed=6, on_event=steps_to(steps.append))
        told = sorted((step.round, *step.sequences.tolist()) for step in steps)
        left = sum(int((step.states == cp.MASK).sum()) for step in steps)
        found[name] = outcome(batch, steps=len(steps), told=digest_of(repr((told, left)).encode()))
    return found


# ----- Wrapped ------------------------------------------------------------------------------

PLAIN = {"count": 3, "seed": 2, "at_once": 2}


def plain(folder):
    """Run without a wrapper: what the wrapped ways are compared with."""
    found = {}
    for name in MODEL_RULES:
        network = Network()
        found[name] = outcome(draw(oracle_of(network), name, **PLAIN), **network.reached)
    return found


def retried(folder):
    """Repeat calls: every third fails."""
    found = {}
    for name in MODEL_RULES:
        network = Network(every=3)
        batch = draw(oracle_of(network), name, attempts=2, **PLAIN)
        found[name] = outcome(batch, **network.reached)
    return found


def resumed(folder):
    """Keep replies, die half way, and go on: only the rest is asked, and a few states again."""
    found = {}
    for name in MODEL_RULES:
        log = folder / f"{name}.log"
        whole = Network()  # with a cache: no state is asked for twice
        draw(oracle_of(whole), name, log=folder / f"{name} whole.log", **PLAIN)
        first = Network(lives=whole.calls // 2)
        try:
            draw(oracle_of(first), name, log=log, **PLAIN)
            raise AssertionError("it should have died")
        except Interrupted:
            pass
        second, third = Network(), Network()
        batch = draw(oracle_of(second), name, log=log, **PLAIN)
        found[name] = outcome(batch, before=len(first.asked), after=len(second.asked))
        again = draw(oracle_of(third), name, log=log, **PLAIN)
        assert np.array_equal(again.sequences, batch.sequences)
        found[name]["once done"] = len(third.asked)
    return found


def resumed_sessions(folder):
    """Do the same with an oracle that keeps work between commits; the run is what dies."""
    found = {}
    for name in SOME_RULES:
        rule = rule_for_path(name)
        steps = []
        draw(path().oracle(), rule, on_event=steps_to(steps.append), **PLAIN)
        log = folder / f"{name}.log"
        left = [len(steps) // 2]

        def die(step, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Interrupted

        try:
            draw(path().oracle(), rule, on_event=steps_to(die), log=log, **PLAIN)
            raise AssertionError("it should have died")
        except Interrupted:
            pass
        found[name] = outcome(draw(path().oracle(), rule, log=log, **PLAIN))
    return found


def rechecked(folder):
    """Submit half of the states a second time, with and without a budget for it."""
    found = {}
    for name in SOME_RULES:
        for label, budget in (("", None), (" with a budget", 9)):
            network = Network()
            batch = draw(oracle_of(network), name, recheck=0.5, max_evaluations=budget, **PLAIN)
            found[f"network {name}{label}"] = outcome(batch, **network.reached)
        rule = rule_for_path(name)
        found[f"path {name}"] = outcome(draw(path().oracle(), rule, recheck=0.5, **PLAIN))
    return found


def all_wrappers(folder):
    """Log, retry and recheck at once, and go on after a death."""
    found = {}
    for name in SOME_RULES:
        log = folder / f"{name}.log"
        asked = []
        for lives in (3, None):
            network = Network(every=4, lives=lives)
            try:
                batch = draw(oracle_of(network), name, log=log, attempts=3, recheck=0.4, **PLAIN)
            except Interrupted:
                assert lives is not None
            asked.append([len(network.asked), network.failed])
        found[name] = outcome(batch, lives=asked)
    return found


def in_shards(folder):
    """Cut evaluations into micro-batches."""
    found = {}
    for name in SOME_RULES:
        network = Network()
        with sharded(oracle_of(network), piece=3) as oracle:
            found[f"network {name}"] = outcome(draw(oracle, name, **PLAIN), **network.reached)
        with sharded(path().oracle(), piece=5) as oracle:
            found[f"path {name}"] = outcome(draw(oracle, rule_for_path(name), **PLAIN))
    return found


def in_small_calls(folder):
    """Hand a function few states at once."""
    found = {}
    for name in SOME_RULES:
        network = Network()
        oracle = cp.CallableOracle(network, LENGTH, VOCAB, batch_size=2, row_error=1e-6)
        found[name] = outcome(draw(oracle, name, **PLAIN), **network.reached)
    return found


def noisy(folder):
    """Err by a radius, in every direction."""
    found = {}
    for direction in ("random", "hide", "fake"):
        for name in SOME_RULES:
            exact = path().oracle()
            oracle = cp.FrozenNoise(exact, radius=1e-4, direction=direction, seed=7)
            batch = draw(oracle, rule_for_path(name), 2, seed=8)
            found[f"path {direction} {name}"] = outcome(batch)
        network = Network()
        oracle = cp.FrozenNoise(oracle_of(network), radius=1e-3, direction=direction, metric="kl")
        batch = draw(oracle, "threshold", 2, seed=8)
        found[f"network {direction} threshold"] = outcome(batch, **network.reached)
    return found


# ----- Structures ---------------------------------------------------------------------------


def exact_structures(folder):
    """Find an exact structure, in every way, and draw by it."""
    oracle = path().oracle()
    structure = find(oracle, 1, mode="exact")
    found = {"found": structure_outcome(structure)}
    for count in (1, 5):
        found[f"drawn {count}"] = outcome(draw_by(structure, oracle, count, 2))
    structure.save(folder / "structure.npz")
    loaded = cp.Structure.load(folder / "structure.npz")
    found["loaded"] = outcome(draw_by(loaded, oracle, 3, 3))
    given = contexts(path().length, path().vocab_size, 1, alike=True)[0]
    within = find(oracle, 1, mode="exact", given=given)
    found["within a context"] = structure_outcome(within)
    found["drawn within it"] = outcome(draw_by(within, oracle, 4, 4))
    found["rechecked"] = structure_outcome(find(oracle, 1, mode="exact", recheck=0.1))
    for life in ("logged", "read again"):
        logged = find(oracle, 1, mode="exact", log=folder / "found.log")
        found[life] = structure_outcome(logged)
    with sharded(oracle, piece=7) as shards:
        found["in shards"] = structure_outcome(find(shards, 1, mode="exact"))
        found["drawn in shards"] = outcome(draw_by(structure, shards, 5, 2))
    return found


def soft_structures(folder):
    """Find a soft structure, in every way, and draw by it."""
    network = Network()
    oracle = oracle_of(network)
    structure = find(oracle, 1, mode="soft", probes=64)
    found = {"found": structure_outcome(structure, **network.reached)}
    for batches in (3, 6):
        network = Network()
        batch = draw_by(structure, oracle_of(network), 5, 2, batches=batches)
        found[f"drawn in {batches}"] = outcome(batch, **network.reached)
    found["for a price"] = outcome(draw_by(structure, oracle_of(Network()), 5, 2, target_kl=1.0))
    network = Network()
    found["auto"] = structure_outcome(find(oracle_of(network), 3), **network.reached)
    network = Network(every=5)
    again = find(oracle_of(network), 1, mode="soft", probes=64, attempts=2)
    found["retried"] = structure_outcome(again, **network.reached)
    network = Network()
    again = find(oracle_of(network), 1, mode="soft", probes=64, recheck=0.2)
    found["rechecked"] = structure_outcome(again, **network.reached)
    log = folder / "soft.log"
    try:
        find(oracle_of(Network(lives=1)), 1, mode="soft", probes=64, log=log)
        raise AssertionError("it should have died")
    except Interrupted:
        pass
    network = Network()
    again = find(oracle_of(network), 1, mode="soft", probes=64, log=log)
    found["resumed"] = structure_outcome(again, **network.reached)
    return found


# ----- Texts --------------------------------------------------------------------------------

LETTERS = Letters("ACDE", (0, 1, 2, 3), VOCAB)
TEXT = "XXAXXXCXXXDX"


def spelled(network):
    """Make a model with letters of a network."""
    import torch

    def logits(ids):
        states = np.where(ids.numpy() == VOCAB, cp.MASK, ids.numpy())
        return torch.from_numpy(np.log(network(states)))

    return SequenceModel("letters", logits, LETTERS, LENGTH)


def filled_in(folder):
    """Fill in a text by several rules, scored, with allowed letters, retried and resumed."""
    found = {}

    def keep(label, network, batch):
        measured = {"measuring": astuple(batch.measuring)} if batch.measuring.evaluations else {}
        texts = digest_of("\n".join(batch.texts).encode())
        found[label] = outcome(batch, texts=texts, **measured, **network.reached)

    def filled(label, network=None, **options):
        network = network or Network()
        options = {"count": 3, "seed": 1, "oracle_options": {"row_error": 1e-9}} | options
        keep(label, network, fill_in(spelled(network), TEXT, **options))

    for name in SOME_RULES:
        filled(name, sampler=name)
    filled("by default, measured", oracle_options=None, sampler="entropy-bounded")
    filled("auto, measured", oracle_options=None)
    filled("sequential tempered", sampler="sequential", temperature=0.5)
    filled("sequential scored", sampler="sequential", likelihood_orders=2)
    filled("random-balanced in groups", sampler="random-balanced", batches=3, orders=2, count=5)
    filled("threshold allowed", sampler="threshold", allowed={0: "AC", 4: "D"})
    filled("threshold with a budget", sampler="threshold", max_evaluations=2)
    filled("threshold retried", Network(every=4), sampler="threshold", attempts=2)
    filled("threshold rechecked", sampler="threshold", recheck=0.5)
    model = spelled(Network())
    template = model.template(TEXT)
    structure = find(model.oracle(template), 1, mode="soft", probes=64, given=template.given)
    filled("by a structure", structure=structure, count=5, batches=3)
    for name in ("threshold", "random-balanced", "sequential"):
        options = {"sampler": name, "count": 3, "seed": 1, "likelihood_orders": 1}
        options["oracle_options"] = {"row_error": 1e-9}
        whole = Network()
        fill_in(spelled(whole), TEXT, **options)
        log = folder / f"{name}.log"
        try:
            fill_in(spelled(Network(lives=whole.calls // 2)), TEXT, log=log, **options)
            raise AssertionError("it should have died")
        except Interrupted:
            pass
        network = Network()
        keep(f"{name} resumed", network, fill_in(spelled(network), TEXT, log=log, **options))
    return found


def attended(folder):
    """Ask for attention beside rows: of a network that has it, plain, retried and resumed."""
    import torch

    def oracle_with_attention(network):
        reach = np.abs(network.tilt).mean(axis=(1, 3))
        weights = torch.from_numpy(reach / reach.sum(axis=1, keepdims=True))

        def model(ids, output_attentions=False):
            states = np.where(ids.numpy() == VOCAB, cp.MASK, ids.numpy())
            found = {"logits": torch.from_numpy(np.log(network(states)))}
            if output_attentions:
                network.attended += len(ids)
                found["attentions"] = [weights.expand(len(ids), 1, LENGTH, LENGTH)] * 2
            return found

        network.attended = 0
        return cp.models.TorchOracle(
            model, length=LENGTH, mask_id=VOCAB, attention=True, row_error=1e-9, name="attentive"
        )

    found = {}
    rules = {
        "dawn": ("dawn", {"low_threshold": 0.3, "high_threshold": 0.8, "induced_threshold": 0.4}),
        "dapd": ("dapd", {"edge_threshold": 0.08}),
        "threshold": ("threshold", {}),
    }
    for label, (name, settings) in rules.items():
        options = PLAIN | settings
        whole = Network()
        batch = draw(oracle_with_attention(whole), name, **options)
        found[label] = outcome(batch, attended=whole.attended, **whole.reached)
        network = Network(every=3)
        batch = draw(oracle_with_attention(network), name, attempts=2, **options)
        found[f"{label} retried"] = outcome(batch, attended=network.attended, **network.reached)
        log = folder / f"{label}.log"
        try:
            first = oracle_with_attention(Network(lives=whole.calls // 2))
            draw(first, name, log=log, **options)
            raise AssertionError("it should have died")
        except Interrupted:
            pass
        network = Network()
        batch = draw(oracle_with_attention(network), name, log=log, **options)
        found[f"{label} resumed"] = outcome(batch, attended=network.attended, **network.reached)
    return found


def completed(folder):
    """Rank the likeliest completions of a text."""
    found = {}
    for label, options in {"beam": {"beam": 8}, "all": {"beam": 10**6, "top_k": 3}}.items():
        network = Network()
        text = "DCAXXXCADADX" if label == "all" else TEXT
        best = cp.fill_mask(spelled(network), text, **options)
        found[label] = {
            "texts": [one.text for one in best],
            "independent": [one.text for one in best.independent],
            "order": best.order,
            "exhaustive": best.is_exhaustive,
            "whole": astuple(best.ledger),
            **network.reached,
        }
    return found


# ----- Commit order -------------------------------------------------------------------------

RESIDUES = 14


@cache
def folding():
    """Return ProteinMPNN on a piece of ubiquitin."""
    from counterprobe.models.proteins.proteinmpnn import load_proteinmpnn

    piece = Backbone.shipped("1ubi").part(range(RESIDUES), "a piece of 1ubi")
    return load_proteinmpnn(piece, device="cpu")


def in_commit_order(folder):
    """Commit on a backbone, each residue decoded once: alone, together, side by side, resumed."""
    rules = {
        "sequential": ("sequential", {}),
        "sequential random": ("sequential", {"order": "random"}),
        "random-balanced": ("random-balanced", {"batches": 4}),
        "threshold": ("threshold", {"threshold": 0.3}),
        "entropy-bounded": ("entropy-bounded", {"gamma": 3.0}),
        "remdm": ("remdm", {"steps": 8}),
    }
    options = {
        "alone": {"count": 1},
        "many": {"count": 4},
        "few at once, fresh": {"count": 4, "orders": "fresh", "at_once": 3},
        "own contexts": {"count": 3, "given": contexts(RESIDUES, 20, 3, alike=False)},
        "a context": {"count": 3, "given": contexts(RESIDUES, 20, 1, alike=True)[0]},
    }
    found = {}
    for label, (name, settings) in rules.items():
        for way, asked in options.items():
            oracle = folding().oracle(order="commit", row_error=1e-5)
            try:
                batch = draw(oracle, name, seed=3, **asked, **settings)
            except cp.OracleError as refusal:
                found[f"{label} {way}"] = {"refused": "commits" in str(refusal)}
                continue
            found[f"{label} {way}"] = outcome(batch, evaluated=oracle.num_evaluated)
    for label in ("sequential random", "random-balanced", "threshold"):
        name, settings = rules[label]
        for count in (1, 4):
            log = folder / f"{label} {count}.log"
            oracle = folding().oracle(order="commit", row_error=1e-5)
            left = [2 * (count if label == "threshold" else 1)]

            def die(step, left=left):
                left[0] -= 1
                if left[0] < 0:
                    raise Interrupted

            try:
                draw(oracle, name, count, seed=3, log=log, on_event=steps_to(die), **settings)
                raise AssertionError("it should have died")
            except Interrupted:
                pass
            before = oracle.num_evaluated
            oracle = folding().oracle(order="commit", row_error=1e-5)
            batch = draw(oracle, name, count, seed=3, log=log, **settings)
            lives = [before, oracle.num_evaluated]
            found[f"{label} resumed {count}"] = outcome(batch, evaluated=lives)
    return found


def by_index(folder):
    """Commit on a backbone with the rows of the state alone, and fill in a sequence."""
    found = {}
    for name in ("sequential", "threshold", "punt"):
        batch = draw(folding().oracle(row_error=1e-5), name, 3, seed=3)
        found[name] = outcome(batch)
    text = "MQXXXXKTLTXXXX"
    for order in ("index", "commit"):
        batch = fill_in(
            folding(),
            text,
            sampler="random-balanced",
            batches=3,
            count=4,
            likelihood_orders=1,
            oracle_options={"order": order, "row_error": 1e-5},
        )
        texts = digest_of("\n".join(batch.texts).encode())
        measuring = astuple(batch.measuring)
        found[f"filled in by {order}"] = outcome(batch, texts=texts, measuring=measuring)
    return found


WAYS = {
    **{f"side by side, {label}": side_by_side(options) for label, options in SIDE_BY_SIDE.items()},
    "tempered": side_by_side({"count": 2, "temperature": 0.6}, SOME_RULES),
    "greedy": side_by_side({"count": 2, "temperature": 0.0}, SOME_RULES),
    "in contexts": in_contexts,
    "scored": scored,
    "told of steps": told_of_steps,
    "plain": plain,
    "retried": retried,
    "resumed": resumed,
    "resumed with sessions": resumed_sessions,
    "rechecked": rechecked,
    "all wrappers": all_wrappers,
    "in shards": in_shards,
    "in small calls": in_small_calls,
    "noisy": noisy,
    "exact structures": exact_structures,
    "soft structures": soft_structures,
    "filled in": filled_in,
    "attended": attended,
    "completed": completed,
    "in commit order": in_commit_order,
    "by index": by_index,
}
