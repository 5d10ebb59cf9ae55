"""Time: stopwatches on a device that keeps its own, and programs looked at by JAX."""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import mean, median

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from d2l_gpu.exercises.gpus import Gpus
from d2l_gpu.exercises.jax.port import PORT, compilations
from d2l_gpu.exercises.registry import Claim, Registry, Run
from d2l_gpu.exercises.shared.lesson_05 import wrong_norms
from d2l_gpu.vgpu.sim.catalogue import MODELS

EXERCISES = Registry()

# ------------------------------------------------------------------ a stopwatch

REPEATS = 7
QUEUEING, COMPILING = 1e-4, 2.0  # seconds
# How long runs take on the device, over and over again. The median of any seven in a
# row is that of the middle two.
RUNS = (0.08, 0.1, 0.1, 0.3)


class Device:
    """A device with a clock of its own, and a program that runs there."""

    def __init__(self) -> None:
        self.now = self.free = 0.0
        self.calls = self.reads = 0

    def clock(self) -> float:
        self.reads += 1
        return self.now

    def program(self) -> dict:
        self.now += QUEUEING + COMPILING * (not self.calls)
        start, took = max(self.now, self.free), RUNS[self.calls % len(RUNS)]
        self.free = start + took
        self.calls += 1
        return {"a": Result(self, start + 0.02), "b": [Result(self, self.free)]}


class Result:
    """Stands for an array that has been queued."""

    def __init__(self, device: Device, done: float):
        self._device, self._done = device, done

    def block_until_ready(self) -> "Result":
        self._device.now = max(self._device.now, self._done)
        return self

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        self.block_until_ready()
        return np.zeros(1)


def _stopped(answer: Callable, gpus: Gpus) -> dict:
    """Return the seconds that an answer measured, and how."""
    device = Device()
    value = answer(device.program, device.clock, REPEATS)
    return {"value": float(value), "calls": device.calls, "reads": device.reads}


def _runs(
    program: Callable,
    clock: Callable,
    repeats: int,
    wait: Callable = jax.block_until_ready,
) -> list[float]:
    """Return the seconds of each run, measured in some way."""
    jax.block_until_ready(program())
    took = []
    for _ in range(repeats):
        start = clock()
        wait(program())
        took.append(clock() - start)
    return took


def _together(program: Callable, clock: Callable, repeats: int) -> float:
    jax.block_until_ready(program())
    start = clock()
    jax.block_until_ready([program() for _ in range(repeats)])
    return (clock() - start) / repeats


def _nothing(results: object) -> None:
    pass


def _first(results: dict) -> None:
    results["a"].block_until_ready()


_STOPWATCHES = {
    "That's how long Python takes to queue a run: you read the clock before the "
    "results have been computed.": lambda *a: median(_runs(*a, wait=_nothing)),
    "That's when the first of the results has been computed. A program may return "
    "several of them.": lambda *a: median(_runs(*a, wait=_first)),
    "That's the average of the runs. A single slow one pulls it up; the median doesn't "
    "care.": lambda *a: mean(_runs(*a)),
    "That's the fastest run, not the median.": lambda *a: min(_runs(*a)),
    "That's the average of runs that were all queued at once. Wait for each run before "
    "you start the next.": _together,
    "That's the time of all runs together, not of one.": lambda *a: sum(_runs(*a)),
}


@EXERCISES.add("05.1", "program, clock, repeats", returns=(float, np.floating))
def seconds(run: Run):
    found = run(_stopped)
    yield Claim(
        "it runs the program and reads `clock`",
        found["calls"] > 0 and found["reads"] > 1,
        "You never call `program`."
        if not found["calls"]
        else "You read another clock. Any other clock knows nothing of this device.",
    )
    if not found["calls"] or found["reads"] < 2:
        return
    yield Claim(
        "the first call isn't one of the timed runs",
        found["calls"] > REPEATS,
        f"You called `program` {found['calls']} times for {REPEATS} timed runs: there "
        "was no call that you left out.",
    )
    if found["calls"] <= REPEATS:
        return
    device = Device()
    right = median(_runs(device.program, device.clock, REPEATS))
    yield Claim(
        "it returns the median time of a run",
        math.isclose(found["value"], right, rel_tol=1e-6),
        _wrong_time(found["value"], right),
    )


