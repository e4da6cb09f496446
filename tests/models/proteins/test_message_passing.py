"""The decoder taken apart, against the network's own layers on whole messages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from counterprobe import models
from counterprobe.models import Backbone
from counterprobe.models.proteins import first_layer
from counterprobe.models.proteins.message_passing import Decoder


# The shorter one has 30 neighbours, not 48; the last is taken for too large for a table.
@pytest.fixture(scope="module", params=[(76, True), (30, True), (76, False)])
def decoder(request) -> Iterator[Decoder]:
    torch.set_num_threads(1)
    length, is_looked_up = request.param
    backbone = Backbone.shipped("1ubi").part(range(length))
    with pytest.MonkeyPatch.context() as patch:
        if not is_looked_up:
            patch.setattr(first_layer, "MOST_BYTES", 1 << 20)
        yield models.load("proteinmpnn", backbone=backbone, device="cpu").decoder


@torch.no_grad()
def by_whole_messages(decoder: Decoder, tokens, sees) -> list[torch.Tensor]:
    """Run the network's own layers; ``sees[i, j]`` says whether i comes after a revealed j."""
    near = decoder.neighbours
    before = torch.gather(torch.as_tensor(sees), 1, near)[:, :, None]
    residues = decoder.network.W_s(torch.as_tensor(tokens)[near]) * before
    states = [decoder.nodes]
    for layer in decoder.network.decoder_layers:
        inner = torch.where(before, states[-1][near], decoder.nodes[near])
        message = torch.cat([decoder.pairs, residues, inner], dim=-1)
        states.append(layer(states[-1][None], message[None])[0])
    return states[1:]


def everywhere(count: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(count).repeat_interleave(length), torch.arange(length).repeat(count)


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_decoding_by_index_agrees_with_the_layers_themselves(decoder, share):
    rng = np.random.default_rng(int(100 * share))
    length = decoder.length
    tokens = rng.integers(0, 20, (3, length))
    revealed = rng.random((3, length)) < share
    states = decoder.start(3)
    states.tokens.copy_(torch.as_tensor(tokens))
    states.revealed.copy_(torch.as_tensor(revealed))
    decoder.decode(states, *everywhere(3, length), ranks=decoder.by_index(3))
    smaller = np.arange(length) < np.arange(length)[:, None]
    for k in range(3):
        sees = revealed[k] & (~revealed[k][:, None] | smaller)
        wanted = by_whole_messages(decoder, tokens[k], sees)
        for mine, theirs in zip(states.hidden, wanted, strict=True):
            torch.testing.assert_close(mine[k], theirs, atol=2e-5, rtol=1e-5)


def test_decoding_batch_by_batch_agrees_with_the_layers_themselves(decoder):
    rng = np.random.default_rng(1)
    length = decoder.length
    tokens = rng.integers(0, 20, (2, length))
    batch_of = rng.integers(0, 5, (2, length))
    states = decoder.start(2)
    for number in range(5):
        index, position = (torch.as_tensor(part) for part in np.nonzero(batch_of == number))
        decoder.decode(states, index, position, is_bare=number == 0)
        decoder.reveal(states, index, position, torch.as_tensor(tokens)[index, position])
    for k in range(2):
        wanted = by_whole_messages(decoder, tokens[k], batch_of[k] < batch_of[k][:, None])
        for mine, theirs in zip(states.hidden, wanted, strict=True):
            torch.testing.assert_close(mine[k], theirs, atol=2e-5, rtol=1e-5)


def test_where_nothing_is_revealed_states_are_the_layers_own_to_the_last_bit(decoder):
    length = decoder.length
    nobody = np.zeros((length, length), dtype=bool)
    wanted = by_whole_messages(decoder, np.zeros(length, dtype=int), nobody)
    states = decoder.start(2)
    decoder.decode(states, *everywhere(2, length), is_bare=True)
    for mine, theirs in zip(states.hidden, wanted, strict=True):
        assert torch.equal(mine[0], theirs) and torch.equal(mine[1], theirs)


def test_nothing_revealed_is_the_same_whether_it_is_said_or_found_out(decoder):
    said, found = decoder.start(1), decoder.start(1)
    where = everywhere(1, decoder.length)
    decoder.decode(said, *where, is_bare=True)
    decoder.decode(found, *where)
    for one, other in zip(said.hidden, found.hidden, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


def test_residues_in_several_loads_are_decoded_alike(decoder, monkeypatch):
    rng = np.random.default_rng(2)
    length = decoder.length
    tokens = torch.as_tensor(rng.integers(0, 20, (2, length)))
    revealed = torch.as_tensor(rng.random((2, length)) < 0.5)
    found = []
    for at_once in (7, 10**6):
        monkeypatch.setattr(decoder._batch, "value", at_once)
        states = decoder.start(2)
        states.tokens.copy_(tokens)
        states.revealed.copy_(revealed)
        decoder.decode(states, *everywhere(2, length), ranks=decoder.by_index(2))
        found.append(states.hidden[-1])
    torch.testing.assert_close(found[0], found[1], atol=2e-5, rtol=1e-5)


def test_sums_of_the_first_layer_are_looked_up_where_the_table_is_small(decoder, monkeypatch):
    parts, layer = decoder.parts[0], decoder.network.decoder_layers[0]
    length, degree = decoder.neighbours.shape
    table = first_layer.FirstLayer(parts, layer, decoder.nodes)
    letters = torch.randint(0, 22, (length, degree), generator=torch.Generator().manual_seed(0))
    position = torch.arange(length).flip(0)
    found = table.sums(position, letters)
    own = decoder.nodes @ parts.own.T
    for k in range(length):
        i = int(position[k])
        message = parts.around[i] + own[i]
        for near, letter in enumerate(letters[k].tolist()):
            if letter != table.unseen:
                message[near] += parts.letters[letter]
        with torch.no_grad():
            wanted = layer.act(layer.W2(layer.act(message))).sum(dim=0)
        torch.testing.assert_close(found[k], wanted, atol=1e-4, rtol=1e-5)
    alone = table.sums(position[:1], letters[:1])
    torch.testing.assert_close(alone, found[:1], atol=0, rtol=0)
    monkeypatch.setattr(first_layer, "MOST_BYTES", 4 * length * degree * 22 * 128)
    assert first_layer.is_worth_a_table(parts)
    monkeypatch.setattr(first_layer, "MOST_BYTES", 4 * length * degree * 22 * 128 - 1)
    assert not first_layer.is_worth_a_table(parts)
