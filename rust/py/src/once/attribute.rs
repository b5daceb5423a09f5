//! `lazy`: an attribute that each instance makes once, in its `__dict__` or in a declared slot.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use lazyparam_core::{Label, Named, Place, get_or_try_init_at};
use pyo3::exceptions::{PyAttributeError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::errors::{Failure, Raise};
use crate::exit::Inside;
use crate::function::{self, name_of};
use crate::gate::Cx;
use crate::raw::{self, Member};

/// The descriptor under ``lazyparam.lazy``: what it does for instances.
#[pyclass(frozen, generic, subclass, weakref, module = "lazyparam._core")]
pub(crate) struct LazyAttribute {
    function: Py<PyAny>,
    /// The slot that a class keeps the value in, if it is another than `_name`.
    slot: Option<Py<PyString>>,
    names: OnceLock<Names>,
    /// The slot of the class that declares the attribute, if it has it.
    member: OnceLock<Member>,
    /// Whether some class has another lazy attribute before this one.
    is_overridden: AtomicBool,
}

/// What a class calls the attribute, and the slot that it may have for it.
struct Names {
    attribute: Py<PyString>,
    slot: Py<PyString>,
    /// The slot as it stands in the source.
    written: String,
}

/// Where an instance keeps the value.
enum Home<'a> {
    Declared(&'a Member),
    Found(Member),
    /// Its ``__dict__``, which may be another one each time it is asked for.
    Dict,
    /// Nowhere: what overrides the attribute keeps its own value.
    Nowhere,
}

impl LazyAttribute {
    fn names(&self, py: Python<'_>) -> PyResult<&Names> {
        self.names.get().ok_or_else(|| {
            Raise::new(
                "LazyTypeError",
                "this lazy attribute does not know its name",
            )
            .remedy("Define it in the body of the class, or call __set_name__.")
            .err(py)
        })
    }

    /// The names, which are those by `name` in `owner` if there were none yet.
    fn called(&self, name: &Bound<'_, PyString>, owner: Option<&str>) -> PyResult<&Names> {
        let py = name.py();
        if self.names.get().is_none() {
            let written = match &self.slot {
                Some(slot) => slot.bind(py).to_str()?.to_owned(),
                None => format!("_{}", name.to_str()?),
            };
            // As Python does with what is written in `__slots__`.
            let is_mangled = written.starts_with("__") && !written.ends_with("__");
            let slot = match owner.map(|owner| owner.trim_start_matches('_')) {
                Some(owner) if is_mangled && !owner.is_empty() => format!("_{owner}{written}"),
                _ => written.clone(),
            };
            let _ = self.names.set(Names {
                attribute: name.clone().unbind(),
                slot: PyString::new(py, &slot).unbind(),
                written,
            });
        }
        self.names(py)
    }

    /// The slot of `instance`'s class by which the attribute was declared.
    fn declared(&self, instance: &Bound<'_, PyAny>) -> Option<&Member> {
        let member = self.member.get()?;
        member.is_in(instance).then_some(member)
    }

    fn home(&self, names: &Names, instance: &Bound<'_, PyAny>) -> PyResult<Home<'_>> {
        if self.gives_way(names, instance)? {
            return Ok(Home::Nowhere);
        }
        if let Some(member) = self.declared(instance) {
            return Ok(Home::Declared(member));
        }
        // A slot that was not asked for, and is another class's, may be there for something else:
        // it is used only where there is no other place.
        if self.slot.is_none() && raw::dict_of(instance)?.is_some() {
            return Ok(Home::Dict);
        }
        let kind = instance.get_type();
        if let Some(member) = kind.getattr_opt(&names.slot)?.as_ref().and_then(Member::of)
            && member.is_in(instance)
        {
            return Ok(Home::Found(member));
        }
        if raw::dict_of(instance)?.is_some() {
            return Ok(Home::Dict);
        }
        let raise = Raise::new(
            "LazyTypeError",
            format!("{} has no room for its value", self.label(names, &kind)),
        );
        if instance.is_instance_of::<PyType>() {
            return Err(raise
                .remedy("Values cannot be kept in classes; use `once`, or a Lazy.")
                .err(instance.py()));
        }
        let remedy = format!(
            "Add {:?} to the __slots__ of {}, or give it a __dict__. Where the slots are those of \
             a dataclass or of attrs, declare the slot in a base class.",
            names.written,
            kind.name()?
        );
        Err(raise.remedy(remedy).err(instance.py()))
    }

    /// Whether `instance`'s class has another lazy attribute under the name. Then this one was
    /// asked for by way of `super()`, and its value, which is not that of the attribute, must not
    /// be seen where that is looked for.
    fn gives_way(&self, names: &Names, instance: &Bound<'_, PyAny>) -> PyResult<bool> {
        let kind = instance.get_type();
        let Some(found) = kind.getattr_opt(&names.attribute)? else {
            return Ok(false);
        };
        if let Ok(other) = found.cast::<Self>() {
            return Ok(!ptr::eq(other.get(), self));
        }
        if Member::of(&found).is_none() {
            return Ok(false);
        }
        // One in a slot: this one's own, or another's.
        let mine = match self.slot {
            Some(_) => kind.getattr_opt(&names.slot)?,
            None => None,
        };
        Ok(!mine.is_some_and(|mine| mine.is(&found)))
    }

    /// Have those that this one overrides look twice before they take what is in a slot for theirs.
    fn warn_overridden(&self, names: &Names, kind: &Bound<'_, PyType>) -> PyResult<()> {
        for below in in_bodies(kind, names.attribute.bind(kind.py()))? {
            if let Ok(below) = below.cast::<Self>()
                && !ptr::eq(below.get(), self)
            {
                below.get().is_overridden.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn label(&self, names: &Names, kind: &Bound<'_, PyType>) -> String {
        let kind = kind.qualname().map(|name| name.to_string());
        format!("{}.{}", kind.as_deref().unwrap_or("?"), names.attribute)
    }

    /// The value that `instance` has, or that the method makes.
    fn force(slf: &Bound<'_, Self>, instance: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let names = this.names(py)?;
        let home = this.home(names, instance)?;
        if matches!(home, Home::Declared(_) | Home::Found(_)) {
            this.warn_overridden(names, &instance.get_type())?;
        }
        let _inside = Inside::enter(py);
        let name = Name {
            attribute: this,
            names,
            kind: &instance.get_type(),
        };
        let place = Place::within(instance.as_ptr().cast_const(), slf.as_ptr().cast_const());
        let made = get_or_try_init_at(
            place,
            &name,
            &mut Cx::new(py),
            || Ok(home.read(names, instance)?),
            || {
                let function = this.function.bind(py);
                let value = function::made(function, function.call1((instance,))?)?;
                home.write(names, instance, &value)?;
                Ok(value)
            },
        );
        made.map(Bound::unbind)
            .map_err(|failure: Failure| failure.into_err_of(py, &name))
    }
}

/// The name of an attribute of some class, made when it is asked for.
struct Name<'a, 'py> {
    attribute: &'a LazyAttribute,
    names: &'a Names,
    kind: &'a Bound<'py, PyType>,
}

impl Named for Name<'_, '_> {
    fn label(&self) -> Label {
        Some(self.attribute.label(self.names, self.kind).into())
    }
}

impl Home<'_> {
    fn read<'py>(
        &self,
        names: &Names,
        instance: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Self::Declared(member) => member.read(instance),
            Self::Found(member) => member.read(instance),
            Self::Dict => match raw::dict_of(instance)? {
                Some(dict) => dict.get_item(&names.attribute),
                None => Ok(None),
            },
            Self::Nowhere => Ok(None),
        }
    }

    fn write(
        &self,
        names: &Names,
        instance: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self {
            Self::Declared(member) => member.write(instance, value),
            Self::Found(member) => member.write(instance, value),
            Self::Dict => match raw::dict_of(instance)? {
                Some(dict) => dict.set_item(&names.attribute, value),
                None => Ok(()),
            },
            Self::Nowhere => Ok(()),
        }
    }
}

/// What the bodies of `kind` and its bases have under `name`, in the order of the look-up.
fn in_bodies<'py>(
    kind: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = kind.py();
    let mut found = Vec::new();
    for class in kind.mro() {
        let body = class.getattr(intern!(py, "__dict__"))?;
        if body.contains(name)? {
            found.push(body.get_item(name)?);
        }
    }
    Ok(found)
}

/// An AttributeError of a method as one that no `__getattr__` of the class can hide.
fn unmasked(instance: &Bound<'_, PyAny>, label: &str, error: PyErr) -> PyErr {
    let py = instance.py();
    let hooks = || in_bodies(&instance.get_type(), intern!(py, "__getattr__"));
    let is_hidden = error.is_instance_of::<PyAttributeError>(py)
        && hooks().is_ok_and(|hooks| !hooks.is_empty());
    if !is_hidden {
        return error;
    }
    let text = error.value(py);
    let seen = PyRuntimeError::new_err(format!("{label} raised an AttributeError: {text}"));
    seen.set_cause(py, Some(error));
    seen
}

#[pymethods]
impl LazyAttribute {
    #[new]
    #[pyo3(signature = (function, /, *, slot = None))]
    fn new(function: &Bound<'_, PyAny>, slot: Option<Py<PyString>>) -> PyResult<Self> {
        function::usable(function)?;
        Ok(Self {
            function: function.clone().unbind(),
            slot,
            names: OnceLock::new(),
            member: OnceLock::new(),
            is_overridden: AtomicBool::new(false),
        })
    }

    /// Learn the name, and where the class keeps the value: the descriptor of its slot, or None.
    fn __set_name__<'py>(
        &self,
        owner: &Bound<'py, PyType>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = owner.py();
        let owner_name = owner.name()?;
        let names = self.called(name, Some(owner_name.to_str()?))?;
        if !names.attribute.bind(py).as_any().eq(name)? {
            let problem = "one lazy attribute cannot have two names";
            return Err(Raise::new("LazyTypeError", problem)
                .expected(names.attribute.to_string())
                .found(name.to_string())
                .err(py));
        }
        let found = match self.slot {
            Some(_) => owner.getattr_opt(&names.slot)?,
            None => {
                let body = owner.getattr(intern!(py, "__dict__"))?;
                let slot = body.call_method1(intern!(py, "get"), (&names.slot,))?;
                (!slot.is_none()).then_some(slot)
            }
        };
        let Some((found, member)) = found.and_then(|it| Some((it.clone(), Member::of(&it)?)))
        else {
            return Ok(None);
        };
        // A class made anew with slots, as dataclasses are, comes here a second time.
        let _ = self.member.set(member);
        Ok(Some(found))
    }

    fn __get__(
        slf: &Bound<'_, Self>,
        instance: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let _ = owner;
        let Some(instance) = instance else {
            return Ok(slf.clone().into_any().unbind());
        };
        let this = slf.get();
        if let Some(member) = this.declared(instance)
            && !(this.is_overridden.load(Ordering::Relaxed)
                && this.gives_way(this.names(slf.py())?, instance)?)
            && let Some(value) = member.read(instance)?
        {
            return Ok(value.unbind());
        }
        Self::force(slf, instance).map_err(|error| {
            let names = slf.get().names(slf.py());
            let label = names.map(|names| slf.get().label(names, &instance.get_type()));
            unmasked(instance, label.as_deref().unwrap_or("lazy"), error)
        })
    }

    /// The value of `instance`, made if need be; its errors are those of the method.
    fn _read(slf: &Bound<'_, Self>, instance: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        Self::force(slf, instance)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<lazy {}>", name_of(self.function.bind(py)))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let this = slf.get();
        let rebuild = py.import("lazyparam._core")?.getattr("rebuild_attribute")?;
        let name = this.names.get().map(|names| &names.attribute);
        (rebuild, (slf.get_type(), &this.function, &this.slot, name)).into_pyobject(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(member) = self.member.get() {
            member.visit(&visit)?;
        }
        visit.call(&self.function)
    }
}

/// A lazy attribute from what its `__reduce__` told.
#[pyfunction]
#[pyo3(signature = (class_, function, slot, name))]
pub(crate) fn rebuild_attribute<'py>(
    class_: &Bound<'py, PyType>,
    function: Bound<'py, PyAny>,
    slot: Option<Bound<'py, PyString>>,
    name: Option<Bound<'py, PyString>>,
) -> PyResult<Bound<'py, PyAny>> {
    let keywords = PyDict::new(class_.py());
    keywords.set_item("slot", slot)?;
    let attribute = class_.call((function,), Some(&keywords))?;
    if let Some(name) = name {
        attribute
            .cast::<LazyAttribute>()?
            .get()
            .called(&name, None)?;
    }
    Ok(attribute)
}
