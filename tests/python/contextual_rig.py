"""Stand-in kernels for contextual tuning: Triton's own Autotuner over a function that notes its
launches and takes a script's time."""

from __future__ import annotations

from types import SimpleNamespace

from triton.runtime.autotuner import Autotuner, Config


class Tensor:
    """What a key sees of a tensor."""

    def __init__(self, dtype="float32", value=0):
        self.dtype = dtype
        self.value = value

    def zero_(self):
        self.value = 0

    def clone(self):
        return Tensor(self.dtype, self.value)

    def copy_(self, other):
        self.value = other.value


class Function:
    """Launches in place of a JIT function: what it got, and how long it takes."""

    def __init__(self, clock, cost, name="kernel", arg_names=("x", "n", "BLOCK")):
        def body():
            pass

        body.__name__ = body.__qualname__ = name
        self.fn = body
        self.arg_names = list(arg_names)
        self.launches = []
        self._clock = clock
        self._cost = cost
        self.on_launch = None

    def run(self, *args, grid, warmup, **kwargs):
        named = {**dict(zip(self.arg_names, args)), **kwargs}
        launch = SimpleNamespace(args=args, kwargs=kwargs, named=named, block=named["BLOCK"])
        self.launches.append(launch)
        if self.on_launch is not None:
            self.on_launch(launch)
        self._clock.spend(self._cost(launch.block))
        return ("compiled", launch.block)


def make_kernel(clock, blocks=(4, 2), key=("n",), cost=lambda block: 1000 * block, name="kernel",
                arg_names=("x", "n", "BLOCK"), cls=Autotuner, configs=None, **options):  # fmt: skip
    fn = Function(clock, cost, name, arg_names)
    if configs is None:
        configs = [Config({"BLOCK": block}) for block in blocks]
    return cls(
        fn,
        fn.arg_names,
        configs,
        list(key),
        options.pop("reset_to_zero", None),
        options.pop("restore_value", None),
        **options,
    )


def blocks_of(kernel):
    return [launch.block for launch in kernel.fn.launches]


def log_text(logs):
    return (logs / "rank-0.log").read_text()
