"""The body of a network on a GPU as CUDA graphs, which start all kernels of a pass at once.

A small network takes the GPU less time than Python takes to start its kernels one by one. A graph repeats the
kernels of a pass on the same memory, so there is one for each shape of the arguments, captured when the shape
comes for the second time. A body that waits for the GPU in its pass cannot be captured and runs as it is.
"""

import warnings
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Parameter

from memtune.gc_pause import pause_gc
from memtune.models.architecture import Encode, NeuralLanguageModel, RecurrentState

MAX_GRAPHS = 256
"""Shapes with a graph; later ones run without."""
WARM_UP_PASSES = 2
"""Before a capture, in which the libraries may not load kernels or reserve workspaces."""


class GraphedBody:
    """A network's `encode`, whose training passes are graphs. The returned state is detached.

    A graph keeps one pass: a second one before the backward pass of the first runs without a graph.
    """

    def __init__(self, model: NeuralLanguageModel) -> None:
        self._model = ref(model)  # which holds this body, and whose memory is freed with its last reference
        self._context = CaptureContext(next(model.parameters()).device)
        self._gradients: dict[str, Tensor] = {}
        self._passes: dict[Hashable, CapturedPass] = {}
        self._seen: Counter[Hashable] = Counter()
        self._running: CapturedPass | None = None
        self.can_capture = True

    def __call__(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """hidden_BTH and the state after the last word."""
        model = self._model()
        assert model is not None
        is_training_pass = model.training and torch.is_grad_enabled()
        can_capture = is_training_pass and self.can_capture and self._running is None
        captured = self._find_pass(model, tokens_BT, state) if can_capture else None
        if captured is None:
            return type(model).encode(model, tokens_BT, state)
        self._running = captured
        captured.run_forward(tokens_BT, state)
        hidden_BTH = _Pass.apply(self, captured, *captured.parameters)  # type: ignore[no-untyped-call]
        return hidden_BTH, {name: tensor.clone() for name, tensor in captured.after.items()}

    def _find_pass(
        self, model: NeuralLanguageModel, tokens_BT: Tensor, state: RecurrentState
    ) -> "CapturedPass | None":
        shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in sorted(state.items()))
        precision = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        key = (tokens_BT.shape, shapes, precision)
        self._seen[key] += 1
        if key in self._passes or self._seen[key] == 1 or len(self._passes) == MAX_GRAPHS:
            return self._passes.get(key)
        # A hook on a gradient would become a part of the graph, and be called for the graph's gradient too.
        if any(parameter._backward_hooks for parameter in model.parameters()):
            return None
        try:
            self._passes[key] = self._capture(model, tokens_BT, state)
        except RuntimeError:  # torch's error for what waits for the GPU, has no graph, or needs more memory
            self.can_capture = False
            self._passes.clear()
            # Only a capture that ends well returns torch's random states to those that can be drawn from.
            with torch.cuda.device(tokens_BT.device), torch.cuda.graph(torch.cuda.CUDAGraph()):
                torch.zeros(1, device=tokens_BT.device)
        return self._passes.get(key)

    def _capture(
        self, model: NeuralLanguageModel, tokens_BT: Tensor, state: RecurrentState
    ) -> "CapturedPass":
        """Capture a pass; buffers and random states are as before."""
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        random_state = torch.cuda.get_rng_state(tokens_BT.device)
        # torch leaves a stream on which a capture fails as the current one. A graph that the garbage
        # collector deletes, such as one of an earlier trial, makes it fail.
        current = torch.cuda.current_stream(tokens_BT.device)
        try:
            with torch.cuda.device(tokens_BT.device), torch.cuda.stream(current), pause_gc():
                return CapturedPass(model, tokens_BT, state, self._context, self._gradients)
        finally:
            torch.cuda.set_rng_state(random_state, tokens_BT.device)
            for buffer, value in buffers:
                buffer.copy_(value)

    def end_pass(self) -> None:
        """Let the next pass run as a graph."""
        self._running = None


class _Pass(torch.autograd.Function):
    """Connects the graph of a backward pass with autograd."""

    @staticmethod
    def forward(ctx: Any, body: GraphedBody, captured: "CapturedPass", *parameters: Tensor) -> Tensor:
        ctx.body, ctx.captured = body, captured
        return captured.hidden_BTH.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTH: Tensor) -> tuple[Tensor | None, ...]:
        ctx.body.end_pass()
        return None, None, *ctx.captured.run_backward(gradient_BTH)


