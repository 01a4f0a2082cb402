"""Learned distances: what the two forms promise, and that training is repeatable and resumable."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from nearl import ActionCode, Experience, Metric, PairwiseMetric, TransitionMemory
from nearl.agents import NNAC
from nearl.cli import app
from nearl.encoded import Encoded, Sketch
from nearl.saving import load_state
from nearl.siamese import (
    ConcatenatingMetric,
    SiameseMetric,
    SiameseNetwork,
    SiameseSettings,
    load_metric,
    train,
)
from nearl.siamese.data import collect, near_pairs
from nearl.siamese.metric import load_network
from nearl.siamese.report import report
from nearl.siamese.settings import paper

CODE = ActionCode.onehot(2)
TINY = {"samples": 600, "held_out": 200, "epochs": 2, "batch_size": 64}


def pictures(count, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (count, 4, 20, 20), dtype=np.uint8))


def networks():
    torch.manual_seed(0)
    yield SiameseNetwork(SiameseSettings())
    yield SiameseNetwork(SiameseSettings(form="concatenating"))


def test_the_embedding_form_is_a_metric_and_the_concatenating_one_is_not():
    embedding, concatenating = networks()
    a, b, c = (embedding.encode(pictures(20, seed)) for seed in range(3))
    torch.testing.assert_close(embedding.distance(a, b), embedding.distance(b, a))
    assert torch.equal(embedding.distance(a, a), torch.zeros(20))
    over = embedding.distance(a, b) + embedding.distance(b, c)
    assert (embedding.distance(a, c) <= over + 1e-5).all()
    a, b = (concatenating.encode(pictures(20, seed)) for seed in range(2))
    assert not torch.allclose(concatenating.squared(a, b), concatenating.squared(b, a))


def test_the_papers_network_has_its_layers():
    network = SiameseNetwork(paper())
    shapes = [tuple(p.shape) for p in network.parameters() if p.ndim > 1]
    assert shapes[:3] == [(128, 4, 3, 3), (64, 128, 3, 3), (16, 64, 3, 3)]
    assert shapes[3:] == [(64, 16 * 40 * 60), (8, 128), (1, 8)]
    assert network.shape == (4, 160, 240)


def test_keys_are_distances_of_the_network_beside_the_action():
    network, _ = networks()
    metric = SiameseMetric(network, CODE, obs_weight=0.5, act_weight=2.0)
    assert isinstance(metric, Metric) and metric.dim == 10
    obs, act = pictures(12), torch.arange(12) % 2
    keys = metric.embed(obs, act)
    features = network.encode(obs)
    apart = network.squared(features[:6], features[6:]) * 0.5
    apart = apart + 2.0 * (act[:6] != act[6:])
    torch.testing.assert_close((keys[:6] - keys[6:]).square().sum(-1), apart)
    each = metric.embed_each(obs, torch.arange(2))
    for action in range(2):
        torch.testing.assert_close(each[:, action], metric.embed(obs, torch.full((12,), action)))


@pytest.mark.parametrize("form", ["embedding", "concatenating"])
def test_nearest_neighbors_are_those_of_the_network(form):
    network = next(n for n in networks() if n.embeds == (form == "embedding"))
    kind = SiameseMetric if network.embeds else ConcatenatingMetric
    metric = kind(network, CODE, obs_weight=1.0, act_weight=1.0)
    memory = TransitionMemory(40, (4, 20, 20), (), obs_dtype=torch.uint8, act_dtype=torch.int64)
    experience = Experience(memory, metric)
    stored, acts = pictures(40, seed=1), torch.arange(40) % 2
    never = np.zeros(40, bool)
    experience.add(stored, acts, np.zeros(40, np.float32), stored, never, never)
    asked = pictures(9, seed=2)
    found = experience.nearest(asked, torch.zeros(9, dtype=torch.int64))
    left, right = network.encode(asked)[:, None], network.encode(stored)[None]
    squared = network.squared(left, right).clamp_min(0.0) + (acts != 0).float()
    assert torch.equal(found.slots[:, 0], squared.argmin(1))
    expected = squared.min(1).values.sqrt()
    torch.testing.assert_close(found.distances[:, 0].float(), expected, atol=1e-4, rtol=1e-4)


def test_a_concatenating_metric_is_refused_by_other_indexes():
    _, network = networks()
    metric = ConcatenatingMetric(network, CODE)
    assert isinstance(metric, PairwiseMetric)
    memory = TransitionMemory(8, (4, 20, 20), (), obs_dtype=torch.uint8, act_dtype=torch.int64)
    with pytest.raises(ValueError, match="brute"):
        Experience(memory, metric, index="kdtree")
    with pytest.raises(ValueError, match="cannot embed"):
        SiameseMetric(network, CODE)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 100))
def test_a_sketch_keeps_lengths(seed):
    """256 rows: 4.4 % error on average; 40 % would be nine standard deviations."""
    obs = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, 900)).astype(np.float32))
    sketch = Sketch(900, 256, seed=seed)
    ratio = (sketch(obs)[0] - sketch(obs)[1]).norm() / (obs[0] - obs[1]).norm()
    assert 0.6 < ratio < 1.4
    whole = Sketch(30, 64, seed=seed)  # nothing is lost where nothing is left out
    torch.testing.assert_close(whole(obs[:, :30]).norm(), obs[:, :30].norm())


def test_encoded_observations_of_another_shape_are_named():
    metric = Encoded(Sketch(1600, 16), (4, 20, 20), CODE)
    with pytest.raises(ValueError, match=r"\(3, 5\).*\(4, 20, 20\)"):
        metric.embed(torch.zeros(3, 5), torch.zeros(3, dtype=torch.int64))


def test_data_repeats_and_covers_the_track():
    first, second = (collect(1500, seed=5) for _ in range(2))
    assert np.array_equal(first.pictures, second.pictures)
    assert np.array_equal(first.states, second.states)
    assert first.states[:, 0].min() < -1.0 and first.states[:, 0].max() > 1.0
    i, j = near_pairs(first.states, 500)
    k = np.random.default_rng(0).permutation(500)
    near = np.linalg.norm(first.states[i] - first.states[j], axis=1)
    assert (i != j).all()
    assert near.mean() < 0.5 * np.linalg.norm(first.states[i] - first.states[j[k]], axis=1).mean()


def test_the_report_of_a_perfect_metric_is_perfect():
    data = collect(500, seed=1)

    class Oracle(torch.nn.Linear):
        def encode(self, pictures):
            return torch.from_numpy(data.states)

        def distance(self, first, second):
            return (first - second).norm(dim=-1)

    found = report(Oracle(1, 1), data, np.ones(4, np.float32), pairs=200, queries=50)
    for name in ("correlation", "near_rank_correlation", "recall_10", "neighbor_ratio"):
        assert found[name] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("form", ["embedding", "concatenating"])
def test_training_that_was_cut_ends_as_if_it_had_not_been(tmp_path, form):
    options = SiameseSettings(form=form, **TINY)
    whole = train(options, tmp_path / "whole")

    class Cut(Exception):
        pass

    def cut(what, done, total):
        if what == "epochs" and done == 1:
            raise Cut

    with pytest.raises(Cut):
        train(options, tmp_path / "cut", on_progress=cut)
    assert not (tmp_path / "cut" / "metric.pt").exists()
    assert train(options, tmp_path / "cut") == whole
    files = [load_state(tmp_path / name / "metric.pt", "siamese") for name in ("whole", "cut")]
    for name, weights in files[0]["network"].items():
        assert torch.equal(weights, files[1]["network"][name])
    assert files[0]["settings"] == asdict(options)
    with pytest.raises(ValueError, match="other epochs"):
        train(SiameseSettings(form=form, **(TINY | {"epochs": 3})), tmp_path / "cut")


def test_the_command_trains_and_its_metric_can_be_used(tmp_path):
    given = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    result = CliRunner().invoke(app, ["metric", "train", f"--out={tmp_path}", "--json", *given])
    assert result.exit_code == 0, result.output
    assert 0.0 < json.loads(result.stdout)["correlation"] <= 1.0
    metric = load_metric(tmp_path, (4, 20, 20), CODE)
    assert isinstance(metric, SiameseMetric)
    with pytest.raises(ValueError, match=r"\(4, 20, 20\).*\(4,\)"):
        load_metric(tmp_path, (4,), CODE)


def test_a_device_that_is_none_is_named(tmp_path):
    result = CliRunner().invoke(app, ["metric", "train", f"--out={tmp_path}", "--device=tpu"])
    assert isinstance(result.exception, ValueError) and "got 'tpu'" in str(result.exception)


def test_bad_settings_are_named():
    for name, bad, accepted in (
        ("form", "triplet", "'embedding' or 'concatenating'"),
        ("observe", "all", "'crop' or 'frames'"),
        ("epochs", 0, "at least 1"),
        ("seed", -1, "at least 0"),
        ("batch_size", 1, "at least 2"),
        ("learning_rate", 0.0, "above 0"),
    ):
        with pytest.raises(ValueError, match=f"{name} = {bad!r} is not .* must be {accepted}"):
            SiameseSettings(**{name: bad})
    with pytest.raises(ValueError, match="samples = 200 is less than one batch of 256"):
        SiameseSettings(samples=200)
    with pytest.raises(ValueError, match="small network"):
        SiameseSettings(observe="frames")


def test_the_shipped_metric_follows_the_states():
    """On episodes that it has not seen. Velocities are only seen up to the last push."""
    network = load_network()
    assert network.embeds and network.nbytes < 500_000
    data = collect(2000, seed=2**20)
    found = report(network, data, data.states.std(0), pairs=3000, queries=100)
    assert found["correlation"] > 0.75 and found["near_rank_correlation"] > 0.5


@pytest.mark.parametrize("distance", ["siamese", "l2"])
def test_nnac_learns_from_pixels(distance):
    """Not a benchmark: it runs, changes its policy, and does the same again."""
    model = NNAC("CnnPolicy", "nearl/CartPolePixels-v1", seed=1, distance=distance)
    assert model.experience.memory["obs"].dtype == torch.uint8
    assert type(model.experience.metric) is (SiameseMetric if distance == "siamese" else Encoded)
    before = torch.cat([p.flatten() for p in model.policy.actor.parameters()]).clone()
    model.learn(330)
    after = torch.cat([p.flatten() for p in model.policy.actor.parameters()])
    assert torch.isfinite(after).all() and not torch.equal(before, after)
    scale = model.policy.average.normalize.scale
    assert scale.max() > 10 and torch.equal(scale, model.policy.actor.normalize.scale)
    other = NNAC("CnnPolicy", "nearl/CartPolePixels-v1", seed=1, distance=distance).learn(330)
    assert torch.equal(after, torch.cat([p.flatten() for p in other.policy.actor.parameters()]))


def test_a_metric_that_cannot_embed_is_refused_by_the_graph_and_taken_by_rollouts(tmp_path):
    train(SiameseSettings(form="concatenating", **TINY), tmp_path)
    options = {"distance": "siamese", "metric_file": str(tmp_path), "seed": 0}
    with pytest.raises(ValueError, match=r"cannot embed.*preset='rollout'.*--form embedding"):
        NNAC("CnnPolicy", "nearl/CartPolePixels-v1", **options)
    model = NNAC("CnnPolicy", "nearl/CartPolePixels-v1", preset="rollout", **options)
    assert isinstance(model.learn(40).experience.metric, ConcatenatingMetric)


def test_a_file_of_a_metric_that_is_not_used_is_refused():
    with pytest.raises(ValueError, match=r"metric_file = 'my' would change nothing.*'l2'.*siamese"):
        NNAC("MlpPolicy", "CartPole-v1", metric_file="my")
