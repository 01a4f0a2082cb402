"""Hidden layers of all networks of a stack, there and back; see ``fused``.

Import this module only where there is Triton.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from nearl.population.aside import Aside
from nearl.population.fused import Precision, dense
from nearl.population.fused_gradients import input_gradient, weight_gradient
from nearl.population.networks import Layer


def hidden_layers(
    layers: Sequence[Layer],
    obs: Tensor,
    out: Sequence[Tensor],
    *,
    act: Tensor | None = None,
    rows: Tensor | None = None,
    precision: Precision,
) -> Tensor:
    """The hidden layers that ``out`` has room for, of pairs where ``act`` is given; the last one.

    Networks whose ``rows (M,)`` are 0 may be left out, here and below.
    """
    x, second = obs, act
    for layer, buffer in zip(layers, out, strict=False):
        heads = len(buffer) // len(x)
        x = dense(
            x,
            layer,
            buffer,
            second=second,
            heads=heads,
            epilogue="relu",
            precision=precision,
            rows=rows,
        )
        second = None
    return x


def hidden_gradients(
    layers: Sequence[Layer],
    gradient: Sequence[Layer],
    obs: Tensor,
    hidden: Sequence[Tensor],
    back: Sequence[Tensor],
    *,
    aside: Aside,
    act: Tensor | None = None,
    rows: Tensor | None = None,
    precision: Precision,
) -> None:
    """Write ``gradient`` of the hidden layers, where that of the last one's output is ``back[-1]``.

    What ``aside`` works on is joined in the end.
    """
    for i in range(len(hidden) - 1, 0, -1):
        with aside.work():
            weight_gradient(hidden[i - 1], back[i], gradient[i], precision=precision, rows=rows)
        weight = layers[i].weight
        input_gradient(back[i], weight, hidden[i - 1], back[i - 1], precision=precision, rows=rows)
    heads = len(back[0]) // len(obs)
    weight_gradient(
        obs, back[0], gradient[0], second=act, heads=heads, precision=precision, rows=rows
    )
    aside.join()