def _wrong_time(value: float, right: float) -> str:
    for hint, stopwatch in _STOPWATCHES.items():
        device = Device()
        wrong = stopwatch(device.program, device.clock, REPEATS)
        if math.isclose(value, wrong, rel_tol=1e-6):
            return hint
    return f"The median run takes {right:.4f} s, but you return {value:.4f} s."


# ------------------------------------------------------------------ batches

WIDTH, MOST = 8, 256
BATCHES = (1, 2, 3, 5, 6, 7, 8, 9, 12, 16, 17, 31, 33, 50, 64, 65, 77, 100, 128)
BATCHES = (*BATCHES, 129, 150, 199, 201, 255, 256)
PROGRAMS = 9  # 1, 2, 4 … 256


def _weights() -> np.ndarray:
    return np.linspace(-1, 1, WIDTH * 3, dtype=np.float32).reshape(WIDTH, 3)


def _examples(n: int) -> np.ndarray:
    return np.sin(np.arange(n * WIDTH, dtype=np.float32)).reshape(n, WIDTH)


def _served(answer: Callable, gpus: Gpus) -> dict:
    """Return how often an answer called a model and what was compiled."""
    traced: list[int] = []
    given: list[list[int]] = []
    W = jax.device_put(_weights(), gpus[0])

    @jax.jit
    def compiled(X):
        traced.append(len(X))
        return jnp.tanh(X @ W) + 1

    def model(X):
        given[-1].append(len(X))
        return compiled(X)

    before, errors, lengths = compilations(), [], []
    for n in BATCHES:
        given.append([])
        result = answer(model, _examples(n))
        right = np.tanh(_examples(n) @ _weights()) + 1
        lengths.append(len(result))
        same = result.shape == right.shape
        errors.append(float(abs(result - right).max()) if same else math.inf)
    return {
        "errors": errors,
        "lengths": lengths,
        "given": given,
        "traced": traced,
        "compiled": compilations() - before,
    }


@EXERCISES.add("05.2", "model, X", returns=np.ndarray)
def in_buckets(run: Run):
    found = run(_served)
    lengths = found["lengths"]
    yield Claim(
        "it returns one row for each example",
        lengths == list(BATCHES),
        next(
            (
                f"For {n} examples you return {length} rows."
                for n, length in zip(BATCHES, lengths, strict=True)
                if n != length
            ),
            "",
        ),
    )
    if lengths != list(BATCHES):
        return
    worst = max(found["errors"])
    yield Claim(
        "the rows are the model's, in the order of the examples",
        worst < 1e-4,
        "Some rows aren't the model's outputs for the examples of the batch. Where in "
        "your padded batch are the examples?",
    )
    calls = max(len(each) for each in found["given"])
    yield Claim(
        "it calls the model once for a batch",
        calls == 1,
        f"You called it {calls} times for one batch, and paid the dispatch overhead "
        "each time.",
    )
    if calls != 1:
        return
    programs = len(found["traced"])
    yield Claim(
        f"the model is compiled for at most {PROGRAMS} sizes",
        programs <= PROGRAMS,
        f"It was compiled {programs} times for {len(BATCHES)} sizes of a batch. Which "
        "sizes could share a program?",
    )
    given = [each[0] for each in found["given"]]
    n, rows = max(zip(BATCHES, given, strict=True), key=lambda pair: pair[1] / pair[0])
    yield Claim(
        "the model gets fewer than twice as many rows as there are examples",
        rows < 2 * n,
        f"For {n} example{'s' * (n > 1)} you gave the model {rows} rows.",
    )
    others = found["compiled"] - programs
    yield Claim(
        "nothing else is compiled for each size",
        others <= 2,
        f"Apart from the model, JAX compiled {others} programs. An operation on a JAX "
        "array is a program, too, one for each shape; NumPy's operations aren't.",
    )


# ------------------------------------------------------------------ find what's slow

EXAMPLES, FEATURES, CLASSES = 12, 5, 3
STEPS = (6, 11)


def _loss(params, x, y):
    logits = x @ params["W"] + params["b"]
    return jax.nn.logsumexp(logits) - logits[y]


