"""Gradient steps of a small actor in one compiled loop, where torch's overhead is the cost.

The parameters stay torch's: they, and Adam's moments, become views of flat arrays that the loop
changes in place. The numbers are those of ``losses`` with autograd and Adam, to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from nearl.agents.policy import ActorPolicy
from nearl.networks import GaussianActor, layer_sizes

Floats = NDArray[np.float32]


class CompiledSteps:
    """Replaces ``loss.backward(); optimizer.step()`` for actors that are plain MLPs."""

    def __init__(self, policy: ActorPolicy) -> None:
        self.policy, actor = policy, policy.actor
        self._sizes = layer_sizes(actor.net)
        self.theta = _flatten(policy.actor)
        self._average = _flatten(policy.average)
        self._m, self._v = (np.zeros_like(self.theta) for _ in range(2))
        self._parameters = list(actor.parameters())
        self._attached: Tensor | None = None
        self._steps: list[Tensor] = []

    def candidates(self, obs: Tensor, values: Tensor, candidates: Tensor, **settings: Any) -> None:
        """One step of ``all_action_loss`` per row of ``obs (G, B, D)`` and ``values (G, B, C)``."""
        actor = self.policy.actor
        points = np.zeros((0, 0), np.float32)
        if isinstance(actor, GaussianActor):
            points = actor.to_unit(candidates).numpy()
        none = np.zeros((len(obs), 0), np.int64), np.zeros((len(obs), 0), np.float32)
        self._run(obs, values.numpy(), points, *none, **settings)

    def taken(self, obs: Tensor, act: Tensor, errors: Tensor, **settings: Any) -> None:
        """One step of ``td_policy_loss`` per row; discrete actions ``(G, B)``."""
        none = np.zeros((0, 0, 0), np.float32), np.zeros((0, 0), np.float32)
        self._run(obs, *none, act.numpy(), errors.numpy(), **settings)

    def _run(
        self,
        obs: Tensor,
        values: Floats,
        points: Floats,
        act: NDArray[np.int64],
        errors: Floats,
        *,
        decay: float,
        updates: int,
        entropy: float = 0.0,
        clip: float | None = None,
    ) -> None:
        steps = self._attach()
        group = self.policy.optimizer.param_groups[0]
        _gradient_steps(
            self.theta,
            self._m,
            self._v,
            self._average,
            int(steps[0]),
            self._sizes,
            obs.contiguous().numpy(),
            values,
            points,
            act,
            errors,
            self.policy.actor.squash,
            np.float32(group["lr"]),
            np.float32(entropy),
            np.float32(np.inf if clip is None else clip),
            decay,
            updates,
        )
        for step in steps:
            step.add_(len(obs))

    def _attach(self) -> list[Tensor]:
        """Make Adam's moments views of the flat arrays, whoever made them last."""
        state, parameters = self.policy.optimizer.state, self._parameters
        if self._steps and state[parameters[0]].get("exp_avg") is self._attached:
            return self._steps
        self._steps, at = [], 0
        for parameter in parameters:
            own, size = state[parameter], parameter.numel()
            for name, flat in (("exp_avg", self._m), ("exp_avg_sq", self._v)):
                view = torch.from_numpy(flat[at : at + size]).view(parameter.shape)
                if name in own:
                    view.copy_(own[name])
                own[name] = view
            self._steps.append(own.setdefault("step", torch.tensor(0.0)))
            at += size
        self._attached = state[parameters[0]]["exp_avg"]
        return self._steps


def _flatten(module: nn.Module) -> Floats:
    """Move a module's parameters into one array; they become views of it."""
    flat = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    at = 0
    for parameter in module.parameters():
        parameter.data = flat[at : at + parameter.numel()].view(parameter.shape)
        at += parameter.numel()
    array: Floats = flat.numpy()
    return array


