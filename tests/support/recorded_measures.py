"""What is measured, stepped, traced or interrupted rather than just drawn: numbers and charges.

``MEASURES`` names the kinds. Each is a function of a folder for files that returns its outcomes by
run, as plain values. Floating-point numbers are kept whole: those of exact laws are compared to
rounding, those of networks in single precision (``SINGLE``) less closely.
"""

import json
from dataclasses import astuple
from functools import cache, partial
from types import SimpleNamespace

import numpy as np

import counterprobe as cp
from counterprobe.evaluation import (
    advise,
    draw_tree_law,
    estimate_dependence,
    exact_output_law,
    log_likelihoods,
    plan_kl,
    price_plans,
    pseudo_log_likelihoods,
    run_kl,
)
from counterprobe.oracles import Wrapper
from counterprobe.samplers import SAMPLERS
from counterprobe.samplers.registry import build_sampler
from counterprobe.study.work import do_work, reference_key, run_key, search_key
from counterprobe.trace import About, Recorder, load_trace
from drawing_itself import DrawsItself
from recorded_calls import draw, find
from recorded_ways import (
    LENGTH,
    MODEL_RULES,
    SOME_RULES,
    VOCAB,
    Network,
    contexts,
    digest_of,
    digest_of_array,
    folding,
    oracle_of,
    outcome,
    path,
    rule_for_path,
    spelled,
    structure_outcome,
)

# Kinds whose numbers come out of networks in single precision.
SINGLE = {"prices in commit order", "scores", "torch rows", "blocks of a server", "a pipeline"}


def numbers_of(array):
    """Return numbers as JSON has them, NaN and infinities by name."""
    flat = np.asarray(array, dtype=np.float64).ravel().tolist()
    return [x if np.isfinite(x) else str(x) for x in flat]


def weighed(array):
    """Return a few sums that determine many numbers but by accident."""
    flat = np.asarray(array, dtype=np.float64).ravel()
    weights = np.random.default_rng(11).random((2, flat.size))
    return numbers_of(weights @ np.where(np.isfinite(flat), flat, 0.0))


def scored_outcome(batch, **beside):
    """Return what must not change of a batch, and how probable its tokens were."""
    return outcome(batch, log_probs=numbers_of(batch.log_probs), **beside)


def refusal(call):
    """Return the outcome of a call, or the error by which it was refused."""
    try:
        return call()
    except (ValueError, cp.CounterprobeError) as said:
        return {"refused": type(said).__name__}


# ----- Prices -------------------------------------------------------------------------------


def price_outcome(kl, **beside):
    """Return what must not change of a price."""
    return {
        "value": numbers_of([kl.value, kl.standard_error, kl.most, *kl.interval]),
        "rounds": numbers_of(kl.per_round),
        "samples": weighed(kl.per_sample),
        "groups": digest_of_array(kl.group_of),
        "ledger": astuple(kl.ledger),
        **beside,
    }


def plans_of(residual):
    """Return three plans of some positions, one with a batch of one and one that ends early."""
    order = np.random.default_rng(4).permutation(residual)
    return [
        np.array_split(order, 3),
        [order[:1], order[1:6], order[6:]],
        np.array_split(np.sort(residual)[:-2], 2),
    ]


def price_ways(residual):
    """Return the calls of ``plan_kl`` by name."""
    one, *_ = several = plans_of(residual)
    return {
        "one plan": (one, {"samples": 5}),
        "several plans": (several, {"samples": 7, "seed": 3}),
        "joint": (several, {"samples": 4, "direction": "joint"}),
        "one term": (several, {"samples": 5, "terms": 1}),
        "two terms, few at once": (several, {"samples": 5, "terms": 2, "at_once": 3}),
        "few at once": (one, {"samples": 4, "at_once": 2}),
        "joint, few at once": (one, {"samples": 4, "direction": "joint", "at_once": 2}),
    }


PRICED_RUNS = {
    "random-balanced": ("random-balanced", {"batches": 3}),
    "random-balanced fresh": ("random-balanced", {"batches": 3, "orders": "fresh"}),
    "threshold": ("threshold", {"threshold": 0.3}),
    "sequential": ("sequential", {}),
    "maskgit": ("maskgit", {"steps": 3}),
    "punt": ("punt", {"epsilon": 0.05}),
    "lookum": ("lookum", {}),
}


