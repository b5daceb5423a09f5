"""``Module``: a plain base class; its verbs walk the tree and delegate down."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

from . import _core, _tree, display, freezing, grads, plans, pytrees, records, reparam
from ._core import Device, Param
from ._progress import Progress, reporting
from .errors import ModuleError
from .flags import Flag
from .grads import Grads
from .plans import DType, LoadPlan, Rename, Rules
from .selection import GroupLike
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
        """Paths and parameters in order; tied ones once, at their first path, unless told so."""
        leaves = _tree.walk(self)
        yield from _tree.unique(leaves) if remove_duplicate else leaves

    def parameters(self, remove_duplicate: bool = True) -> Iterator[Param[Any]]:
        """The parameters in order, as :meth:`named_parameters`."""
        return (param for _, param in self.named_parameters(remove_duplicate))

    def visit(self, visitor: ModuleVisitor) -> None:
        """Show every parameter and every flag to `visitor`.

        Raises:
            ModuleError: if it is not a ModuleVisitor.
        """
        _insist(visitor, ModuleVisitor)
        _tree.visit(self, visitor.visit, visitor, visitor.visit_flag)

    def num_params(self, trainable: bool = False, remove_duplicate: bool = True) -> int:
        """Elements of all parameters, tied ones counted once; or only of the trainable ones."""
        return sum(
            param.size
            for param in self.parameters(remove_duplicate)
            if param.is_active or not trainable
        )

    def devices(self) -> list[Device]:
        """The devices of the parameters, each once, in order of first sight."""
        return list(dict.fromkeys(param.device for param in self.parameters()))

    def __repr__(self) -> str:
        return display.describe(self)

    # Changing: a new module each time.

    def map(self, mapper: ModuleMapper) -> Self:
        """The module with every parameter and flag as `mapper` returns it; tied ones once.

        Raises:
            ModuleError: if it is not a ModuleMapper, or gives something else than parameters.
        """
        _insist(mapper, ModuleMapper)
        return _tree.rebuild(self, mapper.map, mapper, change_flag=mapper.map_flag)

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
        """The module for validation: read untracked, flags off; what to train stays on record.

        Only :meth:`train` undoes it: moves and forks leave flags off.
        """
        return _tree.rebuild(
            self, lambda _, param: param.valid(), change_flag=lambda _, flag: flag.valid()
        )

    def train(self) -> Self:
        """The module for training: undoes :meth:`valid`."""
        return _tree.rebuild(
            self, lambda _, param: param.train(), change_flag=lambda _, flag: flag.train()
        )

    def materialize(self) -> Self:
        """The module with what is attached to its parameters folded in (Burn's ``materialize``).

        It brings nothing into being; :meth:`initialize` does.
        """
        return reparam.materialize(self)

    # What is to be trained.

    def set_requires_grad(
        self, requires_grad: bool, group: GroupLike | None = None, *, allow_missing: bool = False
    ) -> Self:
        """The module with another wish to train, for all parameters or those of `group`.

        Flags stay as they are: dropout and the like behave as before.

        Args:
            requires_grad: the wish.
            group: a :class:`ParamGroup`, or a shell pattern for paths such as ``"encoder.*"``. It
                selects tied parameters together, by any of their paths.
            allow_missing: whether the group may select nothing, and name paths that are not there.

        Raises:
            GroupError: if the group selects nothing that has gradients, or names paths that are
                not there.
        """
        return freezing.wished(self, requires_grad, group, allow_missing)

    def no_grad(self, group: GroupLike | None = None, *, allow_missing: bool = False) -> Self:
        """``set_requires_grad(False, group)``: no gradients; flags stay as they are."""
        return self.set_requires_grad(False, group, allow_missing=allow_missing)

    def freeze(self, group: GroupLike | None = None, *, allow_missing: bool = False) -> Self:
        """The module with nothing to train, or nothing of `group`: no gradients, flags disabled.

        Arguments as in :meth:`set_requires_grad`; :meth:`training_state` remembers what was.

        Raises:
            GroupError: if the group selects nothing, or names paths that are not there.
        """
        return freezing.switched(self, False, group, allow_missing)

    def unfreeze(self, group: GroupLike | None = None, *, allow_missing: bool = False) -> Self:
        """The module with everything to train that can be, or everything in `group`.

        Everything: also parameters and flags that somebody had disabled before :meth:`freeze`. To
        undo a freeze and no more, see :meth:`training_state`. Arguments and errors as there.
        """
        return freezing.switched(self, True, group, allow_missing)

    def training_state(
        self, group: GroupLike | None = None, *, allow_missing: bool = False
    ) -> dict[str, bool]:
        """What is to be trained, by path: the wish for each parameter, and whether flags are on.

        A plain dict, to keep beside the module or in JSON, which :meth:`with_training_state` puts
        back. ``valid()`` does not change it. Arguments and errors as in :meth:`freeze`.

        >>> import lazyparam as lp
        >>> class Net(lp.Module):
        ...     def __init__(self):
        ...         self.table = lp.Param(3, lp.init.ones(), requires_grad=False)
        ...         self.weight = lp.Param(3, lp.init.ones())
        >>> net = Net()
        >>> before = net.training_state()
        >>> before
        {'table': False, 'weight': True}
        >>> net.freeze().with_training_state(before).training_state() == before
        True
        """
        return freezing.training_state(self, group, allow_missing)

    def with_training_state(
        self, state: Mapping[str, bool], *, allow_missing: bool = False
    ) -> Self:
        """The module with what `state` says is to be trained; the rest stays as it is.

        Works on any module with these paths: what was trained, loaded or moved meanwhile.

        Args:
            state: as :meth:`training_state` gives it.
            allow_missing: whether it may name paths that are not there.

        Raises:
            GroupError: if it names paths that are not there, or says something else than bools.
        """
        return freezing.restored(self, state, allow_missing)

    # Training.

    def leaves(self, group: GroupLike | None = None, *, allow_missing: bool = False) -> list[Any]:
        """What an optimiser trains: the tracked values of the parameters, tied ones once.

        Brings them into being. Frozen parameters, ints and bools are left out. The optimiser
        writes to the leaves, so the module that was asked sees every step:
        ``torch.optim.SGD(model.leaves(), lr=0.1)``. With `group`, only its leaves: those of a group
        and of its complement never overlap.

        Raises:
            GroupError: if the group selects nothing, or names paths that are not there, unless
                `allow_missing`.
            DeviceError: if a parameter is to be trained and is read untracked: before
                :meth:`train`, or after :meth:`valid`.
            AutodiffUnsupported: if its library does not record gradients.
        """
        return grads.leaves_of(self, group, allow_missing)

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
        """Bring every lazy parameter into being, in parallel, detached from the interpreter.

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
        for path, param in self.named_parameters():
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


def _insist(given: object, kind: type) -> None:
    if not isinstance(given, kind):
        raise ModuleError(
            f"this takes a {kind.__name__}",
            found=type(given).__name__,
            remedy=f"Derive a class from {kind.__name__} and pass an object of it.",
        )


def _refuse_shared(module: object) -> None:
    """Refuse parameters and flags that are attributes of the class: no verb would find them."""
    own = vars(module) if hasattr(module, "__dict__") else {}
    for kind in type(module).__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, Param | Flag) and name not in own:
                what = "flag" if isinstance(value, Flag) else "parameter"
                raise ModuleError(
                    f"this {what} belongs to the class {kind.__name__}, not to its objects",
                    path=name,
                    remedy="Set it in __init__.",
                )