@njit(cache=True)
def _gradient_steps(  # type: ignore[no-untyped-def]
    theta, m, v, average, step, sizes, obs, values, points, act, errors,
    squash, rate, entropy, clip, decay, updates,
):  # fmt: skip
    """Adam steps on the mini-batches ``obs[g]``, each followed by a step of the average."""
    free = points.shape[1]  # log standard deviations, which come first; 0 if categorical
    for g in range(obs.shape[0]):
        layers = [obs[g]]
        at = free
        for i in range(len(sizes) - 1):
            width, out = sizes[i], sizes[i + 1]
            weight = theta[at : at + width * out].reshape(out, width)
            bias = theta[at + width * out : at + width * out + out]
            layer = np.dot(layers[i], weight.T) + bias
            if i < len(sizes) - 2:
                layer = np.maximum(layer, np.float32(0))
            elif squash:
                layer = np.tanh(layer)
            layers.append(layer)
            at += (width + 1) * out
        grads = np.zeros_like(theta)
        if len(errors[g]):
            back = _taken(layers[-1], act[g], errors[g])
        elif free:
            back = _gaussian(layers[-1], theta[:free], points, values[g], entropy, clip, grads)
        else:
            back = _candidates(layers[-1], values[g], entropy, clip)
        if squash:
            back *= 1 - layers[-1] * layers[-1]
        for i in range(len(sizes) - 2, -1, -1):
            width, out = sizes[i], sizes[i + 1]
            at -= (width + 1) * out
            grads[at : at + width * out] = np.dot(back.T, layers[i]).ravel()
            for b in range(len(back)):
                for j in range(out):
                    grads[at + width * out + j] += back[b, j]
            if i > 0:
                weight = theta[at : at + width * out].reshape(out, width)
                back = np.dot(back, weight)
                for b in range(len(back)):
                    for j in range(width):
                        if layers[i][b, j] <= 0:
                            back[b, j] = 0
        step += 1
        updates += 1
        keep = min(decay, updates / (updates + 10.0))
        first, second = 1 - 0.9**step, np.sqrt(1 - 0.999**step)
        for j in range(len(theta)):
            m[j] += np.float32(0.1) * (grads[j] - m[j])
            v[j] = np.float32(0.999) * v[j] + np.float32(0.001) * grads[j] * grads[j]
            theta[j] -= rate / first * m[j] / (np.sqrt(v[j]) / second + 1e-8)
            average[j] += (1.0 - keep) * (theta[j] - average[j])


@njit(cache=True)
def _candidates(logits, values, entropy, clip):  # type: ignore[no-untyped-def]
    """Gradient of the all-action loss by the logits, ``(B, C)``."""
    batch, width = logits.shape
    result = np.empty_like(logits)
    for b in range(batch):
        top = logits[b].max()
        total, mean = np.float32(0), np.float32(0)
        for k in range(width):
            result[b, k] = np.exp(logits[b, k] - top)
            total += result[b, k]
        for k in range(width):
            result[b, k] /= total
            mean += result[b, k] * values[b, k]
        # The loss is -sum_k p_k gain_k; its gradient by logit k is -p_k (gain_k - mean gain).
        gains = np.float32(0)
        for k in range(width):
            log_prob = logits[b, k] - top - np.log(total)
            gain = min(max(values[b, k] - mean, -clip), clip) - entropy * log_prob
            gains += result[b, k] * gain
        for k in range(width):
            log_prob = logits[b, k] - top - np.log(total)
            gain = min(max(values[b, k] - mean, -clip), clip) - entropy * log_prob
            result[b, k] *= (gains - gain) / batch
    return result


@njit(cache=True)
def _gaussian(means, log_std, points, values, entropy, clip, grads):  # type: ignore[no-untyped-def]
    """The same by the means of a Gaussian over candidate ``points (C, d)``; fills log std's."""
    batch, dims = means.shape
    logits = np.empty((batch, len(points)), np.float32)
    for b in range(batch):
        for k in range(len(points)):
            total = np.float32(0)
            for d in range(dims):
                apart = (points[k, d] - means[b, d]) * np.exp(-log_std[d])
                total += apart * apart
            logits[b, k] = np.float32(-0.5) * total
    by_logit = _candidates(logits, values, entropy, clip)
    result = np.zeros_like(means)
    for b in range(batch):
        for k in range(len(points)):
            for d in range(dims):
                apart = (points[k, d] - means[b, d]) * np.exp(-log_std[d])
                result[b, d] += by_logit[b, k] * apart * np.exp(-log_std[d])
                grads[d] += by_logit[b, k] * apart * apart
    return result


@njit(cache=True)
def _taken(logits, act, errors):  # type: ignore[no-untyped-def]
    """Gradient of the TD policy loss by the logits, ``(B, C)``."""
    batch, width = logits.shape
    result = np.empty_like(logits)
    for b in range(batch):
        top = logits[b].max()
        total = np.float32(0)
        for k in range(width):
            result[b, k] = np.exp(logits[b, k] - top)
            total += result[b, k]
        for k in range(width):
            hit = np.float32(k == act[b])
            result[b, k] = errors[b] * (result[b, k] / total - hit) / batch
    return result