def _data() -> tuple[dict, np.ndarray, np.ndarray]:
    W = np.cos(np.arange(FEATURES * CLASSES, dtype=np.float32))
    params = {"W": W.reshape(FEATURES, CLASSES), "b": np.zeros(CLASSES, np.float32)}
    X = np.sin(np.arange(EXAMPLES * FEATURES, dtype=np.float32) ** 2)
    y = (np.arange(EXAMPLES) % CLASSES).astype(np.int32)
    return params, X.reshape(EXAMPLES, FEATURES), y


def _rates(steps: int) -> list[float]:
    return [0.5 / (1 + i) for i in range(steps)]


class Rates(list):
    """Learning rates that note how many values were fetched when each was read."""

    def __init__(self, rates: Sequence[float], fetched: list):
        super().__init__(rates)
        self._fetched = fetched
        self.noted: list[int] = []

    def __iter__(self) -> Iterator[float]:
        for rate in super().__iter__():
            self.noted.append(len(self._fetched))
            yield rate

    def __getitem__(self, i):
        self.noted.append(len(self._fetched))
        return super().__getitem__(i)


def _trained(answer: Callable, gpus: Gpus, steps: int) -> dict:
    """Return what an answer returned, and what it did for that."""
    params, X, y = jax.tree.map(PORT.watched, _data())
    calls = 0

    def loss(params, x, y):
        nonlocal calls
        calls += 1
        return _loss(params, x, y)

    before = compilations()
    with PORT.watch() as copies:
        rates = Rates(_rates(steps), copies)
        result = answer(loss, params, X, y, rates)
        compiled = compilations() - before
    pair = isinstance(result, tuple) and len(result) == 2
    if not (pair and isinstance(result[1], list) and isinstance(result[0], dict)):
        return {"form": False}
    return {
        "form": True,
        "params": {key: np.asarray(p).tolist() for key, p in result[0].items()},
        "losses": [float(x) for x in result[1]],
        "kinds": [type(x).__name__ for x in result[1]],
        "calls": calls,
        "compiled": compiled,
        # A check that the answer left the rates alone reads them again, after
        # the last fetch.
        "counts": len(set(rates.noted)),
    }


def _reference(steps: int, share: float = 1.0, after: bool = False) -> tuple:
    """Return the parameters and losses of training, or of a mistaken one."""
    params, X, y = _data()

    def total(params):
        return share * jax.vmap(_loss, (None, 0, 0))(params, X, y).mean()

    losses = []
    for rate in _rates(steps):
        value, gradient = jax.value_and_grad(total)(params)
        params = jax.tree.map(lambda p, g, r=rate: p - r * g, params, gradient)
        losses.append(float(total(params) if after else value))
    return params, losses


@EXERCISES.add("05.3", "loss, params, X, y, rates", returns=tuple, seconds=60)
def train(run: Run):
    found = {steps: run(_trained, steps) for steps in STEPS}
    form = all(each["form"] for each in found.values())
    yield Claim(
        "it returns the parameters and a list of losses",
        form,
        "Return two values: the dictionary of parameters, and a list.",
    )
    if not form:
        return
    few, many = (found[steps] for steps in STEPS)
    lengths = [len(each["losses"]) for each in found.values()]
    yield Claim(
        "there's a loss for each step",
        lengths == list(STEPS),
        f"For {STEPS[1]} steps you return {lengths[1]}.",
    )
    if lengths != list(STEPS):
        return
    yield Claim(
        "the losses are Python numbers",
        set(many["kinds"]) == {"float"},
        f"The type of the first one is {many['kinds'][0]}. Fetch the values after the "
        "last step.",
    )
    params, losses = _reference(STEPS[1])
    same = np.allclose(many["losses"], losses, rtol=1e-3)
    yield Claim(
        "the losses are those of the slow program",
        same,
        "" if same else _wrong_losses(many["losses"], losses),
    )
    yield Claim(
        "so are the parameters",
        all(np.allclose(many["params"][k], params[k], atol=1e-4) for k in params),
        "The losses are right, but the parameters aren't those after the last step.",
    )
    if not same:
        return
    grows = many["calls"] > few["calls"] + 1
    yield Claim(
        "JAX traces `loss` no more often if there are more steps",
        not grows,
        f"For {STEPS[0]} steps Python called `loss` {few['calls']} times, for "
        f"{STEPS[1]} steps {many['calls']} times, "
        + (
            f"and JAX compiled {many['compiled']} programs. What's new in every step, "
            "so that the last program doesn't fit?"
            if many["compiled"] >= STEPS[1]
            else "but no step was compiled as a whole. Something runs one operation at "
            "a time, or a Python loop was compiled."
        ),
    )
    if grows:
        return
    yield Claim(
        "it isn't traced for each example",
        many["calls"] < EXAMPLES,
        f"Python called `loss` {many['calls']} times for {EXAMPLES} examples, so the "
        f"program has {many['calls']} copies of it. `loss` is for one example; which "
        "transformation makes a function for a batch?",
    )
    yield Claim(
        "Python waits for no value before the last step",
        many["counts"] <= 2,
        "A value was fetched between two steps, and Python waited for it. Nobody reads "
        "the losses before the end.",
    )