def prices(folder):
    """Price plans and finished runs of a law and of a network."""
    found = {}
    sources = {"path": lambda: path().oracle(), "network": lambda: oracle_of(Network())}
    for source, oracle in sources.items():
        length = oracle().length
        given = contexts(length, oracle().vocab_size, 1, alike=True)[0]
        ways = {
            label: (plan, options) for label, (plan, options) in price_ways(range(length)).items()
        }
        free = np.flatnonzero(given == cp.MASK)
        ways["in a context"] = ([free[:3], free[3:]], {"samples": 4, "given": given})
        for label, (plan, options) in ways.items():
            found[f"{source}, {label}"] = price_outcome(plan_kl(oracle(), plan, **options))
        for label, (name, settings) in PRICED_RUNS.items():
            batch = draw(oracle(), name, 3, seed=6, **settings)
            for way, options in {"": {}, ", one term": {"terms": 1, "at_once": 4}}.items():
                found[f"{source}, run of {label}{way}"] = refusal(
                    lambda oracle=oracle, batch=batch, options=options: price_outcome(
                        run_kl(oracle(), batch, **options)
                    )
                )
        batch = draw(oracle(), "random-balanced", 3, seed=6, given=given, batches=3)
        found[f"{source}, run in a context"] = price_outcome(run_kl(oracle(), batch))
    network = Network()
    plan_kl(oracle_of(network), plans_of(range(LENGTH)), samples=3)
    found["asked for plans"] = {"states": len(network.asked), "asked": network.reached["asked"]}
    return found


@cache
def softly():
    """Return a soft structure of the network."""
    return find(oracle_of(Network()), 1, mode="soft", probes=64)


def table_outcome(table, **beside):
    """Return what must not change of a table of prices."""
    return {
        **{
            f"{price.way} {price.batches}": numbers_of(
                [price.evaluations, price.estimated, price.uncovered, price.measured.value]
            )
            for price in table.prices
        },
        "ledger": astuple(table.ledger),
        **beside,
    }


def advice(folder):
    """Compare ways to draw by their prices, and recommend one."""
    oracle = partial(oracle_of, Network())
    place = np.arange(LENGTH) % 5.0
    apart = np.abs(place[:, None] - place)
    table = price_plans(
        oracle(), softly(), (2, 5), samples=6, plans=3, terms=2, distances=apart, seed=2
    )
    found = {"prices": table_outcome(table)}
    for label, options in {
        "found": {"target_kl": 2.0},
        "tight": {"target_kl": 0.3, "counts": (2, 4, 8), "distances": apart},
        "few evaluations": {"target_kl": 2.0, "max_evaluations": 300},
    }.items():
        said = advise(oracle(), softly(), 500, samples=6, seed=3, **options)
        options = [[one.way, one.batches, one.evaluations, one.found_with] for one in said.options]
        found[label] = table_outcome(
            said.table,
            best=[said.best.way, said.best.batches],
            options=options,
            measuring=said.measuring,
            break_even=said.break_even,
            stopped=said.stopped,
        )
    return found


# ----- Commit order -------------------------------------------------------------------------

PARTLY = "XXIFXXXXXKXXXX"


def on_backbone(order="commit"):
    """Return an oracle of ProteinMPNN, and the context of a few residues that are given."""
    template = folding().template(PARTLY)
    return folding().oracle(template, order=order, row_error=1e-5), template.given


def prices_in_commit_order(folder):
    """Price plans and finished runs, and score sequences, where rows depend on ranks."""
    found = {}
    one, *_ = plans = plans_of(np.flatnonzero(on_backbone()[1] == cp.MASK))
    for label, (plan, options) in {
        "one plan": (one, {"samples": 4}),
        "several plans": (plans, {"samples": 5, "seed": 2}),
        "joint": (plans, {"samples": 3, "direction": "joint"}),
        "few at once": (plans, {"samples": 4, "at_once": 2}),
        "joint, few at once": (one, {"samples": 3, "direction": "joint", "at_once": 2}),
        "one term": (plans, {"samples": 4, "terms": 1}),
    }.items():
        oracle, given = on_backbone()
        found[label] = price_outcome(plan_kl(oracle, plan, given=given, **options))
    for label in ("random-balanced", "random-balanced fresh", "threshold", "sequential"):
        name, settings = PRICED_RUNS[label]
        oracle, given = on_backbone()
        batch = draw(oracle, name, 4, seed=6, given=given, **settings)
        found[f"run of {label}"] = price_outcome(run_kl(on_backbone()[0], batch, seed=1))
    for order in ("commit", "index"):
        oracle, given = on_backbone(order)
        scores = log_likelihoods(oracle, batch.sequences, given=given, orders=2, at_once=3)
        found[f"likelihoods by {order}"] = likelihood_outcome(scores)
    scores = pseudo_log_likelihoods(on_backbone()[0], batch.sequences, given=given)
    found["pseudo"] = likelihood_outcome(scores)
    return found


