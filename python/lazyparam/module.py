"""``Module``: a plain base class; its verbs walk the tree and delegate down."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

from . import _core, _tree, buffers, display, grads, plans, pytrees, records, reparam
from ._core import Device, Param
from ._progress import Progress, reporting
from .buffers import Buffer
from .errors import ModuleError
from .grads import Grads
from .plans import DType, LoadPlan, Rename, Rules
from .records import Group, ModuleRecord
from .sources import Mode, PathLike
from .visitors import ModuleMapper, ModuleVisitor

__all__ = ["Module"]

T = TypeVar("T")


class _Named(ABCMeta):
    """Tells the parameters of a new module their paths, so that errors can name them."""

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> None:
        super().__init__(name, bases, space)
        if issubclass(cls, list | tuple | dict | set | frozenset):
            raise ModuleError(
                f"{name} is a module and a container at once",
                remedy="Keep the container in an attribute.",
            )
        pytrees.register(cls)

    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:
        module: T = super().__call__(*args, **kwargs)  # type: ignore[misc]
        pytrees.register(cls)  # JAX may have been imported since
        _refuse_shared(module)
        # A bad tree is reported by the first verb; a half-built one may mend itself until then.
        with suppress(ModuleError):
            _tree.name_params(module)
        return module


class Module(_tree.Branch, metaclass=_Named):
    """A model, or a part of one: a plain class whose attributes lead to parameters.

    Attributes that are Params, Modules, or lists, tuples, dicts and dataclasses of them are walked
    in the order in which they were set, with dotted paths such as ``"layers.0.weight"``; all other
    attributes are constants. Verbs return new modules and leave the old one alone; the new one
    shares the constants. Tied parameters (the same param, or a clone of it, in two places) stay
    tied through every verb.

    >>> import lazyparam as lp
    >>> class Linear(lp.Module):
    ...     def __init__(self, inputs, outputs):
    ...         self.weight = lp.Param((outputs, inputs), lp.init.ones())
    ...         self.bias = lp.Param(outputs, lp.init.zeros())
    ...     def __call__(self, x):
    ...         return x @ self.weight.value.T + self.bias.value
    >>> linear = Linear(3, 2)
    >>> linear
    Linear(
      weight: Param(float32[2, 3], numpy:cpu, lazy: ones()),
      bias: Param(float32[2], numpy:cpu, lazy: zeros()),
    )
    >>> linear([1.0, 2.0, 3.0]).tolist()
    [6.0, 6.0]
    """

    # Looking: nothing comes into being.

    def named_parameters(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Param[Any]]]:
        """Paths and parameters in order; tied ones once, at their first path, unless told so.

        Buffers are none: see :meth:`named_buffers`.
        """
        leaves = buffers.parameters(self)
        yield from _tree.unique(leaves) if remove_duplicate else leaves

    def parameters(self, remove_duplicate: bool = True) -> Iterator[Param[Any]]:
        """The parameters in order, as :meth:`named_parameters`."""
        return (param for _, param in self.named_parameters(remove_duplicate))

    def named_buffers(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Buffer]]:
        """Paths and buffers in order, persistent or not; tied ones once unless told so."""
        seen: set[int] = set()
        for path, buffer in buffers.named(self):
            tie = buffer._base._tie
            if not remove_duplicate or tie not in seen:
                yield path, buffer
            seen.add(tie)

    def visit(self, visitor: ModuleVisitor) -> None:
        """Show every parameter to `visitor`, the one within each buffer too.

        Raises:
            ModuleError: if it is not a ModuleVisitor.
        """
        _insist(visitor, ModuleVisitor)
        _tree.visit(self, visitor.visit, visitor)

    def num_params(self, trainable: bool = False, remove_duplicate: bool = True) -> int:
        """Elements of all parameters, tied ones counted once; or only of the trainable ones."""
        return sum(
            param.size
            for param in self.parameters(remove_duplicate)
            if param.is_active or not trainable
        )

    def devices(self) -> list[Device]:
        """The devices of the parameters and buffers, each once, in order of first sight."""
        return list(dict.fromkeys(leaf.param.device for leaf in _tree.walk(self)))

    def __repr__(self) -> str:
        return display.describe(self)

    # Changing: a new module each time.

    def map(self, mapper: ModuleMapper) -> Self:
        """The module with every parameter as `mapper` returns it; tied ones are mapped once.

        Raises:
            ModuleError: if it is not a ModuleMapper, or gives something else than parameters.
        """
        _insist(mapper, ModuleMapper)
        return _tree.rebuild(self, mapper.map, mapper)

    def clone(self, independent: bool = False) -> Self:
        """The module with clones of its parameters, which share their coming into being.

        With ``independent=True`` each draws for itself; so does ``copy.deepcopy``, which copies
        the constants too.
        """
        return _tree.rebuild(self, lambda _, param: param.clone(independent=independent))

    def to_device(self, device: str | Device) -> Self:
        """The module on `device`. Lazy parameters stay lazy."""
        return _tree.rebuild(self, lambda _, param: param.to_device(device))

    def fork(self, device: str | Device) -> Self:
        """The module on `device`, its parameters apart from these."""
        return _tree.rebuild(self, lambda _, param: param.fork(device))

    def seed(self, seed: int) -> Self:
        """The module with its native draws decided by `seed` and the paths of its parameters.

        A value then depends on nothing else: not on the order in which parameters come into
        being, not on threads, not on what other parameters there are. Tied parameters go by their
        first path; a parameter with an ``rng_name`` goes by that, so it may be renamed. What is
        there already, is loaded or is made by functions stays as it is.

        Args:
            seed: an int from 0 to 2**128 - 1.

        >>> import lazyparam as lp
        >>> class Net(lp.Module):
        ...     def __init__(self):
        ...         self.weight = lp.Param((2, 2), lp.init.normal())
        >>> one, other = Net().seed(42), Net().seed(42)
        >>> bool((one.weight.value == other.weight.value).all())
        True
        """
        parts, memo = _tree.parts(self), {}  # type: ignore[var-annotated]
        return _tree.rebuild(self, lambda path, param: param._seeded(seed, parts[path], memo))

    def valid(self) -> Self:
        """The module for validation: read untracked; what is to be trained stays on record."""
        return _tree.rebuild(self, lambda _, param: param.valid())

    def train(self) -> Self:
        """The module for training: undoes :meth:`valid`."""
        return _tree.rebuild(self, lambda _, param: param.train())

    def materialize(self) -> Self:
        """The module with what is attached to its parameters folded in (Burn's ``materialize``).

        It brings nothing into being; :meth:`initialize` does.
        """
        return reparam.materialize(self)

    def set_requires_grad(self, requires_grad: bool) -> Self:
        """The module with another wish to train, for all parameters."""
        return _tree.rebuild(self, lambda _, param: param.set_requires_grad(requires_grad))

    def no_grad(self) -> Self:
        """``set_requires_grad(False)``."""
        return self.set_requires_grad(False)

    def freeze(self) -> Self:
        """The module with nothing to train."""
        return self.set_requires_grad(False)

    def unfreeze(self) -> Self:
        """The module with everything to train that can be: never a buffer."""
        return self.set_requires_grad(True)

    # Training.

    def leaves(self) -> list[Any]:
        """What an optimiser trains: the tracked values of the parameters, tied ones once.

        Brings them into being. Frozen parameters, ints and bools are left out. The optimiser
        writes to the leaves, so the module that was asked sees every step:
        ``torch.optim.SGD(model.leaves(), lr=0.1)``.

        Raises:
            DeviceError: if a parameter is to be trained and is read untracked: before
                :meth:`train`, or after :meth:`valid`.
            AutodiffUnsupported: if its library does not record gradients.
        """
        return grads.leaves_of(self)

    def grads(self) -> Grads:
        """The gradients that the leaves hold now, by parameter; those without one are absent.

        Errors as for :meth:`leaves`. For gradients that no leaf keeps, see :func:`gradients`.
        """
        return grads.grads_of(self)

    # For JAX.

    def partition(self) -> tuple[Self, Self]:
        """Two modules: one with the parameters to train, one with all others.

        Each has empty places where the other has parameters; JAX sees None there. Lazy parameters
        stay lazy. ``lazyparam.combine`` puts the parts together again, also in a function that
        JAX differentiates with respect to the first::

            trainable, frozen = model.partition()
            loss = lambda t: f(lp.combine(t, frozen), batch)
            grads = jax.grad(loss)(trainable)
            trainable = jax.tree.map(lambda p, g: p - lr * g, trainable, grads)

        A frozen parameter that is tied to one to train goes with that; gradients stop there.

        Raises:
            BackendMissing: if JAX is not installed.
        """
        return pytrees.partition(self)

    def abstract(self) -> Self:
        """The module with a ``jax.ShapeDtypeStruct`` for each parameter; brings none into being.

        For ``jax.eval_shape`` and ``jax.jit(f).lower``.

        Raises:
            BackendMissing: if JAX is not installed.
        """
        return pytrees.abstract(self)

    # Coming into being.

    def initialize(self, threads: int | None = None, progress: Progress = None) -> Self:
        """Bring all that is lazy into being, buffers too: in parallel, and detached from Python.

        Stops at the first error or Ctrl-C: what is being made by then is finished and stays, the
        rest stays lazy. Initialisers run in threads of their own, without the caller's context
        variables.

        Args:
            threads: how many threads work; None is one for each processor.
            progress: None shows a bar if standard error is a terminal; True and False decide it;
                a function is called with (bytes done, bytes in all).

        Returns:
            This module.

        Raises:
            BaseException: what the first failing initialiser raised, with the parameter's path.
        """
        lazy = []
        for path, param in _tree.unique(_tree.walk(self)):
            param._found_at(path)
            if not param.is_initialized:
                lazy.append(param)
        total = sum(param.nbytes for param in lazy)
        with reporting(progress, total, type(self).__name__) as report:
            _core.initialize(lazy, threads, report)
        return self

    # Files.

    def plan_load(
        self,
        path: PathLike,
        *,
        strict: bool = True,
        allow_missing: bool | None = None,
        allow_unexpected: bool | None = None,
        skip_mismatched: bool = False,
        rename: Rename = None,
        dtype: DType = "keep",
        device: str | Device | None = None,
        mode: Mode = "auto",
    ) -> LoadPlan[Self]:
        """What loading a checkpoint would do. Reads headers only, changes nothing; print it.

        Args:
            path: a ``.safetensors`` file, a ``*.index.json``, or a folder with one of them.
            strict: whether missing parameters and unexpected tensors are errors. A load that
                matches nothing always is.
            allow_missing: overrides `strict` for parameters without a tensor: they keep their own
                initialisers.
            allow_unexpected: overrides `strict` for tensors without a parameter.
            skip_mismatched: leave parameters as they are whose tensor has another shape.
            rename: from names in the file to paths: a mapping, or a function (None drops one).
            dtype: ``"keep"`` keeps the module's dtypes and refuses what they cannot hold exactly;
                ``"cast"`` rounds (an int that does not fit is an error when it is read); ``"file"``
                takes the dtypes of the file; the name of a dtype takes that, for parameters of
                its kind, and keeps the others. Parameters with a load mapper keep theirs. Ints
                never become floats or bools, unless a load mapper makes them so.
            device: load there instead of where the parameters are.
            mode: ``"copy"`` reads into memory of its own; ``"view"`` maps the file, which has to
                stay as it is; ``"auto"`` maps local files that nobody else may write.

        Raises:
            FormatError: if it is not a well-formed checkpoint.
            OSError: if it cannot be opened.
        """
        rules = Rules.of(strict, allow_missing, allow_unexpected, skip_mismatched, rename, dtype)
        return plans.plan_load(self, path, rules, device, mode)

    def load_file(
        self,
        path: PathLike,
        *,
        strict: bool = True,
        allow_missing: bool | None = None,
        allow_unexpected: bool | None = None,
        skip_mismatched: bool = False,
        rename: Rename = None,
        dtype: DType = "keep",
        device: str | Device | None = None,
        mode: Mode = "auto",
    ) -> Self:
        """The module with the parameters of a checkpoint: :meth:`plan_load`, then commit.

        Nothing is read until a value is needed; no initialiser of a loaded parameter ever runs.
        Arguments as in :meth:`plan_load`.

        Raises:
            RecordError: one error that lists every problem; this module stays as it is.
            FormatError: if it is not a well-formed checkpoint.
            OSError: if it cannot be opened.
        """
        plan = self.plan_load(
            path,
            strict=strict,
            allow_missing=allow_missing,
            allow_unexpected=allow_unexpected,
            skip_mismatched=skip_mismatched,
            rename=rename,
            dtype=dtype,
            device=device,
            mode=mode,
        )
        return plan.commit()

    def save_file(self, path: PathLike, metadata: Mapping[str, str] | None = None) -> None:
        """Write all parameters to one safetensors file; tied ones once. Brings them into being.

        Identities are not written (:meth:`record` has them): a model has one file, whoever made it.
        Buffers that are not persistent are left out.

        Written to a temporary file that then takes the place of `path`: mode, owner and links of
        an existing file are kept, and an error leaves it as it was.
        """
        records.save(self, path, metadata)

    def state_dict(self) -> dict[str, Any]:
        """Path -> value in stored form, as torch has it. Brings the parameters into being."""
        return records.state_dict(self)

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        strict: bool = True,
        *,
        allow_missing: bool | None = None,
        allow_unexpected: bool | None = None,
        skip_mismatched: bool = False,
        rename: Rename = None,
        dtype: DType = "keep",
    ) -> Self:
        """The module with the arrays of `state`, which are copied.

        Arguments and errors as in :meth:`load_file`. Unlike torch's, this module stays as it is.
        """
        rules = Rules.of(strict, allow_missing, allow_unexpected, skip_mismatched, rename, dtype)
        return plans.plan_state(self, state, rules).commit()

    # Records.

    def record(self, group: Group | None = None) -> ModuleRecord:
        """What the module stores, with identities and ties: a snapshot, on the host.

        Nothing that happens to this module later changes it, not even what an optimiser writes
        into torch's tensors. Lazy parameters stay lazy in the record and share the one draw or read
        with this module, or repeat it. Two kinds come into being: those with save mappers, and, on
        libraries whose arrays can be written to (torch, CuPy), those that a function of yours makes
        or maps.

        Args:
            group: record only what this ``ParamGroup`` selects, tied parameters by any of their
                paths. Nothing else is looked at.

        Raises:
            RecordError: if the group selects nothing.
        """
        return records.record(self, group)

    def plan_record(
        self,
        record: ModuleRecord,
        *,
        strict: bool = True,
        allow_missing: bool | None = None,
        allow_unexpected: bool | None = None,
        skip_mismatched: bool = False,
        rename: Rename = None,
        dtype: DType = "keep",
    ) -> LoadPlan[Self]:
        """What loading `record` would do; print it. Arguments as in :meth:`plan_load`.

        For `dtype`, ``"file"`` is the dtypes of the record.
        """
        rules = Rules.of(strict, allow_missing, allow_unexpected, skip_mismatched, rename, dtype)
        return plans.plan_record(self, record, rules)

    def load_record(
        self,
        record: ModuleRecord,
        *,
        strict: bool = True,
        allow_missing: bool | None = None,
        allow_unexpected: bool | None = None,
        skip_mismatched: bool = False,
        rename: Rename = None,
        dtype: DType = "keep",
    ) -> Self:
        """The module with the parameters of `record`: :meth:`plan_record`, then commit.

        Devices, wishes to train, mappers, ties and what is attached to parameters are this
        module's; the identities are the record's, where it has them. What is lazy there is lazy
        here, and no initialiser of a loaded parameter ever runs.

        Raises:
            RecordError: one error that lists every problem; this module stays as it is.
        """
        plan = self.plan_record(
            record,
            strict=strict,
            allow_missing=allow_missing,
            allow_unexpected=allow_unexpected,
            skip_mismatched=skip_mismatched,
            rename=rename,
            dtype=dtype,
        )
        return plan.commit()


def _insist(given: object, kind: type) -> None:
    if not isinstance(given, kind):
        raise ModuleError(
            f"this takes a {kind.__name__}",
            found=type(given).__name__,
            remedy=f"Derive a class from {kind.__name__} and pass an object of it.",
        )


def _refuse_shared(module: object) -> None:
    """Refuse parameters that are attributes of the class: no verb would find them."""
    own = vars(module) if hasattr(module, "__dict__") else {}
    for kind in type(module).__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, Param) and name not in own:
                raise ModuleError(
                    f"this parameter belongs to the class {kind.__name__}, not to its objects",
                    path=name,
                    remedy="Set it in __init__.",
                )
