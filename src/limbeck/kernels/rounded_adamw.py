"""`RoundedAdamW`: AdamW whose moments take half the memory, in bfloat16 with stochastic rounding.

The second moment changes by a thousandth a step (beta2 = 0.999), less than half of bfloat16's last digit: rounded to
the nearest it would stay where it is. Here a number is rounded up with the probability of what is cut off, so that its
expectation is the number itself. Weights, gradients and arithmetic are in float32, and a step reads its moments before
they are rounded.

Random bits are a hash of seed, step, weight and place: they do not depend on threads, draw nothing from PyTorch's
generators, and are the same in every process and in a resumed run. On a CPU a kernel in C computes a step in one pass
over memory; elsewhere, and without a compiler, PyTorch computes the same.
"""

import ctypes
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from limbeck.kernels.compiling import compile_kernel, read_function
from limbeck.kernels.workers import run_tasks

SOURCE = Path(__file__).with_suffix(".c")
# No fused products, which PyTorch's single operations have not; roots of negative numbers set no errno.
OPTIONS = ("-ffp-contract=off", "-fno-math-errno")
MOMENTS = ("exp_avg", "exp_avg_sq")
"""Names of the moments in the state, as of `torch.optim.AdamW`."""
COMPILED_PIECE = 1 << 18
"""Numbers of a task of the kernel."""
PIECE = 1 << 16
"""The same of PyTorch on a CPU, whose operands then stay in cache."""
_WORD = (1 << 32) - 1


class _Settings(NamedTuple):
    """What a step of a weight has in common; numbers, or scalars on a device that counts its steps itself.

    Attributes:
        decay: Factor of the weight.
        keep_first: beta1.
        add_first: 1 - beta1.
        keep_second: beta2.
        add_second: 1 - beta2.
        root: 1 / sqrt(1 - beta2^step).
        epsilon: Added to the root of the second moment.
        rate: Learning rate / (1 - beta1^step).
        start: Where the hash begins to count.
        key: Of the hash.
    """

    decay: float
    keep_first: float
    add_first: float
    keep_second: float
    add_second: float
    root: Any
    epsilon: float
    rate: Any
    start: Any
    key: Any


class _Struct(ctypes.Structure):
    """`settings` of the source."""

    _fields_ = tuple(
        (name, ctypes.c_uint32 if name in ("start", "key") else ctypes.c_float) for name in _Settings._fields
    )


class _Operands(NamedTuple):
    """A weight and what belongs to it, flat and dense."""

    weight: Tensor
    gradient: Tensor
    first: Tensor
    second: Tensor

    def pieces(self, size: int) -> Iterator[tuple["_Operands", int]]:
        """Yield pieces of a size, each with its place."""
        numbers = self.weight.numel()
        if 0 < numbers <= size:
            yield self, 0
            return
        for begin in range(0, numbers, size):
            yield _Operands(*(operand[begin : begin + size] for operand in self)), begin


@lru_cache(maxsize=1)
def kernel() -> Callable[..., None] | str:
    """Compile the kernel, or find it in the cache; or return why there is none, which is no error."""
    return compile_kernel(SOURCE, _read, _is_right, OPTIONS)


def _read(library: ctypes.CDLL) -> Callable[..., None]:
    operands = (ctypes.c_void_p,) * len(_Operands._fields)
    return read_function(library, "update", ctypes.POINTER(_Struct), *operands, ctypes.c_int64, ctypes.c_int64)


def _is_right(made: Callable[..., None]) -> bool:
    """Whether the kernel computes what PyTorch does, by a few numbers."""
    row = torch.arange(37, dtype=torch.float32).sub(17).mul(0.37)
    operands = [_Operands(row.sin(), row.cos(), row.sin().bfloat16(), row.square().bfloat16()) for _ in range(2)]
    settings = _settings(1e-2, (0.9, 0.999), 1e-8, 0.1, 3, keys=(5, 7))
    _compute(made, settings, operands[0], 0)
    _compute_by_pytorch(settings, operands[1], 0)
    return all(torch.equal(x, y) for x, y in zip(*operands, strict=True))