def _wrong_losses(found: list[float], right: list[float]) -> str:
    told = {
        "Those are the losses after each step, not before it.": {"after": True},
        "They're sums over the batch, and so are the gradients. The slow program takes "
        "the mean.": {"share": EXAMPLES},
    }
    for hint, mistake in told.items():
        if np.allclose(found, _reference(STEPS[1], **mistake)[1], rtol=1e-3):
            return hint
    if np.allclose(found, found[0], rtol=1e-4):
        return "All of them are the same: the parameters don't change."
    i = next(
        i
        for i, (a, b) in enumerate(zip(found, right, strict=True))
        if not math.isclose(a, b, rel_tol=1e-3)
    )
    return (
        f"That of step {i + 1} should be {right[i]:.4f}, but yours is {found[i]:.4f}."
    )


# ------------------------------------------------------------------ at least this long


def _gelu(x):
    return 0.5 * x * (1 + jnp.tanh(0.8 * (x + 0.0447 * x**3)))


def _listed(X):
    return [X @ X for _ in range(10)][-1]


def _product(A, B):
    return A @ B


_PROGRAMS = {
    "GELU of 10,000,000 numbers": (_gelu, ((10_000_000,),)),
    "A product of 2,048 × 2,048 matrices": (_product, ((2048, 2048),) * 2),
    "A product of a 4,096 × 4,096 matrix and a vector": (
        *(_product, ((4096, 4096), (4096,))),
    ),
    "A list of ten equal products, of which the last is returned,": (
        *(_listed, ((1024, 1024),)),
    ),
}
_GPUS = ("V100", "A100")
LIMITS = ("arithmetic", "memory")


def _shapes(name: str) -> tuple:
    return tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in _PROGRAMS[name][1])


def _bounded(answer: Callable, gpus: Gpus) -> list[dict]:
    found = []
    for name, (program, _) in _PROGRAMS.items():
        for gpu in _GPUS:
            said = answer(program, _shapes(name), MODELS[gpu])
            pair = len(said) == 2
            found.append(
                {
                    "length": len(said),
                    "seconds": float(said[0]) if pair else 0.0,
                    "limit": str(said[1]) if pair else "",
                }
            )
    return found


def _least(compiled: bool = True, tensor: bool = False) -> list[list[float]]:
    """Return the times of arithmetic and memory for each program on each GPU."""
    found = []
    for name, (program, _) in _PROGRAMS.items():
        lowered = jax.jit(program).lower(*_shapes(name))
        cost = (lowered.compile() if compiled else lowered).cost_analysis()
        for gpu in _GPUS:
            model = MODELS[gpu]
            rate = model.tensor_rates.get("tf32") if tensor else None
            found.append(
                [
                    cost["flops"] / (rate or model.rates["fp32"]),
                    cost["bytes accessed"] / model.bandwidth,
                ]
            )
    return found


@EXERCISES.add("05.4", "program, shapes, model", returns=tuple)
def at_least(run: Run):
    said = run(_bounded)
    pairs = all(each["length"] == 2 for each in said)
    yield Claim(
        "it returns two values",
        pairs,
        "Return a tuple of the seconds and the name of the limit.",
    )
    if not pairs:
        return
    times = _least()
    mine = [each["seconds"] for each in said]
    yield Claim(
        "the seconds are the least that the compiled program takes",
        np.allclose(mine, [max(each) for each in times], rtol=1e-3, atol=0),
        _wrong_bound(mine, times),
    )
    named = [each["limit"] for each in said]
    right = [LIMITS[each.index(max(each))] for each in times]
    yield Claim(
        "the limit is 'arithmetic' or 'memory', whichever takes longer",
        named == right,
        _wrong_limit(named, right),
    )