# ----- Likelihoods, scores, dependence ------------------------------------------------------


def likelihood_outcome(scored):
    """Return what must not change of log-likelihoods."""
    return {
        "values": numbers_of(scored.values),
        "tokens": scored.num_tokens.tolist(),
        "ledger": astuple(scored.ledger),
    }


def likelihoods(folder):
    """Score sequences by the chain rule and position by position."""
    found = {}
    for source, oracle in {"path": path().oracle(), "network": oracle_of(Network())}.items():
        sequences = np.array(draw(oracle, "sequential", 3, seed=9).sequences)
        unfinished = sequences.copy()
        unfinished[1, 4] = cp.MASK
        given = np.where(np.arange(oracle.length) % 3 == 0, sequences, cp.MASK)
        for label, (tokens, options) in {
            "alone": (sequences[0], {}),
            "orders": (sequences, {"orders": 3, "seed": 2, "at_once": 7}),
            "unfinished": (unfinished, {"orders": 2}),
            "in contexts": (sequences, {"given": given, "orders": 2}),
        }.items():
            scored = log_likelihoods(oracle, tokens, **options)
            found[f"{source}, {label}"] = likelihood_outcome(scored)
            options = {k: v for k, v in options.items() if k in ("given", "at_once")}
            scored = pseudo_log_likelihoods(oracle, tokens, **options)
            found[f"{source}, {label}, pseudo"] = likelihood_outcome(scored)
    return found


def scores(folder):
    """Score texts of a network with letters and of one on a backbone."""
    texts = {"one": "ACDEACDEACDE", "two": "EEEEAAAACCCC", "three": "CADECADECADE"}
    found = {}

    def keep(label, scored):
        found[label] = {
            "values": numbers_of(scored.values),
            "scored": scored.num_scored.tolist(),
            "method": scored.method,
            "ledger": astuple(scored.ledger),
        }

    keep("letters", cp.score(spelled(Network()), texts))
    keep("letters, chain rule", cp.score(spelled(Network()), texts, method="chain-rule", orders=2))
    folded = {"native": folding().backbone.sequence, "other": "AWAWAGGGKKKLLL"}
    for method in (None, "pseudo", "chain-rule"):
        for chosen in ({}, {"fixed": "A3,A5"}):
            scored = cp.score(folding(), folded, method=method, orders=2, template_options=chosen)
            keep(f"backbone, {method}, {len(chosen)} chosen", scored)
    return found


def dependence(folder):
    """Estimate how much positions depend on each other."""
    found = {}
    for source, (oracle, options) in {
        "network": (oracle_of(Network()), {"samples": 3}),
        "network, few at once": (oracle_of(Network()), {"samples": 2, "at_once": 5, "seed": 1}),
        "path": (path().oracle(), {"samples": 6, "known_total": 1.0}),
        "network in a context": (
            oracle_of(Network()),
            {"samples": 2, "given": contexts(LENGTH, VOCAB, 1, alike=True)[0]},
        ),
    }.items():
        profile = estimate_dependence(oracle, **options)
        kept = profile.as_dict()
        found[source] = {
            "totals": numbers_of([kept[name] for name in ("tc", "dtc", "effective_tc")]),
            "curve": numbers_of(profile.curve),
            "errors": weighed(profile.curve_se),
            "ledger": astuple(profile.ledger),
        }
    return found


# ----- Output laws --------------------------------------------------------------------------

