"""The CUDA back-end: its procedure against a stand-in of torch.cuda, and, with a device, for real."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_capture import (
    CaptureError,
    CudaBackend,
    GraphedStep,
    GuardedRegion,
    ModuleCertificate,
    Reason,
    TapeBackend,
    same_bytes,
    verify,
)

MakeNet = Callable[[], nn.Module]


class Graph:
    """Replays by running again what was run while it was being captured; Python is not run."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.tape: Any = None
        self.generators: list[torch.Generator] = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.generators.append(generator)

    def replay(self) -> None:
        self.log.append("replay")
        self.tape()

    def reset(self) -> None:
        self.log.append("reset")
        self.tape = None


class Cuda:
    """As much of torch.cuda as the back-end uses, on the CPU, with a log of what was asked."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.captures: list[dict[str, Any]] = []
        self.graphs: list[Graph] = []

    def CUDAGraph(self) -> Graph:
        self.graphs.append(Graph(self.log))
        return self.graphs[-1]

    def Stream(self) -> Any:
        self.log.append("new stream")
        return self._stream("side")

    def current_stream(self) -> Any:
        return self._stream("main")

    def _stream(self, name: str) -> Any:
        cuda = self

        class Stream:
            cuda_stream = name

            def wait_stream(self, other: Any) -> None:
                cuda.log.append(f"{name} waits for {other.cuda_stream}")

        return Stream()

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.log.append(f"on {stream.cuda_stream}")
        yield
        self.log.append(f"off {stream.cuda_stream}")

    @contextmanager
    def graph(
        self, graph: Graph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
    ) -> Iterator[None]:
        from lucid_capture.tape import _Recorder, _replay

        self.log.append("capture")
        self.captures.append({"pool": pool, "stream": stream, "mode": capture_error_mode})
        with _Recorder() as recorder:
            yield
        graph.tape = lambda: _replay(recorder.entries)

    def graph_pool_handle(self) -> tuple[int, int]:
        self.log.append("new pool")
        return (0, 1)

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return False

    def current_device(self) -> int:
        return 0

    def memory_allocated(self) -> int:
        return 100 * len(self.captures)

    def get_rng_state_all(self) -> list[Tensor]:
        return []

    def set_rng_state_all(self, states: list[Tensor]) -> None: ...


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    stand_in = Cuda()
    for name in (n for n in dir(stand_in) if not n.startswith("_") and hasattr(torch.cuda, n)):
        monkeypatch.setattr(torch.cuda, name, getattr(stand_in, name))
    monkeypatch.setattr(CudaBackend, "refusal", lambda self, tensors: None)
    return stand_in


def square(tensors: Any) -> Any:
    return (tensors[0] * tensors[0],)


def test_warm_up_runs_on_the_side_stream_which_waits_and_is_waited_for(cuda: Cuda) -> None:
    runs = []

    def work(tensors: Any) -> Any:
        runs.append(len(cuda.captures))
        return square(tensors)

    CudaBackend(warmup=2).record(work, [torch.ones(2)], (), differentiable=False)
    assert runs == [0, 0, 1]
    assert cuda.log[:6] == [
        "new stream",
        "side waits for main",
        "on side",
        "off side",
        "main waits for side",
        "synchronize",
    ]


def test_every_capture_shares_pool_and_stream_in_the_thread_local_mode(cuda: Cuda) -> None:
    backend = CudaBackend(warmup=1)
    for _ in range(2):
        backend.record(square, [torch.ones(2, requires_grad=True)], (), differentiable=True)
    assert len(cuda.captures) == 4
    assert {c["pool"] for c in cuda.captures} == {(0, 1)}
    assert {c["mode"] for c in cuda.captures} == {"thread_local"}
    assert len({id(c["stream"]) for c in cuda.captures}) == 1
    assert (cuda.log.count("new pool"), cuda.log.count("new stream")) == (1, 1)


def test_every_generator_is_registered_with_every_graph(cuda: Cuda) -> None:
    own = torch.Generator()
    CudaBackend(generators=(own,)).record(square, [torch.ones(1, requires_grad=True)], (), True)
    assert [g.generators for g in cuda.graphs] == [[own], [own]]


def test_saved_values_outlive_the_capture(cuda: Cuda) -> None:
    recording = CudaBackend().record(square, [torch.full((2,), 3.0, requires_grad=True)], (), True)
    # a freed graph would have given its saved values back to the pool, and raises here
    (output,) = recording.kept
    leaf = output.grad_fn.next_functions[0][0].variable
    assert torch.autograd.grad(output.sum(), leaf)[0].tolist() == [6.0, 6.0]
    recording.inputs[0].fill_(5.0)
    recording.launch_forward()
    recording.output_grads[0].fill_(1.0)
    recording.launch_backward()
    assert recording.input_grads[0].tolist() == [10.0, 10.0]


def test_a_pure_recording_has_no_backward_graph(cuda: Cuda) -> None:
    recording = CudaBackend().record(square, [torch.ones(1)], (), differentiable=False)
    assert len(cuda.graphs) == 1
    with pytest.raises(RuntimeError, match="no backward"):
        recording.launch_backward()


def test_a_refused_capture_names_the_doctor_and_counts_as_a_failure(cuda: Cuda) -> None:
    def work(tensors: Any) -> Any:
        if cuda.captures:
            raise RuntimeError("operation not permitted when stream is capturing")
        return square(tensors)

    backend = CudaBackend()
    with pytest.raises(CaptureError, match=r"not permitted.*doctor"):
        backend.record(work, [torch.ones(1)], (), differentiable=False)
    assert (backend.stats.failures, backend.stats.records, backend.in_capture()) == (1, 0, False)


def test_reset_frees_both_graphs_and_nothing_launches_afterwards(cuda: Cuda) -> None:
    recording = CudaBackend().record(square, [torch.ones(1, requires_grad=True)], (), True)
    assert recording.owned_bytes() == 200
    recording.reset()
    assert (cuda.log.count("reset"), recording.owned_bytes(), recording.kept) == (2, 0, ())
    with pytest.raises(RuntimeError, match="reset"):
        recording.launch_forward()


def test_the_weight_cache_of_autocast_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: True)
    with pytest.raises(CaptureError, match="cache"):
        CudaBackend().record(square, [torch.ones(1)], (), False)


def test_a_region_trains_to_native_bytes_through_the_procedure(
    toy: Any, make_net: MakeNet, make_region: Callable[..., GuardedRegion], cuda: Cuda
) -> None:
    native, replayed = make_net(), make_net()
    region = make_region(replayed, backend=CudaBackend())
    result = same_bytes(toy.train(native, native, 3, 2), toy.train(region, replayed, 3, 2))
    assert result, str(result)
    assert region.counts[Reason.REPLAYED] == 5
    assert cuda.log.count("replay") == 12


def test_it_can_be_built_without_a_device() -> None:
    backend = CudaBackend()
    backend.synchronize()
    assert backend.refusal([torch.zeros(1)]) is not None
    assert not backend.in_capture()


# with a device


@pytest.fixture
def deterministic() -> Iterator[None]:
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("deterministic")
class TestOnADevice:
    """The contract of the tape, on CUDA graphs."""

    def net(self, make_net: MakeNet) -> nn.Module:
        return make_net().cuda()

    @pytest.mark.parametrize("precision", [None, torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("accumulate", [1, 3])
    def test_training_gives_native_bytes(
        self, toy: Any, make_net: MakeNet, precision: torch.dtype | None, accumulate: int
    ) -> None:
        native, replayed = self.net(make_net), self.net(make_net)
        region = GuardedRegion(
            "net",
            replayed,
            backend=CudaBackend(),
            certificate=ModuleCertificate(replayed),
            differentiable=True,
            record_after=0,
        )

        def cast(call: Callable[..., Any]) -> Callable[..., Any]:
            def run(image: Tensor) -> Any:
                enabled = precision is not None
                with torch.autocast("cuda", precision or torch.float16, enabled=enabled, cache_enabled=False):
                    return {k: v.float() for k, v in call(image.cuda()).items()}

            return run

        expected = toy.train(cast(native), native, 4, accumulate)
        actual = toy.train(cast(region), replayed, 4, accumulate)
        result = same_bytes(expected, actual)
        assert result, str(result)
        assert region.launches.forward == 4 * accumulate
        assert region.launches.backward == 4 * accumulate

    def test_regions_that_share_the_pool_may_interleave(self) -> None:
        backend = CudaBackend()
        torch.manual_seed(0)
        nets = [nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64)).cuda() for _ in range(2)]
        twins = copy.deepcopy(nets)
        regions = [
            GuardedRegion(
                f"n{i}",
                net,
                backend=backend,
                certificate=ModuleCertificate(net),
                differentiable=True,
                record_after=0,
            )
            for i, net in enumerate(nets)
        ]
        for step in range(4):
            x = torch.randn(8, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
            for first, second, owners in ((*regions, nets), (*twins, twins)):
                for owner in owners:
                    owner.zero_grad()
                second(first(x)).square().mean().backward()
        grads = [[p.grad for net in group for p in net.parameters()] for group in (nets, twins)]
        assert same_bytes(*grads)

    def test_gradients_survive_the_next_forward_with_large_temporaries(self) -> None:
        w = nn.Parameter(torch.ones(1024, device="cuda"))

        def work(x: Tensor) -> Tensor:
            big = x[:, None] * w[None, :]
            return (big.sin() * big.cos()).sum(0)

        region = GuardedRegion(
            "big",
            lambda x, p: work(x),
            backend=CudaBackend(),
            differentiable=True,
            record_after=0,
        )
        for _ in range(3):
            w.grad = None
            region(torch.ones(512, device="cuda"), w).sum().backward()
            assert w.grad is not None
            before = w.grad.clone()
            region(torch.ones(512, device="cuda"), w)
            region.release()
            assert same_bytes(before, w.grad)

    def test_another_stream_is_native(self, toy: Any, make_net: MakeNet) -> None:
        net = self.net(make_net)
        region = GuardedRegion(
            "net",
            net,
            backend=CudaBackend(),
            certificate=ModuleCertificate(net),
            differentiable=True,
            record_after=0,
        )
        toy.scalar(region(toy.images(0).cuda())).backward()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            toy.scalar(region(toy.images(0).cuda())).backward()
        torch.cuda.synchronize()
        assert region.counts[Reason.STREAM] == 1

    @pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
    def test_a_whole_step_is_verified(self, toy: Any, make_net: MakeNet, optimizer: Any) -> None:
        net = self.net(make_net)
        options = {"momentum": 0.9} if optimizer is torch.optim.SGD else {"capturable": True}
        step = GraphedStep(
            net,
            lambda image: toy.scalar(net(image)),
            optimizer(net.parameters(), lr=0.01, fused=True, **options),
            backend=CudaBackend(),
            clip_norm=1.0,
            ema_decay=0.99,
        )
        verdict = verify(step, [(toy.images(i).cuda(),) for i in range(3)])
        assert verdict, str(verdict)

    def test_work_that_reads_on_the_host_cannot_be_captured(self) -> None:
        region = GuardedRegion("f", lambda x: x * x.sum().item(), backend=CudaBackend(), record_after=0)
        with pytest.raises(CaptureError):
            region(torch.ones(2, device="cuda"))
        assert region.owned_bytes() == 0

    def test_the_tape_refuses_device_tensors(self) -> None:
        assert "cuda" in str(TapeBackend().refusal([torch.ones(1, device="cuda")]))
