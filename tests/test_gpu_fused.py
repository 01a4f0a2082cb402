"""The fused update's kernels beside torch in float64, and the update beside autograd's.

Needs Triton and CUDA. Without CUDA, most of it runs in Triton's interpreter:
TRITON_INTERPRET=1 python -m pytest tests/test_gpu_fused.py
"""

from typing import NamedTuple

import pytest
import torch
from triton_device import CUDA, DEVICE, INTERPRETED, needs_cuda, on_either

from nearl.population import MemberSettings
from nearl.population.learner import Learner
from nearl.population.networks import Stack
from nearl.soft_update import AugmentedBatch

pytestmark = on_either

ERRORS = {"ieee": 1e-5, "tf32x3": 1e-5, "tf32": 3e-3, "bf16": 2e-2}  # of the largest number
# The interpreter multiplies bfloat16 wrongly and everything else exactly.
PRECISIONS = list(ERRORS) if CUDA and not INTERPRETED else ["ieee"]
CASES = [  # rows and columns of the weights, batch, heads
    (5, 7, 1, 2),
    (300, 1, 7, 1),
    (40, 130, 7, 2),
    (64, 64, 33, 1),
    (23, 400, 40, 2),
]
if CUDA:  # interpreting takes its time
    CASES += [(17, 400, 256, 1), (23, 400, 256, 2), (400, 300, 256, 1), (300, 6, 256, 1)]
BATCHES = [1, 7, 256] if CUDA else [1, 40]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def randn(*shape):
    return torch.randn(*shape, device=DEVICE)


def strided(*shape):
    """Numbers as in a row of the memory: columns next to each other, rows further apart."""
    return randn(*shape[:-1], shape[-1] + 9)[..., 2 : 2 + shape[-1]]


def one_layer(members, heads, rows, columns):
    stack = Stack(members, (rows, columns), heads=heads, device=DEVICE)
    stack.flat.normal_()
    return stack, stack.fixed[0]


def halves(x, second):
    """``x`` as it is, or in two pieces that lie apart."""
    if not second:
        return x, None
    last = min(6, x.shape[-1] - 1)
    return x[..., :-last], x[..., -last:].clone()


def assert_near(found, expected, precision):
    assert found.shape == expected.shape and found.isfinite().all()
    bound = ERRORS[precision] * float(expected.abs().max()) + 1e-12
    assert float((found.double() - expected).abs().max()) <= bound


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("rows", "columns", "batch", "heads"), CASES)
def test_layers(rows, columns, batch, heads, precision):
    from nearl.population.fused import dense

    _, layer = one_layer(3, heads, rows, columns)
    x = strided(3, batch, rows)
    inputs = x.repeat_interleave(heads, 0).double()
    expected = torch.baddbmm(layer.bias.double(), inputs, layer.weight.double())
    first, second = halves(x, heads > 1)
    for epilogue, right in (("none", expected), ("relu", expected.relu())):
        out = torch.full((3 * heads, batch, columns), torch.nan, device=DEVICE)
        options = {"second": second, "heads": heads, "epilogue": epilogue}
        assert dense(first, layer, out, precision=precision, **options) is out
        assert_near(out, right, precision)


@pytest.mark.parametrize("batch", BATCHES)
def test_target_actions_are_smoothed(batch):
    from nearl.population.fused import dense
    from nearl.population.targets import smoothed_actions

    _, layer = one_layer(3, 1, 30, 6)
    x, noise = 0.2 * randn(3, batch, 30), randn(3, batch, 6)
    std = torch.tensor([[0.2], [0.0], [1.0]], device=DEVICE)
    clip = torch.tensor([[0.3], [0.0], [0.5]], device=DEVICE)
    found = torch.empty(3, batch, 6, device=DEVICE)
    dense(x, layer, found, epilogue="smooth", extra=(noise, std, clip), precision="ieee")
    means = torch.baddbmm(layer.bias, x, layer.weight).tanh()
    torch.testing.assert_close(found, smoothed_actions(means, noise, std, clip), atol=1e-4, rtol=0)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("columns", [7, 300])