def _settings(
    lr: float, betas: tuple[float, float], eps: float, weight_decay: float, step: Any, keys: tuple[Any, Any]
) -> _Settings:
    (first, second), (start, key) = betas, keys
    root, rate = _correction(second, step) ** -0.5, lr / _correction(first, step)
    return _Settings(1 - lr * weight_decay, first, 1 - first, second, 1 - second, root, eps, rate, start, key)


def _correction(beta: float, step: Any) -> Any:
    """1 - beta^step; on a device without losing the digits that float32 has."""
    return -torch.expm1(step * math.log(beta)) if isinstance(step, Tensor) and beta else 1 - beta**step


def _compute(made: Callable[..., None], settings: _Settings, operands: _Operands, begin: int) -> None:
    pointers = (operand.data_ptr() for operand in operands)
    made(ctypes.byref(_Struct(*settings)), *pointers, begin, operands.weight.numel())


def _compute_by_pytorch(settings: _Settings, operands: _Operands, begin: int, bad: Tensor | None = None) -> None:
    """Compute a step of some numbers of a weight.

    Args:
        settings: Of the step.
        operands: Changed in place.
        begin: Place of the first number in the weight.
        bad: Bool scalar on the device; nothing is changed where it is true.
    """
    weight, gradient, first, second = operands
    places = torch.arange(begin, begin + weight.numel(), device=weight.device)
    random = _mix((places + settings.start) & _WORD, settings.key)
    m = first.float() * settings.keep_first + gradient * settings.add_first
    v = second.float() * settings.keep_second + gradient * settings.add_second * gradient
    # PyTorch's root in float32 may be off by a last digit on a CPU; of float64 none is left.
    root = v.double().sqrt().float() if weight.device.type == "cpu" else v.sqrt()
    moved = weight * settings.decay - m / (root * settings.root + settings.epsilon) * settings.rate
    found = (moved, _round(m, random & 0xFFFF), _round(v, random >> 16))
    for old, new in zip((weight, first, second), found, strict=True):
        old.copy_(new if bad is None else torch.where(bad, old, new))


def _round(value: Tensor, random: Tensor) -> Tensor:
    """Round float32 to bfloat16, up with the probability of what is cut off; `random` has 16 bits."""
    return ((value.view(torch.int32) + random.int()) >> 16).to(torch.int16).view(torch.bfloat16)


def _mix(x: Any, key: Any) -> Any:
    """Scramble numbers of 32 bits; one to one in each argument while the other stays."""
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & _WORD
    x = x ^ (x >> 15)
    x = ((x + key) * 0x846CA68B) & _WORD
    return x ^ (x >> 16)


def random_keys(seed: int, stream: int, step: Any) -> tuple[Any, Any]:
    """Return where the hash of a weight's random bits begins to count, and its key.

    Args:
        seed: Of the optimizer.
        stream: Number of the weight.
        step: A number, or an int64 scalar on a device.
    """
    base = _mix(_mix(seed & _WORD, (seed >> 32) & _WORD), stream)
    return _mix(base, step), _mix(base ^ _WORD, step)


