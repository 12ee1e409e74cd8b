"""Receive the operations of a step, and give them to an `OperationRecord`. Training thread only."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from gradtui.probe.autograd.operation_record import OperationRecord
from gradtui.probe.autograd.parameter_use import ParameterUse
from gradtui.probe.torch_private.operation_mode import OperationMode, asks_a_subclass, below_operator_call
from gradtui.probe.torch_private.private_names import no_torch_function
from gradtui.system.signal_handlers import raised_by_handler


class OperationLog(OperationMode):
    """Runs each operation, and records it while it has a record. It reads shapes only, and waits for no device."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.own_ns = 0
        """Nanoseconds that logging has taken, without the time that torch needs to dispatch operations to it."""
        self.record: OperationRecord | None = None
        """Receives each operation; None while it has none."""
        self.use: ParameterUse | None = None
        """The same."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and record it."""
        self.operations += 1
        result = self._call(func, args, kwargs)
        returned = perf_counter_ns()
        self._record(func, args, kwargs, result)
        self.own_ns += perf_counter_ns() - returned
        return result

    @staticmethod
    def _call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        try:
            # Where torch's C++ code calls an operation, as in backward, it asks no subclass in Python.
            if asks_a_subclass(args, kwargs):
                with no_torch_function():
                    return func(*args, **(kwargs or {}))
            return func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:
            # Without the mode, torch's C++ code would have called the operation, not a frame of torch's Python code.
            error.__traceback__ = below_operator_call(error.__traceback__)
            raise

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, result: Any) -> None:
        if self.use is None and self.record is None:
            return
        with no_torch_function():
            if self.use is not None:
                try:
                    self.use.add(args, kwargs or {}, result)
                except Exception as error:
                    if raised_by_handler(error):
                        raise
                    self.use.give_up()
            if self.record is None:
                return
            try:
                self.record.add(func, args, kwargs or {}, result)
            except Exception as error:
                if raised_by_handler(error):
                    raise
                self.record.give_up(f"gradtui failed to record an operation: {type(error).__name__}: {error}")
