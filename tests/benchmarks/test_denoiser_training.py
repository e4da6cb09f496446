"""Training denoisers: a tiny run learns the law, and files give back what was trained."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from denoiser import main
from denoisers import files, laws
from denoisers.laws import Truth, build_law
from denoisers.network import Denoiser, Shape
from denoisers.row_errors import row_errors
from denoisers.training import FULL, TINY, Progress, Settings, fresh_batches, masked_loss, train

SHORT = replace(TINY, steps=200, batch_size=64, layers=1)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return build_law("path", small=True)


@pytest.fixture(scope="module")
def network(truth: Truth) -> Denoiser:
    return train(truth, SHORT)


def test_tiny_training_learns_more_than_marginals(truth: Truth, network: Denoiser) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = truth.sample(500, generator)
    shown = torch.rand(tokens.shape, generator=generator) < 0.5
    states = torch.where(shown, tokens, -1)
    exact = truth.rows(states)[~shown]
    learned = network.log_rows(states).exp()[~shown]
    nothing_shown = torch.full_like(states, -1)
    marginals = truth.rows(nothing_shown)[~shown]
    error, error_of_marginals = (
        float((exact - rows).abs().sum(dim=1).mean() / 2) for rows in (learned, marginals)
    )
    assert error < 0.75 * error_of_marginals


def test_training_is_repeatable(truth: Truth) -> None:
    brief = replace(SHORT, steps=3)
    first, second = train(truth, brief), train(truth, brief)
    other = train(truth, replace(brief, seed=1))
    assert torch.equal(first.output.weight, second.output.weight)
    assert not torch.equal(first.output.weight, other.output.weight)


def test_training_leaves_the_global_generator_alone(truth: Truth) -> None:
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    train(truth, replace(SHORT, steps=1))
    assert torch.equal(torch.rand(4), wanted)


def test_no_sample_is_used_twice_and_every_step_has_a_batch(truth: Truth) -> None:
    counted: list[int] = []

    class Counting:
        def sample(self, count: int, generator: torch.Generator) -> torch.Tensor:
            counted.append(count)
            first = sum(counted[:-1])
            return torch.arange(first, first + count)[:, None]

    settings = Settings(steps=70, batch_size=3)
    batches = list(fresh_batches(Counting(), settings, torch.Generator()))  # type: ignore[arg-type]
    assert torch.equal(torch.cat(batches)[:, 0], torch.arange(210))
    assert [len(batch) for batch in batches] == [3] * 70


def test_loss_counts_masked_positions_only(truth: Truth, network: Denoiser) -> None:
    """The same masks, drawn again, give the same mean by hand."""
    tokens = truth.sample(64, torch.Generator().manual_seed(1))
    loss = masked_loss(network, tokens, torch.Generator().manual_seed(2))
    again = torch.Generator().manual_seed(2)
    share = (torch.arange(64) / 64 + torch.rand(1, generator=again)) % 1.0
    masked = torch.rand(tokens.shape, generator=again) < share[:, None]
    log_rows = network.log_rows(torch.where(masked, -1, tokens))
    chosen = log_rows.gather(2, tokens[..., None])[..., 0][masked]
    assert loss.item() == pytest.approx(-float(chosen.mean()), abs=1e-5)


def test_learning_rate_rises_then_falls_to_zero() -> None:
    rates = [FULL.rate_at(step) for step in range(FULL.steps)]
    assert max(rates) <= FULL.learning_rate
    assert rates[: FULL.warmup] == sorted(rates[: FULL.warmup])
    assert rates[FULL.warmup :] == sorted(rates[FULL.warmup :], reverse=True)
    assert rates[-1] < 1e-6 * FULL.learning_rate


def test_the_full_network_fits_into_two_megabytes() -> None:
    law = build_law("path")
    network = Denoiser(Shape(law.length, law.vocab_size))
    assert 2 * sum(value.numel() for value in network.parameters()) < 1.9e6


def test_row_errors_vanish_for_a_network_that_knows_the_law(truth: Truth) -> None:
    class Knows:
        def log_rows(self, states: torch.Tensor) -> torch.Tensor:
            return truth.rows(states).log()

    for row in row_errors(Knows(), truth, count=50):  # type: ignore[arg-type]
        assert row["tv_max"] < 1e-12
        assert abs(row["kl_mean"]) < 1e-12


def test_a_denoiser_comes_back_from_its_file(
    truth: Truth, network: Denoiser, tmp_path: Path
) -> None:
    files.save(tmp_path, "path", network, truth, SHORT, small=True)
    trained = files.load(tmp_path, "path")
    states = truth.sample(20, torch.Generator().manual_seed(1))
    states[:, ::2] = -1
    difference = trained.network.log_rows(states) - network.log_rows(states)
    assert float(difference.abs().max()) < 0.02  # weights were rounded to half precision
    assert not trained.network.training


def test_a_denoiser_of_another_law_is_refused(
    truth: Truth, network: Denoiser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.save(tmp_path, "path", network, truth, SHORT, small=True)
    monkeypatch.setattr(laws, "SEED", laws.SEED + 1)
    with pytest.raises(ValueError, match="was trained on another law than 'path' is now"):
        files.load(tmp_path, "path")


def test_a_missing_denoiser_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"python benchmarks/denoiser.py train --law grid"):
        files.load(tmp_path, "grid")


def test_command_trains_and_writes_weights_record_and_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("denoiser.TINY", replace(TINY, steps=2, batch_size=8))
    assert main(["train", "--law", "grid,topic", "--tiny", "--out", str(tmp_path)]) == 0
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {
        "README.md",
        *(f"{law}.{kind}" for law in ("grid", "topic") for kind in ("json", "safetensors")),
    }
    card = (tmp_path / "README.md").read_text()
    assert "| grid | 8 | 3 | 10 |" in card
    assert "| topic | 8 | 4 | 4 |" in card
    assert "step 2 of 2" in capsys.readouterr().out


def test_command_refuses_an_unknown_law_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--law", "ring", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: law must be one of path") and said.count("\n") == 1


def test_progress_is_told_about_a_dozen_times(truth: Truth) -> None:
    told: list[Progress] = []
    train(truth, replace(SHORT, steps=24), told.append)
    assert [progress.step for progress in told] == list(range(2, 25, 2))
