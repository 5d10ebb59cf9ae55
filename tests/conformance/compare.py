"""How far two results agree, one computed on the CPU and one on a virtual GPU."""

from collections.abc import Callable

import torch

# From best to worst.
EQUAL, VARIES, CLOSE, DIFFERENT = "equal", "varies", "close", "different"
_ORDER = (EQUAL, VARIES, CLOSE, DIFFERENT)


class Comparison:
    """Collects the results of one case.

    Attributes:
        verdict: ``equal`` (to the last bit), ``varies`` (to rounding, as much as the
            CPU from itself), ``close`` (to rounding) or ``different``.
        notes: a line for each result that is not equal.
        count: number of results compared.
    """

    def __init__(self, values: bool = True, strides: bool = True):
        self.values = values  # or compare geometry alone
        self.strides = strides  # and lazy bits; of gradients they may differ
        self.verdict, self.notes, self.count = EQUAL, [], 0

    def add(
        self,
        expected,
        actual,
        device: str,
        what: str,
        again: Callable[[], object],
    ) -> None:
        """Compare two results, tensors or structures of them.

        Args:
            expected, actual: what the CPU and the virtual GPU returned.
            device: where the tensors of ``actual`` have to be.
            what: which result it is, for the note.
            again: computes ``expected`` once more, to see whether the CPU itself
                returns the same bits twice.
        """
        self.count += 1
        note = self._compare(expected, actual, device)
        if note is None:
            return
        verdict, text = note
        if verdict == CLOSE and any(
            self._compare(expected, again(), "cpu") for _ in range(5)
        ):
            verdict = VARIES
        self._worse(verdict, f"{what}: {text}")

    def different(self, note: str) -> None:
        self.count += 1
        self._worse(DIFFERENT, note)

    def _worse(self, verdict: str, note: str) -> None:
        self.verdict = max(self.verdict, verdict, key=_ORDER.index)
        self.notes.append(note)

    def _compare(self, a, b, device: str) -> tuple[str, str] | None:
        """Return None where equal, else a verdict and what is not."""
        if isinstance(a, torch.Tensor):
            return self._compare_tensors(a, b, device)
        if isinstance(a, list | tuple):
            if type(a) is not type(b) or len(a) != len(b):
                return DIFFERENT, f"{type(a).__name__} of {len(a)}"
            notes = [self._compare(x, y, device) for x, y in zip(a, b, strict=True)]
            notes = [n for n in notes if n is not None]
            return max(notes, key=lambda n: _ORDER.index(n[0]), default=None)
        if isinstance(a, dict):
            return self._compare(list(a.items()), list(b.items()), device)
        if self.values and a != b and not (a != a and b != b):
            return DIFFERENT, f"{a!r} and {b!r}"
        return None

    def _compare_tensors(self, a, b, device: str) -> tuple[str, str] | None:
        if not isinstance(b, torch.Tensor):
            return DIFFERENT, f"a tensor and {type(b).__name__}"
        if str(b.device) != device and not _stays_on_host(a, b):
            return DIFFERENT, f"the result is on {b.device}"
        for fact in ("dtype", "shape", "layout", "requires_grad"):
            x, y = getattr(a, fact), getattr(b, fact)
            if x != y:
                return DIFFERENT, f"{fact} {x} and {y}"
        if a.layout is not torch.strided:
            return self._compare(_parts(a.detach()), _parts(b.detach()), device)
        for fact in ("stride", "storage_offset", "is_conj", "is_neg"):
            x, y = getattr(a, fact)(), getattr(b, fact)()
            if x != y and self.strides:
                return DIFFERENT, f"{fact} {x} and {y}"
        if not self.values:
            return None
        a, b = a.detach().resolve_conj().resolve_neg(), b.detach().cpu()
        b = b.resolve_conj().resolve_neg()
        if _bits(a) == _bits(b):
            return None
        try:
            torch.testing.assert_close(b, a, equal_nan=True)
        except AssertionError as error:
            return DIFFERENT, " ".join(str(error).split())
        return CLOSE, f"largest difference {(a - b).abs().max():.2g}"


def _stays_on_host(a: torch.Tensor, b: torch.Tensor) -> bool:
    """State that PyTorch itself keeps on the CPU: an optimizer's ``step``."""
    return b.device.type == "cpu" and not a.dim()


def _parts(x: torch.Tensor) -> tuple:
    """Return what a sparse tensor consists of."""
    if x.layout is torch.sparse_coo:
        return x.is_coalesced(), x._indices(), x._values()
    if x.layout is torch.sparse_csr:
        return x.crow_indices(), x.col_indices(), x.values()
    return x.ccol_indices(), x.row_indices(), x.values()


def _bits(x: torch.Tensor) -> bytes:
    if x.is_quantized:
        x = x.int_repr()
    x = x.clone(memory_format=torch.contiguous_format)
    return x.flatten().view(torch.uint8).numpy().tobytes()