LAWS = {
    "path": lambda: cp.families.path(4, 1),
    "table": lambda: cp.TableLaw(
        np.random.default_rng(3).dirichlet(np.full(16, 0.4)).reshape((2,) * 4)
    ),
}
REPLAYED = {
    "sequential": {},
    "sequential confidence": {"order": "confidence"},
    "random-balanced": {"batches": 2},
    "one-batch": {},
    "threshold": {"threshold": 0.6},
    "entropy-bounded": {"gamma": 0.5},
    "klass": {},
    "factor": {},
    "packed": {"shared_by": 1000, "num_colors": 2, "num_colorings": 4},
    "compressed": {},
    "dapd": {},
    "demask": {},
    "auto": {},
}
FOLLOWED = {
    "maskgit": {"steps": 2},
    "llada": {"steps": 2},
    "punt": {"epsilon": 0.05},
    "info-gain": {},
    "lookum": {},
    "threshold": {"confidence": "candidate", "threshold": 0.6},
    "random-balanced": {"batches": 2},
}


def output_laws(folder):
    """Compute exact output laws of rules that commit from rows, and of those that draw before."""
    found = {}
    for source, law in LAWS.items():
        for label, settings in REPLAYED.items():
            rule = build_sampler(label.split()[0], settings).informed_by(law())
            for noisy in (False, True):
                oracle = law().oracle()
                if noisy and source == "table":
                    oracle = cp.FrozenNoise(oracle, radius=0.02, direction="random", seed=2)
                elif noisy:
                    continue

                def replayed(rule=rule, law=law, oracle=oracle):
                    exact = exact_output_law(law(), rule, oracle=oracle, decision_seed=3)
                    if exact is None:
                        return {"infeasible": True}
                    return {
                        "distances": numbers_of(
                            [
                                exact.total_variation, exact.kl, exact.squared_hellinger,
                                exact.hybrid_hellinger, exact.total_correlation, exact.row_kl,
                            ]
                        ),
                        "laws": [*weighed(exact.output), *weighed(exact.hybrid)],
                        "midpoint": [*weighed(exact.midpoint), *weighed(exact.affinity)],
                        "safe": exact.is_safe,
                        "histories": exact.num_histories,
                        "replays": len(exact.diagnostics),
                    }  # fmt: skip

                found[f"{source}, {label}{', noisy' * noisy}"] = refusal(replayed)
    for label, settings in FOLLOWED.items():
        rule = build_sampler(label, settings)

        def followed(rule=rule):
            table = cp.TableLaw(np.random.default_rng(5).dirichlet(np.ones(8)).reshape((2,) * 3))
            output = draw_tree_law(table, rule, decision_seed=1)
            return {"infeasible": True} if output is None else {"law": numbers_of(output)}

        found[f"draw tree, {label}"] = refusal(followed)
    return found


# ----- Stepping -----------------------------------------------------------------------------


def stepped(folder):
    """Fill in a block from logits that are handed over, round by round."""
    import torch

    from counterprobe.integrations.blocks import DrawnIds, SteppedBlock, reads_rows_alone

    drawn = DrawnIds(VOCAB + 1, VOCAB)
    start = np.full(LENGTH, VOCAB)
    start[[2, 7]] = 1, 3
    found = {}
    for name in SAMPLERS:
        rule = build_sampler(name, {})
        if not reads_rows_alone(rule):
            continue
        for temperature in (1.0, 0.0, 0.7):

            def filled(rule=rule, temperature=temperature):
                network, ids, rounds, chances = Network(), start.copy(), [], []
                streams = cp.Streams(5, 6)
                block = SteppedBlock(
                    rule, ids, drawn, streams, sequence=2, temperature=temperature, name="pinned"
                )
                while not block.is_complete:
                    states = np.where(ids == VOCAB, cp.MASK, ids)[None].astype(np.int32)
                    logits = np.concatenate(
                        [np.log(network(states)[0]), np.zeros((LENGTH, 1))], axis=1
                    )
                    places, new, sure = block.step(torch.from_numpy(logits))
                    ids[places] = new
                    rounds.append(sorted(places.tolist()))
                    chances += sorted(sure.tolist())
                return {
                    "ids": ids.tolist(),
                    "rounds": digest_of(repr(rounds).encode()),
                    "chances": weighed(chances),
                    "ledger": astuple(block.ledger),
                    "states": len(network.asked),
                }

            found[f"{name}, {temperature}"] = refusal(filled)
    return found


BLOCK_RULES = {
    "entropy-bounded": {"gamma": 1.0},
    "maskgit": {"steps": 3},
    "spread": {"batches": 2},
    "threshold": {"threshold": 0.3},
    "sequential": {"order": "random"},
    "klass": {"confidence_threshold": 0.3},
}