def _cases() -> list[str]:
    return [f"{name} on a {gpu}" for name in _PROGRAMS for gpu in _GPUS]


def _wrong_bound(mine: list[float], times: list[list[float]]) -> str:
    told = {
        "You add up what happens at the same time: the arithmetic units compute while "
        "the memory delivers more data.": [sum(each) for each in times],
        "You return the shorter of the two times. A program isn't done before the "
        "longer one is over.": [min(each) for each in times],
        "You leave out memory.": [each[0] for each in times],
        "You leave out arithmetic.": [each[1] for each in times],
        "You use the peak of TF32. This limit is for fp32.": [
            max(each) for each in _least(tensor=True)
        ],
        "Your numbers are those of the program before XLA has fused its operations. "
        "Ask the compiled program.": [max(each) for each in _least(compiled=False)],
    }
    for hint, wrong in told.items():
        if np.allclose(mine, wrong, rtol=1e-3, atol=0):
            return hint
    for case, value, each in zip(_cases(), mine, times, strict=True):
        if not math.isclose(value, max(each), rel_tol=1e-3):
            return (
                f"{case} takes at least {max(each) * 1e6:.4g} µs. You return "
                f"{value * 1e6:.4g} µs."
            )
    return ""


def _wrong_limit(named: list[str], right: list[str]) -> str:
    other = [each for each in named if each not in LIMITS]
    if other:
        return f"You return {other[0]!r}."
    for case, mine, true in zip(_cases(), named, right, strict=True):
        if mine != true:
            return f"{case} is limited by {true}. You return {mine!r}."
    return ""


# ------------------------------------------------------------------ norms

NORM_STEPS = (10, 30)
SIDE = 20


def _matrix() -> np.ndarray:
    i = np.arange(SIDE)
    turn, _ = np.linalg.qr(np.cos(np.outer(i, i + 1)))
    return (1.05 * turn).astype(np.float32)


def _inner(jaxpr) -> Iterator:
    """Yield the operations of a program, those inside loops once."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from _inner(inner)


def _looked_at(answer: Callable, gpus: Gpus) -> dict:
    """Return the norms, and the size of the programs."""
    X = jax.device_put(_matrix(), gpus[0])
    found = {"operations": [], "largest": [], "shapes": [], "values": []}
    for steps in NORM_STEPS:
        program = jax.make_jaxpr(lambda X, n=steps: answer(X, n))(X)
        operations = list(_inner(program.jaxpr))
        found["operations"].append(len(operations))
        found["largest"].append(
            max(math.prod(v.aval.shape) for op in operations for v in op.outvars)
        )
        result = answer(X, steps)
        found["shapes"].append(list(result.shape))
        found["values"].append(np.asarray(result).ravel().tolist())
    return found


@EXERCISES.add("05.5", "X, steps", returns=jax.Array)
def norms(run: Run):
    found = run(_looked_at)
    shapes = [[steps] for steps in NORM_STEPS]
    yield Claim(
        "it returns one norm for each step",
        found["shapes"] == shapes,
        f"For {NORM_STEPS[0]} steps you return an array of shape "
        f"{tuple(found['shapes'][0])}.",
    )
    if found["shapes"] != shapes:
        return
    X = _matrix().astype(np.float64)
    powers = [X]
    for _ in range(NORM_STEPS[1]):
        powers.append(powers[-1] @ X)
    wanted = [float(np.linalg.norm(each)) for each in powers[1:]]
    mine = found["values"][1]
    same = np.allclose(mine, wanted, rtol=1e-3, atol=0)
    yield Claim(
        "they're the norms of the products, in order",
        same,
        "" if same else wrong_norms(mine, wanted, float(np.linalg.norm(X)), ".4g"),
    )
    few, many = found["operations"]
    yield Claim(
        "the program is as long for more steps",
        many == few,
        f"For {NORM_STEPS[0]} steps it consists of {few} operations, for "
        f"{NORM_STEPS[1]} steps of {many}: tracing follows loops in Python.",
    )
    largest = max(found["largest"])
    yield Claim(
        "it keeps no more than one product",
        largest <= max(SIDE**2, NORM_STEPS[1]),
        f"The largest array in the program has {largest:,} numbers, for matrices of "
        f"{SIDE**2}. What keeps all the products?",
    )
