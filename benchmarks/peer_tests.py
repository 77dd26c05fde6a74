"""One peer's own attention tests in this process: ``python -m benchmarks.peer_tests PEER [FOLDER]``.

The last line says how many value comparisons there were: arrays of at least one dimension that NumPy or PyTorch was
asked to find equal or close, whatever came of it. The exit status is that of the tests.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import unittest
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

COUNTED = "value comparisons: "
OPERATORS = ("nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward")
ATTENTION_NODES = r"^test_attention_.*_cpu$"


class Comparisons:
    """Counts calls of the functions that compare."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self, owner: Any, name: str, compared: Callable[[Any], Any] = lambda first: first) -> None:
        """Count calls of a function; ``compared`` makes an array of its first argument."""
        plain = getattr(owner, name)

        @functools.wraps(plain)
        def watched(*arguments: Any, **options: Any) -> Any:
            first = next(iter((*arguments, *options.values())))
            self.count += getattr(compared(first), "ndim", 0) > 0
            return plain(*arguments, **options)

        setattr(owner, name, watched)

    def watch_numpy(self) -> None:
        for name in ("assert_allclose", "assert_array_equal", "assert_array_almost_equal"):
            self.watch(np.testing, name)

    def watch_torch(self) -> None:
        """What both ``torch.testing.assert_close`` and the test cases of PyTorch go through."""
        pair = importlib.import_module("torch.testing._comparison").TensorLikePair
        self.watch(pair, "compare", lambda one: one.actual)


def onnx_nodes(comparisons: Comparisons, folder: Path) -> int:
    """ONNX' backend runner on the node tests of Attention; its reference evaluator is the backend."""
    comparisons.watch_numpy()
    base: Any = importlib.import_module("onnx.backend.base")
    test = importlib.import_module("onnx.backend.test")
    evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator

    class Prepared:
        def __init__(self, model: Any) -> None:
            self._session = evaluator(model)

        def run(self, inputs: Sequence[Any], **_: Any) -> tuple[Any, ...]:
            return tuple(self._session.run(None, dict(zip(self._session.input_names, inputs, strict=False))))

    class Reference(base.Backend):  # type: ignore[misc]  # known at run time alone
        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"

        @classmethod
        def prepare(cls, model: Any, *_: Any, **__: Any) -> Prepared:
            return Prepared(model)

    runner = test.BackendTest(Reference, __name__).include(ATTENTION_NODES)
    result = unittest.TextTestRunner(verbosity=0).run(runner.test_suite)
    return int(not result.wasSuccessful())


def torch_samples(comparisons: Comparisons, folder: Path) -> int:
    """PyTorch's sample inputs of attention, without dropout: each output in float32 beside the one in float64."""
    import torch

    comparisons.watch_torch()
    samples = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    failures = 0
    for operator in samples:
        if operator.name in OPERATORS:
            for found, right in _answers(torch, operator):
                try:
                    torch.testing.assert_close(found, right, check_dtype=False, atol=1e-4, rtol=1e-4)
                except AssertionError as error:
                    print(operator.name, error)
                    failures += 1
    return int(failures > 0)


def _answers(torch: Any, operator: Any) -> Iterator[tuple[Any, Any]]:
    for sample in operator.sample_inputs("cpu", torch.float32, requires_grad=False):
        if sample.kwargs.get("dropout_p", 0) or sample.kwargs.get("training"):
            continue
        wide = sample.transform(lambda value: value.double() if isinstance(value, torch.Tensor) else value)
        found, right = (operator(one.input, *one.args, **one.kwargs) for one in (sample, wide))
        yield from zip(*((one if isinstance(one, tuple) else (one,)) for one in (found, right)), strict=True)


def _pytest(*arguments: str) -> int:
    return int(pytest.main(["-q", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]))


def keras_layers(comparisons: Comparisons, folder: Path) -> int:
    """Keras' tests of its attention layers, on TensorFlow."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    comparisons.watch_numpy()
    return _pytest(f"--rootdir={folder}", *map(str, sorted(folder.glob("*_test.py"))))


def torch_layer(comparisons: Comparisons, folder: Path) -> int:
    """PyTorch's tests of its layer, from its sources."""
    comparisons.watch_numpy()
    comparisons.watch_torch()
    return _pytest(f"--rootdir={folder}", str(folder / "test" / "nn" / "test_multihead_attention.py"))


def jax_function(comparisons: Comparisons, folder: Path) -> int:
    """JAX' tests of ``dot_product_attention``, from its sources."""
    comparisons.watch_numpy()
    return _pytest(f"--rootdir={folder}", "-k", "DotProductAttention", str(folder / "tests" / "nn_test.py"))


PEERS: dict[str, Callable[[Comparisons, Path], int]] = {
    "onnx": onnx_nodes,
    "torch-samples": torch_samples,
    "torch": torch_layer,
    "keras": keras_layers,
    "jax": jax_function,
}


def main(arguments: Sequence[str]) -> int:
    """Run the tests of one peer."""
    comparisons = Comparisons()
    code = PEERS[arguments[0]](comparisons, Path(*arguments[1:]))
    print(f"\n{COUNTED}{comparisons.count}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