def blocks_of_a_server(folder):
    """Let SGLang's loop, of a stand-in, call our algorithm on two blocks."""
    import torch

    from counterprobe.integrations import sglang
    from small_language import Counted, generating_bert

    class Base:
        def __init__(self, config):
            self.block_size, self.mask_id = config.block_size, config.mask_id

    model = generating_bert(seed=12)
    algorithm = sglang.algorithm(Base)
    found = {}
    for name, settings in BLOCK_RULES.items():
        told = {"sampler": name, "settings": settings, "never_drawn": [0, 1, 2, 3], "seed": 4}
        rule = algorithm(SimpleNamespace(algorithm_config=told, block_size=8, mask_id=4))
        ids = torch.tensor([2, 5, 6, 4, 4, 4, 4, 4, *[4] * 8])
        now = SimpleNamespace(batch_size=2, input_ids=ids)
        states, seen = [None, None], []
        with Counted(model) as counted, torch.no_grad():
            while not seen or not all(seen[-1]):
                logits = model(ids.view(2, 8)).logits.reshape(-1, 17)
                seen.append(rule.step(now, logits, states))
        ledgers = [astuple(block.ledger) for block in states]
        found[name] = {
            "ids": ids.tolist(), "done": seen, "ledgers": ledgers, "calls": counted.calls,
        }  # fmt: skip
    return found


def a_pipeline(folder):
    """Let a pipeline of diffusers call our scheduler."""
    import torch
    from diffusers import LLaDA2Pipeline

    from counterprobe.integrations.diffusers import UnmaskingScheduler
    from small_language import Counted, bert_tokenizer, generating_bert

    model = generating_bert(seed=9)
    found = {}
    for name, settings in BLOCK_RULES.items():
        scheduler = UnmaskingScheduler(name, settings, never_drawn=[0, 1, 2, 3])
        pipeline = LLaDA2Pipeline(model, scheduler, bert_tokenizer())
        pipeline.set_progress_bar_config(disable=True)
        with Counted(model) as counted:
            out = pipeline(
                input_ids=torch.tensor([[5, 6, 7]] * 2), gen_length=13, block_length=8,
                editing_threshold=None, mask_token_id=4, temperature=1.0,
                generator=torch.Generator().manual_seed(3),
            )  # fmt: skip
        found[name] = {
            "ids": out.sequences.tolist(),
            "ledgers": [[astuple(one) for one in block.ledgers] for block in scheduler.blocks],
            "evaluations": scheduler.evaluations,
            "calls": counted.calls,
        }
    return found


# ----- Rights, whole plans, torch ------------------------------------------------------------


def without_rights(folder):
    """Run without the right to choose after the reply, and without any right."""
    found = {}
    wanted = {"unselected": ~cp.Need.SELECT, "no right": cp.Need.NONE}
    for label, rights in wanted.items():
        for name in MODEL_RULES:
            for count in (1, 3) if label == "unselected" else (2,):

                def drawn(name=name, count=count, rights=rights):
                    network = Network()
                    batch = draw(oracle_of(network), name, count, seed=4, allowed=rights)
                    used = sorted({str(result.used) for result in batch.results})
                    states = {"states": len(network.asked), "asked": network.reached["asked"]}
                    return outcome(batch, used=used, **states)

                found[f"{label}, {name}, {count}"] = refusal(drawn)
    return found