class RoundedAdamW(torch.optim.Optimizer):
    """AdamW whose moments are in bfloat16, rounded stochastically; weights and arithmetic are in float32.

    m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g², w = (1 - lr weight_decay) w - lr m̂ / (sqrt(v̂) + eps),
    as `torch.optim.AdamW` has it (Loshchilov and Hutter, 2019), with the names of its state. It takes the flag
    `found_inf` of fused optimizers: where it is set, a step changes nothing.

    Args:
        params: Weights in float32, or groups of them.
        lr: Learning rate.
        betas: Decay of the moments.
        eps: Added to the root of the second moment.
        weight_decay: Share of the weight, times `lr`, that is taken off in a step.
        seed: Of the random bits.

    Raises:
        ValueError: for weights in another format.
    """

    found_inf: Tensor | None = None

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        seed: int = 0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "seed": seed})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of weights, which are numbered on from those there are."""
        before = sum(len(group["params"]) for group in self.param_groups)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for weight in group["params"]:
            if weight.dtype != torch.float32:
                raise ValueError(f"Moments in bfloat16 are for weights in float32, not in {weight.dtype}.")
        group["streams"] = list(range(before, before + len(group["params"])))

    def number_weights(self, sets: Iterable[Iterable[Tensor]]) -> None:
        """Number the weights anew, in each set from 0: models side by side draw the bits that each draws alone.

        Args:
            sets: The weights of each model, in its order; every weight of the optimizer is in one.
        """
        numbers = {weight: number for own in sets for number, weight in enumerate(own)}
        for group in self.param_groups:
            group["streams"] = [numbers[weight] for weight in group["params"]]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave; moments stay in bfloat16, which PyTorch would widen."""
        super().load_state_dict({**state_dict, "state": {}})
        saved = [key for group in state_dict["param_groups"] for key in group["params"]]
        weights = [weight for group in self.param_groups for weight in group["params"]]
        for key, weight in zip(saved, weights, strict=True):
            if key in state_dict["state"]:
                state = state_dict["state"][key]
                self.state[weight] = {name: value.to(weight.device) for name, value in state.items()}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take a step.

        Args:
            closure: Computes the loss and its gradients anew.

        Returns:
            The loss of `closure`.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        bad = None if self.found_inf is None else self.found_inf.bool()
        if bad is not None and bad.device.type == "cpu":
            if bad:
                return loss
            bad = None
        for device in {weight.device for group in self.param_groups for weight in group["params"]}:
            run_tasks(list(self._tasks(device, bad)), device.type)
        return loss

    def _tasks(self, device: torch.device, bad: Tensor | None) -> Iterator[Callable[[], None]]:
        for group in self.param_groups:
            for weight, stream in zip(group["params"], group["streams"], strict=True):
                if weight.grad is not None and weight.device == device:
                    yield from self._tasks_of(weight, group, stream, bad)

    def _tasks_of(
        self, weight: Tensor, group: dict[str, Any], stream: int, bad: Tensor | None
    ) -> Iterator[Callable[[], None]]:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), device=weight.device)
            for name in MOMENTS:
                state[name] = torch.zeros(weight.shape, dtype=torch.bfloat16, device=weight.device)
        state["step"] += 1 if bad is None else ~bad
        on_cpu = weight.device.type == "cpu"
        # Elsewhere asking for the count would wait for the device.
        step: Any = int(state["step"]) if on_cpu else state["step"]
        keys = random_keys(group["seed"], stream, step if on_cpu else step.long())
        settings = _settings(group["lr"], group["betas"], group["eps"], group["weight_decay"], step, keys)
        made = kernel() if on_cpu else ""
        compute = partial(_compute_by_pytorch, bad=bad) if isinstance(made, str) else partial(_compute, made)
        assert weight.grad is not None
        given = (weight.detach(), weight.grad.contiguous(), *(state[name] for name in MOMENTS))
        if not weight.is_contiguous():
            yield partial(_compute_apart, compute, settings, given)
            return
        operands = _Operands(*(x.view(-1) for x in given))
        size = (PIECE if isinstance(made, str) else COMPILED_PIECE) if on_cpu else max(weight.numel(), 1)
        for piece, begin in operands.pieces(size):
            yield partial(compute, settings, piece, begin)


def _compute_apart(compute: Callable[..., None], settings: _Settings, given: Sequence[Tensor]) -> None:
    """Compute a step of a weight that is not contiguous."""
    weight, *others = given
    dense = weight.contiguous()
    compute(settings, _Operands(*(x.view(-1) for x in (dense, *others))), 0)
    weight.copy_(dense)
