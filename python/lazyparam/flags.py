"""``Flag``: a bool with identity that training switches (Burn's ``Param<Flag>``)."""

from __future__ import annotations

import secrets
from typing import Any, final

from .errors import DeclarationError

__all__ = ["Flag"]


@final
class Flag:
    """Whether a layer behaves as in training: what dropout, noise and running statistics go by.

    Frozen layers without parameters have nothing else to read (burn#5493). A flag is a leaf of a
    module, as a parameter is: verbs keep it and its identity, visitors and groups find it.
    ``valid()`` switches it off and ``train()`` on again; ``freeze()`` disables it for good, and
    ``no_grad()`` leaves it alone. It is a bool of the host: it has no device, shape, dtype or
    gradient, comes into being at once, and is in no file.

    Never changes; every verb returns a flag. Two are equal if they have one identity and one state.
    To JAX it is static: a function is traced again for another state.

    Args:
        enabled: whether training switches it on.
        id: identity, an unsigned 64-bit number; a random one if not given.

    Raises:
        DeclarationError: if `enabled` is no bool, or `id` no such number.

    >>> import lazyparam as lp
    >>> class Dropout(lp.Module):
    ...     def __init__(self, rate):
    ...         self.rate, self.training = rate, lp.Flag(True)
    >>> dropout = Dropout(0.1)
    >>> dropout.training, dropout.valid().training, dropout.freeze().training
    (Flag(on), Flag(off until train()), Flag(off))
    >>> bool(dropout.valid().training), bool(dropout.valid().train().training)
    (False, True)
    """

    __slots__ = ("_id", "_is_active", "_is_suspended")

    def __init__(self, enabled: bool = True, id: int | None = None) -> None:
        if not isinstance(enabled, bool):
            raise DeclarationError(
                "a flag is on or off", expected="True or False", found=f"{enabled!r:.80}"
            )
        identity = secrets.randbits(64) if id is None else id
        if isinstance(identity, bool) or not isinstance(identity, int) or not 0 <= identity < 2**64:
            raise DeclarationError("an id is an unsigned 64-bit number", found=f"{id!r:.80}")
        self._id = identity
        self._is_active = enabled
        self._is_suspended = False

    @property
    def id(self) -> int:
        """Identity, an unsigned 64-bit number. Kept by every verb."""
        return self._id

    @property
    def kind(self) -> str:
        """``"flag"``, which no parameter with a value is."""
        return "flag"

    @property
    def is_active(self) -> bool:
        """Whether it is on in training: what is configured, as for a parameter."""
        return self._is_active

    @property
    def is_enabled(self) -> bool:
        """Whether it is on now: configured so, and not within ``valid()``."""
        return self._is_active and not self._is_suspended

    @property
    def state(self) -> str:
        """``"on"``, ``"off"``, or ``"off until train()"`` within ``valid()``."""
        if self._is_active and self._is_suspended:
            return "off until train()"
        return "on" if self._is_active else "off"

    def __bool__(self) -> bool:
        return self.is_enabled

    # Verbs.

    def with_value(self, enabled: bool) -> Flag:
        """The flag configured anew; within ``valid()`` it stays off until ``train()``."""
        return self._with(Flag(enabled, self._id)._is_active, self._is_suspended)

    def valid(self) -> Flag:
        """The flag switched off; what is configured stays on record (burn#5524)."""
        return self._with(self._is_active, True)

    def train(self) -> Flag:
        """The flag as configured: undoes :meth:`valid`."""
        return self._with(self._is_active, False)

    def clone(self) -> Flag:
        """The flag itself, which nobody can change."""
        return self

    def _with(self, is_active: bool, is_suspended: bool) -> Flag:
        if (is_active, is_suspended) == (self._is_active, self._is_suspended):
            return self
        return _restored(self._id, is_active, is_suspended)

    # What Python asks.

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, Flag) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"Flag({self.state})"

    def __copy__(self) -> Flag:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Flag:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, self._fields())

    def _fields(self) -> tuple[int, bool, bool]:
        return (self._id, self._is_active, self._is_suspended)


def _restored(identity: int, is_active: bool, is_suspended: bool) -> Flag:
    flag = Flag(is_active, identity)
    flag._is_suspended = is_suspended
    return flag