def plans_drawn_whole(folder):
    """Let an oracle draw whole plans, and draw them round by round."""
    found = {}
    for label, options in {
        "one": {"count": 1, "rule": "random-balanced", "batches": 4},
        "several": {"count": 5, "rule": "random-balanced", "batches": 4},
        "groups": {"count": 5, "rule": "random-balanced", "batches": 4, "orders": 3},
        "fresh, few at once": {
            "count": 5, "rule": "random-balanced", "batches": 5, "orders": "fresh", "at_once": 2,
        },
        "cold": {"count": 3, "rule": "random-balanced", "batches": 4, "temperature": 0.5},
        "greedy": {"count": 3, "rule": "random-balanced", "batches": 4, "temperature": 0.0},
        "random order": {"count": 3, "rule": "sequential", "order": "random"},
        "spread": {"count": 3, "rule": "spread", "batches": 3},
        "one batch": {"count": 3, "rule": "one-batch"},
        "a later portion": {"count": 3, "rule": "random-balanced", "batches": 4, "first": 7},
        "a budget": {"count": 3, "rule": "random-balanced", "batches": 6, "max_evaluations": 2},
        "rows read": {"count": 3, "rule": "threshold"},
        "a context": {
            "count": 3, "rule": "random-balanced", "batches": 4,
            "given": contexts(24, path().vocab_size, 1, alike=True)[0],
        },
        "own contexts": {
            "count": 3, "rule": "random-balanced", "batches": 4,
            "given": contexts(24, path().vocab_size, 3, alike=False),
        },
    }.items():  # fmt: skip
        rule, count = options.pop("rule"), options.pop("count")
        for log_probs in (True, False):
            oracle = DrawsItself(path().oracle())  # asked itself: a wrapper might hide its draws
            told = options | {"seed": 7, "log_probs": log_probs, "progress": False}
            batch = cp.sample(oracle, rule, count, **told)
            by_rounds = cp.sample(path().oracle(), rule, count, **told)
            kept = scored_outcome if log_probs else outcome
            whole = kept(batch)
            assert whole["tokens"] == outcome(by_rounds)["tokens"], label
            assert whole["ledgers"] == outcome(by_rounds)["ledgers"], label
            whole["drawn"] = oracle.num_drawn
            found[label + ", scored" * log_probs] = whole
    return found


def torch_rows(folder):
    """Draw from rows that stay on a device: every rule, scored, and pruned to few tokens."""
    import torch

    found = {}
    for name in MODEL_RULES:
        network = Network()

        def logits(ids, network=network):
            states = np.where(ids.numpy() == VOCAB, cp.MASK, ids.numpy())
            return torch.from_numpy(np.log(network(states)).astype(np.float32))

        oracle = cp.models.TorchOracle(
            logits, length=LENGTH, mask_id=VOCAB, row_error=1e-5, name="on a device"
        )
        batch = draw(oracle, name, 3, seed=2, at_once=2, log_probs=True)
        found[name] = scored_outcome(batch, states=len(network.asked))
    return found


# ----- Traces -------------------------------------------------------------------------------


def trace_outcome(file):
    """Return a digest of a trace by kind of event, without version and timings."""
    document = load_trace(file).document()
    del document["header"]["library"]
    kinds = {"header": [document["header"]]}
    for event in document["events"]:
        event.pop("seconds", None)
        if "notes" in event:
            event["notes"] = [note.rstrip(".") for note in event["notes"]]
        kinds.setdefault(event["type"], []).append(event)
    order = [event["type"] for event in document["events"]]
    return {
        "order": digest_of(repr(order).encode()),
        **{kind: digest_of(json.dumps(events).encode()) for kind, events in kinds.items()},
    }


def traces(folder):
    """Follow every sampler, one sequence of several, and discoveries."""
    found = {}
    for name in SAMPLERS:
        for count, listen_to in ((1, 0), (3, 1)):
            if count > 1 and name not in SOME_RULES:
                continue
            file = folder / f"{name} {count}.json"
            about = About(family="path", true_edges=path().edges)
            with Recorder(file, about, sequence=listen_to) as recorder:
                draw(
                    path().oracle(), rule_for_path(name), count, seed=3,
                    on_event=recorder,
                )  # fmt: skip
            found[f"{name}, {count}"] = trace_outcome(file)
    for mode, oracle in {"exact": path().oracle(), "soft": oracle_of(Network())}.items():
        file = folder / f"{mode}.json"
        with Recorder(file) as recorder:
            find(
                oracle,
                1,
                mode=mode,
                on_event=recorder,
                **({"probes": 64} if mode == "soft" else {}),
            )
        found[f"discover, {mode}"] = trace_outcome(file)
    return found


# ----- Discovery ----------------------------------------------------------------------------


class Stops(Wrapper):
    """An oracle during whose answer somebody presses Ctrl-C, once it has had so many states."""

    def __init__(self, oracle, after):
        super().__init__(oracle)
        self.left = after

    def ask(self, query):
        self.left -= len(query.states)
        if self.left < 0:
            raise KeyboardInterrupt
        return self.inner.ask(query)