def test_the_gate_is_the_gradient_of_minus_the_mean_output(batch, columns):
    from nearl.population.fused import dense

    stack = Stack(3, (23, columns, 1), heads=2, device=DEVICE)
    stack.flat.normal_()
    hidden, output = stack.first_heads()
    x = strided(3, batch, 23)
    out = torch.empty(3, batch, columns, device=DEVICE)
    dense(x, hidden, out, epilogue="gate", extra=(output.weight,), precision="ieee")
    before = torch.baddbmm(hidden.bias, x, hidden.weight).requires_grad_()
    value = torch.baddbmm(output.bias, before.relu(), output.weight)
    (expected,) = torch.autograd.grad(-value.mean(1).sum(), before)
    assert float((out - expected).abs().gt(1e-6).double().mean()) < 1e-4  # sums next to zero


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("rows", "columns", "batch", "heads"), CASES)
def test_gradients_of_inputs(rows, columns, batch, heads, precision):
    from nearl.population.fused_gradients import input_gradient

    stack, layer = one_layer(3, heads, rows, columns)
    actions = stack.first_heads()[0].weight[:, rows // 3 :]  # as in a critic's first layer
    for weight, gate in ((layer.weight, "relu"), (actions, "tanh"), (layer.weight, "none")):
        count, kept = len(weight), weight.shape[1]
        x, dy = randn(count, batch, kept), randn(count, batch, columns)
        dx = torch.full((count, batch, kept), torch.nan, device=DEVICE)
        assert input_gradient(dy, weight, x, dx, gate=gate, precision=precision) is dx
        expected = dy.double() @ weight.double().mT
        if gate == "relu":
            expected = expected * (x > 0)
        elif gate == "tanh":
            expected = expected * (1.0 - x.double().square())
        assert_near(dx, expected, precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("rows", "columns", "batch", "heads"), CASES)
def test_gradients_of_parameters(rows, columns, batch, heads, precision):
    from nearl.population.fused_gradients import weight_gradient

    stack, _ = one_layer(3, heads, rows, columns)
    x, dy = strided(3, batch, rows), randn(3 * heads, batch, columns)
    expected = torch.zeros_like(stack.flat, dtype=torch.float64)
    weight, bias = stack.laid_out(expected)[0]
    weight.copy_(x.repeat_interleave(heads, 0).double().mT @ dy.double())
    bias.copy_(dy.double().sum(1, keepdim=True))
    first, second = halves(x, heads > 1)
    flat = torch.zeros_like(stack.flat)
    layer = stack.laid_out(flat)[0]
    layer.weight.fill_(torch.nan)
    layer.bias.fill_(torch.nan)
    weight_gradient(first, dy, layer, second=second, heads=heads, precision=precision)
    assert_near(flat, expected, precision)
    assert (flat[expected == 0] == 0).all()  # nothing between parameters
    torch.testing.assert_close(layer.bias.double(), bias, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("depth", [12, 300])
@pytest.mark.parametrize("heads", [1, 2])
def test_errors_and_the_critics_output_layer(batch, depth, heads):
    from nearl.population.fused_values import Critic, output_gradient, value_gradients
    from nearl.population.targets import critic_losses, pessimistic_values, td_targets

    stacks = [one_layer(3, heads, depth, 1) for _ in range(2)]
    hidden = [randn(3 * heads, batch, depth).relu() for _ in range(2)]
    rows = randn(3, batch, 4)
    reward, terminated = rows[..., 1], (rows > 0.5)[..., 2]
    discount = torch.tensor([[0.99], [0.9], [0.0]], device=DEVICE).expand(3, batch)
    twin = torch.tensor([[True], [False], [True]], device=DEVICE)
    critics = [Critic(h, layer) for h, (_, layer) in zip(hidden, stacks, strict=True)]
    dy, targets = randn(3 * heads, batch), randn(3, batch)
    value_gradients(*critics, reward, terminated, discount, twin.int(), dy, targets)
    dh, flat = torch.full_like(hidden[0], torch.nan), torch.zeros_like(stacks[0][0].flat)
    output_gradient(critics[0], dy, dh, stacks[0][0].laid_out(flat)[0])

    def values(x, weight, bias):
        return torch.baddbmm(bias, x, weight).view(3, heads, batch)

    with torch.no_grad():
        after = values(hidden[1].double(), *(v.double() for v in stacks[1][1]))
        goals = td_targets(reward.double(), terminated, discount, pessimistic_values(after, twin))
    leaves = [v.double().requires_grad_() for v in (hidden[0], *stacks[0][1])]
    loss = critic_losses(values(*leaves), goals, twin).sum()
    dx, *parameters = torch.autograd.grad(loss, leaves)
    assert_near(targets, goals, "ieee")
    assert_near(dh, dx * (hidden[0] > 0), "ieee")
    expected = torch.zeros_like(flat, dtype=torch.float64)
    for view, value in zip(stacks[0][0].laid_out(expected)[0], parameters, strict=True):
        view.copy_(value)
    assert_near(flat, expected, "ieee")


@pytest.mark.parametrize("width", [32, 3232])
def test_adam_is_torchs_and_moves_targets(width):
    from nearl.population.fused_adam import Pace, adam, tick

    rates, delays = [1e-3, 3e-4, 1e-2, 1e-3], [1, 2, 3, 1]
    tau = torch.tensor([[0.005], [1.0], [0.3], [0.7]], device=DEVICE)
    start, goal = randn(4, width), randn(4, width)
    clock = torch.tensor(100, device=DEVICE)
    for every in (True, False):
        flat, target, steps = start.clone(), goal.clone(), torch.zeros(4, device=DEVICE)
        first, second = torch.zeros_like(flat), torch.zeros_like(flat)
        pace = Pace(
            torch.zeros(4, dtype=torch.int32, device=DEVICE), *torch.zeros(2, 4, device=DEVICE)
        )
        rows = [row.clone().requires_grad_() for row in start]
        moving = goal.clone()
        twins = [torch.optim.Adam([r], lr) for r, lr in zip(rows, rates, strict=True)]
        delay, rate = torch.tensor(delays, device=DEVICE), torch.tensor(rates, device=DEVICE)
        for i in range(1, 13):
            clock.fill_(100 + i)
            gradient = randn(4, width) * 10.0 ** float(torch.randint(-6, 3, ()))
            tick(clock, 100, delay, rate, steps, pace, batch=32, every=every)
            move = i % 4 != 0
            options = {"target": target, "tau": tau} if move else {}
            adam(flat, gradient, first, second, pace, every=every, **options)
            for p, (row, twin) in enumerate(zip(rows, twins, strict=True)):
                due = i % delays[p] == 0
                assert pace.due[p] == 32 * due
                if due or every:
                    row.grad = gradient[p].clone()
                    twin.step()
                if due and move:
                    moving[p].lerp_(row.detach(), tau[p])
        taken = [12, 12, 12, 12] if every else [12, 6, 4, 12]
        assert steps.tolist() == taken
        torch.testing.assert_close(flat, torch.stack(rows).detach(), atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(target, moving, atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(
            second[0], twins[0].state[rows[0]]["exp_avg_sq"], atol=0, rtol=1e-4
        )


def test_networks_without_rows_are_left_alone():
    from nearl.population.fused_adam import Pace, adam
    from nearl.population.fused_gradients import input_gradient, weight_gradient
    from nearl.population.fused_values import Critic, output_gradient

    stack, layer = one_layer(2, 2, 40, 70)
    rows = torch.tensor([33, 0, 33, 33], dtype=torch.int32, device=DEVICE)
    x, dy, hidden = randn(2, 33, 40), randn(4, 33, 70), randn(4, 33, 40)
    found = []
    for given in (None, rows):
        dx, flat, out = (torch.full_like(like, 7.0) for like in (hidden, stack.flat, stack.flat))
        input_gradient(dy, layer.weight, hidden, dx, rows=given)
        weight_gradient(x, dy, stack.laid_out(flat)[0], heads=2, rows=given)
        critic = Critic(dy, Stack(2, (70, 1), heads=2, device=DEVICE).fixed[0])
        dh, end = torch.full_like(dy, 7.0), Stack(2, (70, 1), heads=2, device=DEVICE)
        output_gradient(critic, dy[..., 0].contiguous(), dh, end.fixed[0], rows=given)
        ones = torch.ones(2, device=DEVICE)
        first, second = torch.zeros(2, *out.shape, device=DEVICE)
        pace = Pace(ones.int(), ones, ones)
        adam(out, flat, first, second, pace, every=True, rows=given)
        heads = flat.view(4, -1), end.flat.view(4, -1), out.view(4, -1)
        found.append([dx, dh, *heads])
    for (plain, some), untouched in zip(zip(*found, strict=True), (7, 7, 7, 0, 7), strict=True):
        assert torch.equal(plain[rows > 0], some[rows > 0])
        assert (some[1] == untouched).all() and (plain[1] != untouched).any()


# -- the update ----------------------------------------------------------------------------------


class Phase(NamedTuple):
    actor: bool = True
    batch: bool = False


class Term:
    """A module with a term for every other member, and targets of its own."""

    phase = Phase()

    def __init__(self, learner):
        self.learner = learner
        self.on = (torch.arange(len(learner.members), device=learner.device) % 2)[:, None].float()

    def prepare(self):
        pass

    def settle(self):
        pass

    def reread(self, slots):
        pass

    def augment(self, batch):
        return AugmentedBatch(*batch._replace(reward=batch.reward - self.on * 5.0), 0.9)

    def actor_term(self, means, batch):
        return (means - batch.act).square().mean((1, 2))

    def actor_gradient(self, means, batch):
        return 2 * (means - batch.act) / means[0].numel()

    clips = False

    def shares(self, term):
        return torch.ones_like(self.on[:, 0]), self.on[:, 0]

    def tau(self, tau):
        return torch.where(self.on > 0, 0.2, tau)


class Clipped(Term):
    """The same, with a share that the term's gradient decides."""

    clips = True

    def shares(self, term):
        base, other = super().shares(term)
        return base, other * (0.01 / torch.linalg.vector_norm(term, dim=1)).clamp(max=1)


def member(algo, seed=0, **changes):
    small = {"net_arch": (16, 12), "batch_size": 32, "buffer_size": 150, "learning_starts": 20}
    return MemberSettings(algo=algo, seed=seed, **(small | changes))


TD3 = [member("td3", seed, learning_rate=1e-3 * (1 + seed), tau=0.01) for seed in range(3)]
DDPG = [member("ddpg", seed, tau=0.05) for seed in range(2)]
MIXED = [
    member("td3", 0),
    member("ddpg", 1, learning_rate=3e-3),
    member("td3", 2, policy_delay=3, gamma=0.9, learning_rate=3e-3, tau=0.6),
    member("nntd3", 3, tau=0.05, target_policy_noise=0.1, nn={"weight": 0.0}, paper_init=True),
    member("nnddpg", 4, nn={"weight": 0.0, "reward_scale": 0.1}),
]


def learners(members, obs_dim=3, act_dim=2, *, module=None):
    """One that uses autograd and one that does not, the same but for that."""
    both = [
        Learner(members, obs_dim, act_dim, device=DEVICE, module=module, fused=fused)
        for fused in (False, True)
    ]
    rows = torch.randn(30, len(members), both[0].memory.width)
    rows[..., both[0].memory.places["terminated"]] = (torch.rand(30, len(members), 1) < 0.2).float()
    for learner in both:
        for row in rows.to(DEVICE):
            learner.store(row)
    return both


def advance(learner, step, row, update=None):
    """An update and another transition."""
    learner.reach(step)
    (update or learner.update)(actor=learner.actor_due(step))
    learner.store(row)


def assert_same_movement(plain, fused, start, share):
    """Differences are a small share of how far parameters have moved."""
    for name in ("actor", "actor_target", "critic", "critic_target"):
        found, expected = getattr(fused, name).flat, getattr(plain, name).flat
        moved = (expected - start[name]).abs().mean(1)  # (P,)
        apart = (found - expected).abs().mean(1)
        assert (apart <= share * moved + 1e-8).all(), (name, apart / moved)
    for name in ("actor_adam", "critic_adam"):
        assert torch.equal(getattr(fused, name).steps, getattr(plain, name).steps)


def flats(learner):
    names = ("actor", "actor_target", "critic", "critic_target")
    return {name: getattr(learner, name).flat.clone() for name in names}


def resized(members, **changes):
    return [MemberSettings(**(vars(member) | changes)) for member in members]


POPULATIONS = {
    "td3": (TD3, None),
    "ddpg": (DDPG, None),
    "mixed": (MIXED, None),
    "term": (MIXED, Term),
    "clipped term": (MIXED, Clipped),
    "alone": ([member("td3", 1)], None),
    "one layer": (resized(DDPG, net_arch=(19,), batch_size=7), Term),
    "three layers": (resized(MIXED, net_arch=(9, 70, 5)), Term),
}


@pytest.mark.parametrize("name", POPULATIONS)
def test_an_update_is_autograds(name):
    assert torch.get_float32_matmul_precision() == "highest"
    plain, fused = learners(POPULATIONS[name][0], module=POPULATIONS[name][1])
    start = flats(plain)
    for i in range(20):
        row = randn(len(plain.members), plain.memory.width)
        for learner in (plain, fused):
            advance(learner, 30 + i, row)
        if i in (0, 19):
            assert_same_movement(plain, fused, start, 1e-3)


@pytest.mark.parametrize("module", [None, Term, Clipped])
def test_an_update_that_keeps_actors_out_of_flat_ends_is_autograds(module):
    opened = [
        *MIXED[:3],
        member("nntd3", 3, policy_delay=3, nn={"saturation": 0.1}),
        member("nnddpg", 4, nn={"saturation": 2.0}),
    ]
    plain, fused = learners(opened, module=module)
    torch.manual_seed(0)
    without, _ = learners(resized(opened, nn={}), module=module)
    for learner in (plain, fused, without):
        learner.actor.flat.mul_(4.0)  # outputs beyond 2
    start = flats(plain)
    for i in range(20):
        row = randn(len(opened), plain.memory.width)
        for learner in (plain, fused, without):
            advance(learner, 30 + i, row)
        if i in (0, 19):
            assert_same_movement(plain, fused, start, 1e-3)
    same = [torch.equal(*pair) for pair in zip(plain.actor.flat, without.actor.flat, strict=True)]
    assert same == [True, True, True, False, False]


@needs_cuda
@pytest.mark.parametrize("module", [None, Term])
@pytest.mark.parametrize(("precision", "share"), [("ieee", 5e-3), ("tf32", 0.2), ("bf16", 0.6)])
def test_an_update_of_full_size_is_autograds(precision, share, module):
    from nearl.population.fused_update import FusedUpdate

    members = resized(MIXED, net_arch=(400, 300), batch_size=256)
    plain, other = learners(members, 17, 6, module=module)
    fused = FusedUpdate(other, precision)
    start = flats(plain)
    for i in range(20):
        row = randn(len(members), plain.memory.width)
        advance(plain, 30 + i, row)
        advance(other, 30 + i, row, fused.update)
        if i in (0, 19):
            assert_same_movement(plain, other, start, share)


@needs_cuda
@pytest.mark.parametrize("module", [None, Term])
def test_a_captured_update_is_autograds(module):
    from nearl.population.graphs import GraphEngine

    plain, fused = learners(MIXED, module=module)
    engine = GraphEngine(fused, 1, tf32=False)
    start = flats(plain)
    for i in range(20):
        row = randn(len(MIXED), plain.memory.width)
        advance(plain, 30 + i, row)
        torch.cuda.synchronize()
        due = fused.actor_due(30 + i)
        with engine._queued():
            fused.reach(30 + i)
            engine._run(due, lambda due=due: fused.update(actor=due))
        engine.synchronize()
        fused.store(row)
    torch.cuda.synchronize()
    assert_same_movement(plain, fused, start, 1e-3)


def test_a_member_does_not_depend_on_the_others():
    _, together = learners(MIXED)
    changed = [*MIXED[:2], member("td3", 9, learning_rate=1e-2, tau=0.5), *MIXED[3:]]
    torch.manual_seed(0)
    _, other = learners(changed)
    rows = randn(6, len(MIXED), together.memory.width)
    for learner in (together, other):
        for i, row in enumerate(rows):
            advance(learner, 30 + i, row)
    for p in range(len(MIXED)):
        same = torch.equal(together.actor.flat[p], other.actor.flat[p])
        assert same == torch.equal(together.critic.flat[p], other.critic.flat[p]) == (p != 2)
