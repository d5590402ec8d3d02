"""Errors of the engine: one base class, one subclass per cause.

Every message is one sentence that names the cause, where it lies, and what the user can do about it.
Bad input is refused before any work is done, so that a failed call leaves nothing half changed.
"""


class EngineError(Exception):
    """Base of all errors that the engine is expected to raise during normal operation."""


class CheckpointError(EngineError):
    """A checkpoint folder is missing, incomplete, malformed, or contradicts itself."""


class UnsupportedModelError(EngineError):
    """A checkpoint asks for an architecture or a feature that this engine does not compute."""


class BatchError(EngineError):
    """A batch given to a backend breaks the contract of `vosti.impl.backend.Batch`."""


class InvalidOptionError(EngineError, ValueError):
    """An engine option, a sampling parameter or a request is out of its range."""


class CapacityError(EngineError):
    """A request can never fit into this engine's pool, or into the model's positions."""


class UnknownRequestError(EngineError, KeyError):
    """A request identifier that this engine has never seen, or one that it has seen before."""

    def __str__(self) -> str:
        return str(self.args[0])


class EngineStoppedError(EngineError):
    """A step was interrupted, so that the pool of values and the engine's records may disagree."""


class BrokenStepError(EngineError):
    """An engine that asserts its own steps was about to take, or took, one that is none of the specification."""

    def __init__(self, step: int, conjunct: str, request: str | None, where: str) -> None:
        """Say which predicate of the specification does not hold in which step, whose it is, and of what."""
        self.step, self.conjunct, self.request = step, conjunct, request
        whose = "" if request is None else f" of request {request!r}"
        super().__init__(
            f"Step {step} of the engine is no step of the specification: {conjunct} does not hold{whose} ({where}); "
            "this is a fault of the engine, and what it computed before this step stands."
        )


class NoDeviceError(EngineError):
    """A backend needs a device, or software for it, that is not here."""


class DeviceMemoryError(EngineError):
    """A model, or a pool of pages, does not fit into the memory of the device."""


class UnprobedDeviceError(NoDeviceError):
    """There is a device, and nobody has checked that its arithmetic follows the rules that kernels rest on."""


class UncertifiedKernelError(EngineError):
    """A kernel's binary has no certificate: nothing is proved of it, or it is another one than what was proved."""


class WorkloadError(EngineError, ValueError):
    """A workload cannot be found, is malformed, or contradicts itself."""


class StalledError(EngineError):
    """The engine made no progress although requests were live."""