def interrupted(folder):
    """Press Ctrl-C at several states of a discovery, and in a run."""
    found = {}

    def keep(label, call):
        try:
            call()
        except cp.errors.Interrupted as stop:
            kept = stop.found
            found[label] = structure_outcome(
                kept,
                said=str(stop),
                unresolved=None if kept.certificate is None else len(kept.unresolved),
                probes=None if kept.strengths is None else kept.strengths.num_probes,
            )
        except KeyboardInterrupt as stop:
            found[label] = {"said": str(stop), "kept": False}
        else:
            found[label] = {"ended": True}

    for after in (0, 1, 10, 40, 70, 100, 150, 300):
        oracle = Stops(path().oracle(), after)
        keep(f"exact, {after}", partial(find, oracle, 1, mode="exact"))
        oracle = Stops(oracle_of(Network()), after)
        keep(f"soft, {after}", partial(find, oracle, 1, mode="soft", probes=128, first=16))
        oracle = Stops(oracle_of(Network()), after)
        keep(f"auto, {after}", partial(find, oracle, 1))
        oracle = Stops(oracle_of(Network()), after)
        settings = cp.discovery.CompressedSettings(method="regression")
        keep(f"regression, {after}", partial(find, oracle, 1, settings=settings))
        oracle = Stops(path().oracle(), after)
        keep(f"compressed, {after}", partial(draw, oracle, "compressed", 3))
    return found


def long_screens(folder):
    """Recover structures of 1,024 positions and more, and where the decoder hands over."""
    families = cp.families
    rng = np.random.default_rng(0)
    tables = np.exp(rng.normal(size=(59, 3, 3)))
    tables[:, 1] = tables[:, 0]
    tables[:, :, 1] = tables[:, :, 0]
    alike = cp.ForestLaw(
        rng.uniform(0.4, 1.0, size=(60, 3)), [(k, k + 1) for k in range(59)], tables
    )
    noisy = cp.FrozenNoise(families.build("matching", 60, 196).oracle(), radius=5e-9, seed=4)
    found = {}
    for label, (oracle, settings) in {
        "path 1024": (families.path(1024, 0).oracle(), {}),
        "growing-stars 1024": (families.build("growing-stars", 1024, 0).oracle(), {}),
        "two-type-path 1500": (families.build("two-type-path", 1500, 0).oracle(), {}),
        "path 1024, generic": (families.path(1024, 0).oracle(), {"assume": "generic"}),
        "acting alike": (alike.oracle(), {"assume": "generic"}),
        "noise": (noisy, {}),
        "ten choices": (
            families.build("matching", 40, 196, classes=10, tables="random", weight=0.5).oracle(),
            {},
        ),
        "small budget": (families.path(100, 196).oracle(), {"max_probes": 20, "fallback": True}),
        "regression": (families.path(60, 1).oracle(), {"method": "regression"}),
    }.items():
        batch = draw(oracle, "compressed", 2, seed=3, **settings)
        findings = batch.results[0].diagnostics.findings
        found[label] = outcome(
            batch,
            decoder=findings.decoder,
            handover=findings.handover,
            edges=digest_of_array(findings.edges),
            notes=digest_of("\n".join(batch.results[0].notes).encode()),
            probes=[[batch.purpose, batch.probes] for batch in findings.batches],
        )
    return found


# ----- One cell of a study ------------------------------------------------------------------


def study_cell(folder):
    """Do one piece of work of each kind."""
    keys = {
        "reference": reference_key("path", 48, 7),
        "run": run_key("path", 60, 7, 9, "packed", {"num_colors": 3, "num_colorings": 5}, 16),
        "run of punt": run_key("growing-stars", 40, 7, 9, "punt", {}, 16),
        "run of compressed": run_key("path", 60, 7, 9, "compressed", {}, 16),
        "search": search_key(
            "path", 40, 7, 9, "random-balanced", "batches", (), 0.05, 0.5, 16
        ),
        "told search": search_key(
            "path", 40, 7, 9, "information-curve", "batches", (), 0.05, 0.5, 16
        ),
    }  # fmt: skip
    return {label: do_work(key)[0] for label, key in keys.items()}


MEASURES = {
    "prices": prices,
    "advice": advice,
    "prices in commit order": prices_in_commit_order,
    "likelihoods": likelihoods,
    "scores": scores,
    "dependence": dependence,
    "output laws": output_laws,
    "stepped": stepped,
    "blocks of a server": blocks_of_a_server,
    "a pipeline": a_pipeline,
    "without rights": without_rights,
    "plans drawn whole": plans_drawn_whole,
    "torch rows": torch_rows,
    "traces": traces,
    "interrupted": interrupted,
    "long screens": long_screens,
    "study cell": study_cell,
}