class CaptureContext:
    """The stream on which passes of a body are captured, and the memory of their graphs.

    Passes never overlap, so that all have the same memory. One stream has one workspace of cuBLAS.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        """Context of passes that run; raises RuntimeError for one that waits for the GPU.

        A capture of such a pass fails too, and leaves more behind.
        """
        current, mode = torch.cuda.current_stream(), torch.cuda.get_sync_debug_mode()
        self._stream.wait_stream(current)
        _set_sync_debug_mode("error")
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            _set_sync_debug_mode(mode)
            current.wait_stream(self._stream)

    def capture(self, graph: torch.cuda.CUDAGraph) -> AbstractContextManager[None]:
        """Context whose kernels do not run, but become the graph's."""
        # Other threads of the process may use the GPU.
        options: Any = {"pool": self._pool, "stream": self._stream, "capture_error_mode": "thread_local"}
        return torch.cuda.graph(graph, **options)


class CapturedPass:
    """The graphs of a forward and a backward pass for one shape."""

    parameters: list[Parameter]
    """Those that the body reads."""

    def __init__(
        self,
        model: NeuralLanguageModel,
        tokens_BT: Tensor,
        state: RecurrentState,
        context: CaptureContext,
        gradients: dict[str, Tensor],
    ) -> None:
        self._tokens_BT = tokens_BT.clone()
        self._state = {name: tensor.detach().clone() for name, tensor in state.items()}
        named = {name: each for name, each in model.named_parameters() if each.requires_grad}
        encode = partial(type(model).encode, model)
        with context.warm_up():
            read = self._find_read(encode, named)
        self.parameters = [named[name] for name in read]
        for name in read:
            gradients.setdefault(name, torch.empty_like(named[name]))
        self._gradients = [gradients[name] for name in read]
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with context.capture(self._forward), _keep_autocast():
            hidden_BTH, after = encode(self._tokens_BT, self._state)
        self._hidden_gradient_BTH = torch.empty_like(hidden_BTH)
        with context.capture(self._backward), _leave_autocast():
            found = torch.autograd.grad(hidden_BTH, self.parameters, self._hidden_gradient_BTH)
            torch._foreach_copy_(self._gradients, found)
        self.hidden_BTH = hidden_BTH.detach()
        self.after = {name: tensor.detach() for name, tensor in after.items()}

    def _find_read(self, encode: Encode, named: dict[str, Parameter]) -> list[str]:
        """The names of the parameters that the body reads, from passes without a graph."""
        for _ in range(WARM_UP_PASSES):
            with _keep_autocast():
                hidden_BTH, _ = encode(self._tokens_BT, self._state)
            with _leave_autocast():
                zeros_BTH = torch.zeros_like(hidden_BTH)
                gradients = torch.autograd.grad(
                    hidden_BTH, list(named.values()), zeros_BTH, allow_unused=True
                )
        return [name for name, gradient in zip(named, gradients, strict=True) if gradient is not None]

    def run_forward(self, tokens_BT: Tensor, state: RecurrentState) -> None:
        """Compute `hidden_BTH` and `after`."""
        self._tokens_BT.copy_(tokens_BT)
        for name, tensor in state.items():
            self._state[name].copy_(tensor)
        self._forward.replay()

    def run_backward(self, gradient_BTH: Tensor) -> tuple[Tensor, ...]:
        """The gradients of `parameters`."""
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            # Autograd takes a returned gradient as the parameter's own; the one before is added to the next.
            if parameter.grad is not None and parameter.grad.data_ptr() == gradient.data_ptr():
                parameter.grad = parameter.grad.clone()
        self._hidden_gradient_BTH.copy_(gradient_BTH)
        self._backward.replay()
        return tuple(gradient.detach() for gradient in self._gradients)


def _set_sync_debug_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is a prototype that does not find everything
        torch.cuda.set_sync_debug_mode(mode)


def _keep_autocast() -> AbstractContextManager[Any]:
    """The autocast of the caller, without its cache of converted weights, which a graph must convert anew."""
    if not torch.is_autocast_enabled("cuda"):
        return nullcontext()
    return torch.autocast("cuda", torch.get_autocast_dtype("cuda"), cache_enabled=False)


def _leave_autocast() -> AbstractContextManager[Any]:
    """The context of a backward pass, which is not within the autocast of the forward pass."""
    return torch.autocast("cuda", enabled=False)
