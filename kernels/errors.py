"""The errors of this folder."""


class KernelError(Exception):
    """Base of all errors of `vosti.kernels`."""


class ConfigurationError(KernelError):
    """There is no tile for an operation of these dimensions on this architecture; the message says how to make one."""


class PremiseError(KernelError):
    """A launch breaks a premise of the kernel's contract; nothing was launched."""


class UndecidedRowError(KernelError):
    """Where top-k and top-p cut a row was not found, so that nothing is drawn; the message says whose fault it is."""
