"""Reparameterisations: what a stored value goes through on its way to whoever reads it.

A *reparameterisation* is a branch of the tree with parameters of its own, such as the two factors
of a LoRA adapter. Attached to a parameter it makes an :class:`AdaptedParam`, which stands where the
parameter stood and reads as one: ``base()`` is what is stored, ``val()`` the effective value. It is
Burn's ``Reparameterization``; torch calls it a parametrisation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, count
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, overload

from . import _tree
from ._core import Param
from .devices import backend_holding, backend_of
from .drafts import Draft
from .errors import InitError, ModuleError
from .places import Place
from .quant import cast
from .standins import StandIn

__all__ = [
    "AdaptedParam",
    "Reparameterization",
    "activate",
    "active_adapters",
    "attach",
    "materialize",
    "reparameterize",
    "without_adapters",
]

M = TypeVar("M")
R = TypeVar("R", bound="Reparameterization")


class Reparameterization(_tree.Branch, ABC):
    """A function from the stored value to the effective one, with parameters of its own.

    Derive a class, keep parameters in attributes as a module does, and say what they do in `apply`.
    Verbs of modules and of the adapted parameter reach the parameters; paths lead to them by way of
    the adapter's name: ``"weight.scaled.factor"``.

    >>> import lazyparam as lp
    >>> class Scaled(lp.Reparameterization):
    ...     NAME = "scaled"
    ...     def __init__(self, rows):
    ...         self.factor = lp.Param((rows, 1), lp.init.constant(3))
    ...     def apply(self, base):
    ...         return base * self.factor.value
    >>> p = lp.Param((2, 2), lp.init.eye()).with_reparameterization(Scaled(2))
    >>> p.value
    array([[3., 0.],
           [0., 3.]], dtype=float32)
    >>> p.base().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    NAME: ClassVar[str]
    """What it is called in paths, unless it is attached by another name."""

    is_permanent: ClassVar[bool] = False
    """Whether it applies whatever adapters are chosen."""

    @abstractmethod
    def apply(self, base: Any) -> Any:
        """The effective value for the stored value `base`, of the same shape and dtype.

        Pure: it is called as often as need be, from any thread.
        """

    def fitted(self, base: Any) -> Self:
        """What is attached to the parameter `base`: itself, unless parameters follow from the base.

        Asked for when it is attached, and again when its base becomes another.

        Raises:
            ModuleError: if it does not fit.
        """
        return self

    def product(self, x: Any, layout: str) -> Any:
        """The product of `x` and what this one adds to a matrix, for :func:`lazyparam.linear`.

        None if it does something else than add, or what it adds is made as a whole.

        Args:
            x: rows of inputs.
            layout: ``"OI"`` if outputs are the rows of the matrix, ``"IO"`` if its columns.
        """
        return None


class Mapped(Reparameterization):
    """A function of the user's, applied to the effective value: what ``init_mapper`` attaches."""

    NAME = "mapped"
    is_permanent = True

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def apply(self, base: Any) -> Any:
        return self.function(base)


_chosen: ContextVar[tuple[str, ...] | None] = ContextVar("lazyparam.active_adapters", default=None)


@contextmanager
def active_adapters(*names: str) -> Iterator[None]:
    """Within the block, parameters are read through their adapters of these names and no others.

    Without names: as if nothing were attached. The choice is that of the current context (PEP 567):
    other threads and tasks do not see it. A parameter without such an adapter is read as its base.

    >>> import lazyparam as lp
    >>> p = lp.Param(2, lp.init.ones()).init_mapper(lambda x: x + 1)
    >>> with lp.active_adapters():
    ...     p.value.tolist()
    [2.0, 2.0]
    """
    for name in names:
        _check_name(name)
    token = _chosen.set(names)
    try:
        yield
    finally:
        _chosen.reset(token)


class AdaptedParam(StandIn):
    """A parameter with reparameterisations attached; reads as a parameter does.

    Made by ``Param.with_reparameterization``. Immutable: every verb returns a new one and keeps
    what is attached; only :meth:`without_reparameterization` and :meth:`materialize` take it off.

    Args:
        base: the parameter.
        adapters: what is attached, by name, in the order in which it applies.
        active: the names of those that apply unless a call or a context chooses; None is all.
    """

    def __init__(
        self,
        base: Any,
        adapters: Mapping[str, Reparameterization],
        active: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(base)
        self._adapters = _fitted(adapters, base)
        self._active = active
        # (key, value) of the effective value made last; replaced as a whole.
        self._effective: tuple[object, Any] | None = None

    # ---- as a branch of the tree --------------------------------------------------------------

    def _children(self) -> Iterator[tuple[str, object]]:
        yield _tree.HERE, self._base
        yield from self._adapters.items()
        # No adapter is called like this. JAX tells functions apart by what is read here.
        yield ".active", repr(self._active)

    def _replaced(self, parts: Sequence[tuple[str, object, object]]) -> Self:
        (_, _, base), *adapters, _ = parts
        return type(self)(base, {name: now for name, _, now in adapters}, self._active)  # type: ignore[misc]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_effective": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        # A deep copy of the base draws for itself.
        self._adapters = _fitted(self._adapters, self._base)

    # ---- what is free to ask --------------------------------------------------------------------

    @property
    def reparameterizations(self) -> Mapping[str, Reparameterization]:
        """What is attached, by name, in the order in which it applies."""
        return MappingProxyType(self._adapters)

    @property
    def active(self) -> tuple[str, ...]:
        """The names of those that apply unless a call or a context chooses."""
        return tuple(self._adapters) if self._active is None else self._active

    @overload
    def reparameterization(self, which: str) -> Reparameterization | None: ...
    @overload
    def reparameterization(self, which: type[R]) -> R | None: ...
    def reparameterization(self, which: str | type[Any]) -> Any:
        """The one attached by the name `which`, or the first of the type `which`, or None."""
        if isinstance(which, str):
            return self._adapters.get(which)
        return next((node for node in self._adapters.values() if isinstance(node, which)), None)

    # ---- reading --------------------------------------------------------------------------------

    def val(
        self, timeout: float | None = None, *, adapters: str | Sequence[str] | None = None
    ) -> Any:
        """The effective value: the stored one, taken through the active adapters in their order.

        Kept until something that it was made of changes, unless gradients are recorded; see
        :meth:`release`.

        Args:
            timeout: seconds to wait for another thread that makes the base.
            adapters: names, for this call: it goes before the context's choice and `active`.

        Raises:
            ModuleError: if `adapters` names one that is not attached.
            InitError: if an adapter gives another shape or dtype.
            BaseException: what an initialiser or an adapter raises, with a note naming it.
        """
        names = self._names(adapters)
        base = self._base.val(timeout)
        if not names:
            return base
        key = self._key(names, base)
        kept = self._effective
        if key is not None and kept is not None and kept[0] == key:
            return kept[1]
        # Of quantised floats, as merging computes it: what is merged is what was read.
        is_quantized = hasattr(self._base, "dense")
        value = cast(base, "float32") if is_quantized and _is_low(base) else base
        for name in names:
            value = self._applied(name, value)
        if is_quantized:
            value = backend_holding(value).as_dtype_of(value, base)
        if key is not None:
            self._effective = (key, value)
        return value

    def base(self, timeout: float | None = None) -> Any:
        """The stored value, without what is attached."""
        return self._base.base(timeout)

    def into_value(self) -> Any:
        """As :meth:`base`."""
        return self.base()

    def release(self) -> None:
        """Let go of the effective value that is kept; it is made again when needed."""
        self._effective = None

    def grad(self) -> Any:
        """The gradient that the base has by now, or None; see ``Param.grad``."""
        return self._base.grad()

    def writable(self) -> Draft:
        """A draft of another base; see ``Param.writable``."""
        return self._base.writable()  # type: ignore[no-any-return]

    # ---- verbs ----------------------------------------------------------------------------------

    def with_reparameterization(
        self, reparameterization: Reparameterization, name: str | None = None
    ) -> AdaptedParam:
        """The parameter with one more attached, which applies after the others.

        Raises:
            ModuleError: if it is no reparameterisation, or the name is taken or no name.
        """
        name = _name_for(reparameterization, name)
        if name in self._adapters:
            raise ModuleError(
                f"something is attached by the name {name!r} already",
                path=self.path,
                expected=f"another name than {', '.join(map(repr, self._adapters))}",
                remedy="Attach it by another name (name=...), or take the other one off first.",
            )
        active = None if self._active is None else (*self._active, name)
        adapters = {**self._adapters, name: reparameterization}
        # Permanent ones were put last of what there was then; they keep their place.
        return AdaptedParam(self._base, adapters, active)

    def without_reparameterization(self, *names: str) -> Any:
        """The parameter without those of these names, or without all: then the plain parameter.

        Raises:
            ModuleError: if one of `names` is not attached.
        """
        self._insist(names)
        dropped = names or tuple(self._adapters)
        kept = {name: node for name, node in self._adapters.items() if name not in dropped}
        if not kept:
            return self._base
        active = None if self._active is None else tuple(n for n in self._active if n in kept)
        return AdaptedParam(self._base, kept, active)

    def with_active(self, *names: str) -> AdaptedParam:
        """The parameter with another choice of what applies by default; shares everything else.

        Raises:
            ModuleError: if one of `names` is not attached.
        """
        self._insist(names)
        return AdaptedParam(self._base, self._adapters, names)

    def map(self, f: Callable[[Any], Any]) -> AdaptedParam:
        """The parameter whose base is ``f`` of this one's, of its shape and dtype."""
        return self._over(self._base.map(f))

    def init_mapper(self, f: Callable[[Any], Any]) -> AdaptedParam:
        """The parameter whose effective value is ``f`` of this one's, whatever is active.

        The base gets a state of its own, as any transformed parameter; a lazy one stays lazy.
        """
        names = chain([Mapped.NAME], (f"{Mapped.NAME}_{number}" for number in count(2)))
        free = next(name for name in names if name not in self._adapters)
        forked = self._over(self._base.fork(self.device))
        return forked.with_reparameterization(Mapped(f), free)

    def load_mapper(self, f: Callable[[Any], Any], stored_shape: Any = None) -> AdaptedParam:
        """As ``Param.load_mapper``, for the base."""
        return self._over(self._base.load_mapper(f, stored_shape))

    def save_mapper(self, f: Callable[[Any], Any], stored_shape: Any = None) -> AdaptedParam:
        """As ``Param.save_mapper``, for the base."""
        return self._over(self._base.save_mapper(f, stored_shape))

    def set_requires_grad(self, requires_grad: bool) -> AdaptedParam:
        """The parameter with another wish to train its base; the adapters keep theirs."""
        return self._over(self._base.set_requires_grad(requires_grad))

    def materialize(self) -> Param[Any]:
        """The plain parameter whose stored value is the effective one of the active adapters.

        Burn's ``materialize``; others call it merging. Identity, wish, mappers and dtype are the
        base's, and it is lazy if the base is. Low precision is computed in float32 and rounded
        once. What was attached keeps its values and gets no gradients of the result.
        """
        base, fold = self._base, self._fold()
        dense = getattr(base, "dense", None)
        if dense is not None:
            base = dense()
        if not fold.nodes:
            return base.materialize()  # type: ignore[no-any-return]
        return base.map(fold)  # type: ignore[no-any-return]

    def transform_for_load(self, tensor: Any, id: int | None = None, dtype: Any = None) -> Self:
        """As ``Param.transform_for_load``, for the base; what is attached stays."""
        return self._over(self._base.transform_for_load(tensor, id, dtype))  # type: ignore[return-value]

    def transform_for_save(self) -> Any:
        """As ``Param.transform_for_save``: the base, without what is attached."""
        return self._base.transform_for_save()

    def consume(self) -> Any:
        """Refused: it could give the base only, and what is attached would be lost.

        Raises:
            ModuleError: always.
        """
        raise ModuleError(
            "consume() would lose what is attached",
            path=self.path,
            found=", ".join(self._adapters),
            remedy="Call without_reparameterization() or materialize() first.",
        )

    def __repr__(self) -> str:
        attached = ", ".join(
            name if name in self.active or node.is_permanent else f"{name} (not active)"
            for name, node in self._adapters.items()
        )
        return f"AdaptedParam({self._base!r}, {attached})"

    # ---- within ---------------------------------------------------------------------------------

    def _over(self, base: Any) -> AdaptedParam:
        return AdaptedParam(base, self._adapters, self._active)

    def _insist(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._adapters:
                raise ModuleError(
                    f"nothing is attached by the name {name!r}",
                    path=self.path,
                    expected=f"one of {', '.join(map(repr, self._adapters))}",
                    found=repr(name),
                )

    def _names(self, adapters: str | Sequence[str] | None) -> list[str]:
        """Which adapters apply, in their order."""
        if adapters is not None:
            chosen = (adapters,) if isinstance(adapters, str) else tuple(adapters)
            self._insist(chosen)
        else:
            of_context = _chosen.get()
            chosen = self.active if of_context is None else of_context
        return [
            name for name, node in self._adapters.items() if node.is_permanent or name in chosen
        ]

    def _fold(self) -> Fold:
        """The step that folds in what is active; it reads untracked."""
        nodes = (self._adapters[name] for name in self._names(None))
        return Fold(tuple(_tree.rebuild(node, lambda _, param: param.valid()) for node in nodes))

    def _applied(self, name: str, value: Any) -> Any:
        try:
            effective = self._adapters[name].apply(value)
        except Exception as error:
            error.add_note(f"while applying {self._title(name)}")
            raise
        before, after = tuple(value.shape), tuple(effective.shape)
        if before != after or value.dtype != effective.dtype:
            raise InitError(
                "a reparameterisation keeps shape and dtype",
                path=self._title(name),
                expected=f"{value.dtype} of shape {before}",
                found=f"{effective.dtype} of shape {after}",
            )
        return effective

    def _title(self, name: str) -> str:
        return _tree.join(self.path or "", name)

    def _key(self, names: Sequence[str], base: Any) -> object:
        """What an effective value depends on, or None if it is not to be kept."""
        versions: list[object] = [tuple(names)]
        leaves = [self._base]
        for name in names:
            node = self._adapters[name]
            leaves += (leaf.param for leaf in _tree.walk(node))
            if any(isinstance(child, Place) for _, child in _tree.children(node)):
                return None
        for leaf in leaves:
            if not isinstance(leaf, Param):
                return None
            backend = backend_of(leaf.device)
            if backend.records_gradients and leaf.is_active and leaf.device.is_autodiff:
                return None
            version = backend.version(base if leaf is self._base else leaf.val())
            if version is None:
                return None
            versions.append(version)
        return tuple(versions)


class Fold:
    """The step that folds reparameterisations into a value; picklable if they are."""

    def __init__(self, nodes: tuple[Reparameterization, ...]) -> None:
        self.nodes = nodes

    def __call__(self, base: Any) -> Any:
        backend = backend_holding(base)
        _, dtype = backend.meta(base)
        value = self.exact(base)
        return backend.cast(value, dtype) if backend.meta(value)[1] != dtype else value

    def exact(self, base: Any) -> Any:
        """The folded value before it is rounded: in float32 if the base is of low precision."""
        backend = backend_holding(base)
        value = backend.cast(base, "float32") if _is_low(base) else base
        # A merge that is moved before it is made may be made elsewhere than its parts are.
        device = backend.device_of(base)
        for node in self.nodes:
            value = _tree.rebuild(node, lambda _, param: param.to_device(device)).apply(value)
        return backend.detach(value)


def _is_low(array: Any) -> bool:
    """Whether what is computed of `array` is computed in float32."""
    _, dtype = backend_holding(array).meta(array)
    return dtype in ("float16", "bfloat16") or dtype.startswith("float8")


def _fitted(adapters: Mapping[str, Reparameterization], base: Any) -> dict[str, Reparameterization]:
    # What JAX puts together, around places, has been attached before.
    if isinstance(base, Place):
        return dict(adapters)
    return {name: node.fitted(base) for name, node in adapters.items()}


def attach(
    param: Param[Any], reparameterization: Reparameterization, name: str | None
) -> AdaptedParam:
    """What ``Param.with_reparameterization`` gives."""
    return AdaptedParam(param, {_name_for(reparameterization, name): reparameterization})


def _name_for(reparameterization: object, name: str | None) -> str:
    if not isinstance(reparameterization, Reparameterization):
        raise ModuleError(
            "this is no reparameterisation",
            expected="an object of a class derived from lazyparam.Reparameterization",
            found=type(reparameterization).__name__,
        )
    name = getattr(reparameterization, "NAME", None) if name is None else name
    return _check_name(name)


def _check_name(name: object) -> str:
    if isinstance(name, str) and name and "." not in name and name.isprintable():
        return name
    raise ModuleError(
        "a reparameterisation goes by a name that can be part of a path",
        expected="a text without dots",
        found=repr(name),
        remedy="Set NAME in its class, or attach it with name=...",
    )


# ---- over whole modules --------------------------------------------------------------------------


Reparameterizer: TypeAlias = Callable[[str, Any], Any]
"""Takes the path of a float parameter and the parameter, and gives what is to stand there: usually
``param.with_reparameterization(...)``, or the parameter itself."""


def reparameterize(module: M, reparameterizer: Reparameterizer) -> M:
    """`module` with what `reparameterizer` makes of each of its float parameters.

    Burn's ``apply_reparameterization``. Nothing comes into being, unless it brings it. A parameter
    in two places is asked about once; what is adapted already is handed over as it is.

    Raises:
        ModuleError: if it gives something else than a parameter.

    >>> import lazyparam as lp
    >>> class Doubled(lp.Reparameterization):
    ...     NAME = "doubled"
    ...     def apply(self, base):
    ...         return base * 2
    >>> model = {"w": lp.Param(2, lp.init.ones()), "n": lp.Param((), lp.init.zeros(), "int32")}
    >>> doubled = lp.reparameterize(model, lambda _, p: p.with_reparameterization(Doubled()))
    >>> doubled["w"].value.tolist(), doubled["n"] is model["n"]
    ([2.0, 2.0], True)
    """

    def change(path: str, param: Any) -> Any:
        if param.kind not in ("float", "quantised"):
            return param
        made = reparameterizer(path, param)
        if not isinstance(made, Param | StandIn):
            raise ModuleError(
                "a reparameterizer gives the parameter, or one made from it",
                path=path,
                expected="a Param or an AdaptedParam",
                found=type(made).__name__,
            )
        return made

    return _tree.substitute(module, change)


def materialize(module: M) -> M:
    """`module` with what is attached to its parameters folded in; what was tied stays tied."""
    made: dict[object, tuple[Any, Param[Any]]] = {}

    def change(_: str, param: Any) -> Any:
        is_adapted = isinstance(param, AdaptedParam)
        base = param._base if is_adapted else param
        if isinstance(base, Place) or not (is_adapted or hasattr(base, "dense")):
            return param.materialize()
        nodes = param.reparameterizations if is_adapted else {}
        names = param._names(None) if is_adapted else ()
        key = (base._tie, *((name, id(nodes[name])) for name in names))
        if key not in made:
            made[key] = (base, param.materialize())
            return made[key][1]
        return base._retied(*made[key])

    return _tree.substitute(module, change)


def without_adapters(module: M, *names: str) -> M:
    """`module` without the adapters of these names, or without anything attached.

    The new module shares the bases with this one; nothing comes into being, and what is trained
    stays as it is: a base that was frozen is frozen still.

    Raises:
        ModuleError: if no parameter has an adapter of one of these names.
    """
    found: set[str] = set()

    def change(_: str, param: Any) -> Any:
        if not isinstance(param, AdaptedParam):
            return param
        held = [name for name in names if name in param.reparameterizations]
        found.update(held)
        return param.without_reparameterization(*held) if held or not names else param

    changed = _tree.substitute(module, change)
    _insist_on_all(names, found)
    return changed


def _insist_on_all(names: Sequence[str], found: set[str]) -> None:
    for name in names:
        if name not in found:
            raise ModuleError(f"no parameter has an adapter {name!r}")


def activate(module: M, *names: str) -> M:
    """`module`, its adapted parameters read through their adapters of these names by default.

    The new module shares all parameters with this one. Without names: as if nothing were attached.

    Raises:
        ModuleError: if no parameter has an adapter of one of these names.
    """
    found: set[str] = set()

    def change(_: str, param: Any) -> Any:
        if not isinstance(param, AdaptedParam):
            return param
        held = [name for name in names if name in param.reparameterizations]
        found.update(held)
        return param.with_active(*held)

    changed = _tree.substitute(module, change)
    _insist_on_all(names, found)
    return changed
