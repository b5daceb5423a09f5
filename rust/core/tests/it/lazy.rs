//! The coming into being of a value: once, for all who share it, failing without harm.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use lazyparam_core::{Change, Lazy, Origin, Shape};

use crate::toy::{
    ANON, HERE, Kind, NUMPY, Oops, P, Toy, World, call, declared, drawn_element, fresh, label,
    of_kind, read, step, twice,
};
use crate::watchdog::{crowd, gate, take_a_while, until, watched};

const KINDS: [Kind; 4] = [Kind::Float, Kind::Half, Kind::Int, Kind::Bool];

/// B01, B02, B03: whatever the kind and wherever, four threads make one value.
#[test]
fn four_threads_that_read_one_lazy_param_together_run_its_initialiser_once() {
    watched(|| {
        for (kind, place) in KINDS
            .into_iter()
            .flat_map(|kind| [(kind, HERE), (kind, NUMPY)])
        {
            let runs = Arc::new(AtomicUsize::new(0));
            let counter = runs.clone();
            let slow = call(move |plan| {
                take_a_while();
                let run = counter.fetch_add(1, SeqCst);
                Ok(Toy::planned(plan, |index| (run + index) as f32))
            });
            let param = of_kind(kind, place, slow);
            let seen = crowd(4, |_| {
                let value = param.val(&ANON, &World::default()).unwrap();
                (
                    std::ptr::from_ref(value) as usize,
                    value.data.to_vec(),
                    value.is_tracked(),
                )
            });
            assert_eq!(runs.load(SeqCst), 1);
            assert!(seen.iter().all(|each| *each == seen[0]), "{seen:?}");
            assert_eq!(
                seen[0].2,
                place == HERE && matches!(kind, Kind::Float | Kind::Half)
            );
        }
    });
}

/// B05
#[test]
fn four_threads_that_read_a_random_param_get_equal_bits() {
    watched(|| {
        let param = declared(HERE, Origin::Draw(5));
        let world = World::default();
        let seen = crowd(4, |_| read(&param, &world));
        let expected: Vec<_> = (0..6).map(|index| drawn_element(5, index)).collect();
        assert!(seen.iter().all(|each| *each == expected));
        assert_eq!(world.diary(), ["draw on here"]);
    });
}

/// B06
#[test]
fn a_clone_taken_while_lazy_comes_into_being_with_the_original() {
    let world = World::default();
    let (runs, origin) = fresh();
    let original = declared(HERE, origin);
    let clone = original.share(&world);
    assert!(!original.is_initialized() && !clone.is_initialized());
    let value = read(&original, &world);
    assert!(original.is_initialized() && clone.is_initialized());
    assert_eq!(read(&clone, &world), value);
    assert_eq!(runs.load(SeqCst), 1);
}

/// B47
#[test]
fn a_failing_initialiser_leaves_the_param_lazy_and_is_tried_again() {
    let world = World::default();
    let attempts = AtomicUsize::new(0);
    let param = declared(
        NUMPY,
        call(move |plan| match attempts.fetch_add(1, SeqCst) {
            0 | 1 => Err(Oops::Raised("not yet")),
            attempt => Ok(Toy::planned(plan, |_| attempt as f32)),
        }),
    );
    for _ in 0..2 {
        assert_eq!(
            param.val(&ANON, &world).unwrap_err(),
            Oops::Raised("not yet")
        );
        assert!(!param.is_initialized());
        assert!(param.state().recipe().is_some());
        assert_eq!(
            (&**param.shape(), *param.dtype(), *param.device()),
            (&[2, 3][..], Kind::Float, NUMPY)
        );
    }
    assert_eq!(read(&param, &world), [2.0; 6]);
    assert!(param.state().recipe().is_none(), "a spent recipe is let go");
}

/// B47
#[test]
fn a_panicking_initialiser_leaves_the_param_lazy_and_is_tried_again() {
    let world = World::default();
    let first = AtomicBool::new(true);
    let param = declared(
        HERE,
        call(move |plan| {
            assert!(!first.swap(false, SeqCst), "the first time");
            Ok(Toy::planned(plan, |_| 1.0))
        }),
    );
    let derived = param
        .map(twice(), Change::default(), &ANON, &world)
        .unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| derived.val(&ANON, &world).is_ok()));
    assert!(panicked.is_err());
    assert!(!param.is_initialized() && !derived.is_initialized());
    assert_eq!(read(&derived, &world), [2.0; 6]);
    assert_eq!(read(&param, &world), [1.0; 6]);
}

/// B47: an initialiser has to keep to the plan.
#[test]
fn a_value_of_another_shape_dtype_or_device_is_refused() {
    let world = World::default();
    for what in ["shape", "dtype", "device"] {
        let spoil = move |toy| match what {
            "shape" => Toy {
                shape: Shape::from([6]),
                ..toy
            },
            "dtype" => Toy {
                kind: Kind::Int,
                ..toy
            },
            _ => Toy {
                place: NUMPY,
                ..toy
            },
        };
        let param = declared(
            HERE,
            call(move |plan| Ok(spoil(Toy::planned(plan, |_| 0.0)))),
        );
        assert_eq!(param.val(&ANON, &world).unwrap_err(), Oops::Unlike(what));
        assert!(!param.is_initialized());
    }
}

/// B47: a failure above leaves what is made below.
#[test]
fn a_failing_step_keeps_the_value_of_the_source_that_others_hold_too() {
    let world = World::default();
    let (runs, origin) = fresh();
    let source = declared(HERE, origin);
    let first = AtomicBool::new(true);
    let fails_once = step(move |toy| {
        if first.swap(false, SeqCst) {
            Err(Oops::Raised("step"))
        } else {
            Ok(toy)
        }
    });
    let derived = source
        .map(fails_once, Change::default(), &ANON, &world)
        .unwrap();
    assert_eq!(
        derived.val(&ANON, &world).unwrap_err(),
        Oops::Raised("step")
    );
    assert!(!derived.is_initialized() && source.is_initialized());
    assert_eq!(read(&derived, &world), read(&source, &world));
    assert_eq!(runs.load(SeqCst), 1);
}

/// B47
#[test]
fn a_step_that_fails_on_a_ready_param_answers_at_once_and_changes_nothing() {
    let world = World::default();
    let source = declared(HERE, Origin::Draw(1));
    let before = read(&source, &world);
    let fails = step(|_| Err(Oops::Raised("step")));
    let refused = source.map(fails, Change::default(), &ANON, &world).err();
    assert_eq!(refused, Some(Oops::Raised("step")));
    assert_eq!(read(&source, &world), before);
}

/// Params that a param's initialiser reads, filled in after they are declared.
type Later = Arc<OnceLock<P>>;

fn reading(other: &Later, name: &'static str, before: impl Fn() + Send + Sync + 'static) -> P {
    let other = other.clone();
    declared(
        HERE,
        call(move |plan| {
            before();
            let other = other.get().unwrap();
            let data = other.val(&label(name), &World::default())?.data.clone();
            Ok(Toy::planned(plan, |index| data[index] + 1.0))
        }),
    )
}

/// B48
#[test]
fn an_initialiser_that_reads_its_own_param_gets_an_error_that_names_it() {
    watched(|| {
        let later = Later::default();
        let param = reading(&later, "layer.weight", || ());
        assert!(later.set(param.share(&World::default())).is_ok());
        let error = param
            .val(&label("layer.weight"), &World::default())
            .unwrap_err();
        let Oops::Cycle(cycle) = error else {
            panic!("{error:?}")
        };
        assert_eq!(
            cycle.to_string(),
            "the initialiser of layer.weight reads layer.weight itself"
        );
        assert!(!param.is_initialized());
    });
}

/// B48
#[test]
fn two_params_whose_initialisers_read_each_other_on_two_threads_never_hang() {
    watched(|| {
        let (later_a, later_b) = (Later::default(), Later::default());
        let both_hold = Arc::new(Barrier::new(2));
        let meet_once = |both_hold: Arc<Barrier>| {
            let first = AtomicBool::new(true);
            move || {
                if first.swap(false, SeqCst) {
                    both_hold.wait();
                }
            }
        };
        let a = reading(&later_b, "b", meet_once(both_hold.clone()));
        let b = reading(&later_a, "a", meet_once(both_hold));
        assert!(later_a.set(a.share(&World::default())).is_ok());
        assert!(later_b.set(b.share(&World::default())).is_ok());
        let errors = crowd(2, |number| {
            let (param, name) = if number == 0 { (&a, "a") } else { (&b, "b") };
            param
                .val(&label(name), &World::default())
                .map(drop)
                .unwrap_err()
        });
        for error in errors {
            let Oops::Cycle(cycle) = error else {
                panic!("{error:?}")
            };
            assert!(
                cycle.cells.iter().all(|cell| matches!(&**cell, "a" | "b")),
                "{cycle}"
            );
        }
    });
}

/// B48: a derived value needs what it is derived from.
#[test]
fn an_initialiser_that_reads_a_param_derived_from_its_own_gets_an_error() {
    watched(|| {
        let world = World::default();
        let later = Later::default();
        let source = reading(&later, "derived", || ());
        let derived = source
            .map(twice(), Change::default(), &ANON, &world)
            .unwrap();
        assert!(later.set(derived.share(&world)).is_ok());
        for param in [&source, &derived] {
            assert!(matches!(param.val(&ANON, &world), Err(Oops::Cycle(_))));
        }
        drop(source);
        assert!(matches!(derived.val(&ANON, &world), Err(Oops::Cycle(_))));
    });
}

/// B50
#[test]
fn a_thread_that_waits_for_an_initialiser_can_be_interrupted() {
    watched(|| {
        let (started, has_started) = gate();
        let (finish, finished) = gate();
        let (started, finished) = (
            std::sync::Mutex::new(started),
            std::sync::Mutex::new(finished),
        );
        let param = Arc::new(declared(
            HERE,
            call(move |plan| {
                started.lock().unwrap().send(()).unwrap();
                finished.lock().unwrap().recv().unwrap();
                Ok(Toy::planned(plan, |_| 3.0))
            }),
        ));
        let world = Arc::new(World::default());
        let worker = thread::spawn({
            let param = param.clone();
            move || read(&param, &World::default())
        });
        has_started.recv().unwrap();
        let waiter = thread::spawn({
            let (param, world) = (param.clone(), world.clone());
            move || param.val(&ANON, &world).map(drop).unwrap_err()
        });
        until(|| world.naps.load(SeqCst) > 0);
        assert!(!waiter.is_finished());
        world.interrupted.store(true, SeqCst);
        assert_eq!(waiter.join().unwrap(), Oops::Interrupted);
        assert!(!param.is_initialized());
        finish.send(()).unwrap();
        assert_eq!(worker.join().unwrap(), [3.0; 6]);
        assert_eq!(read(&param, &World::default()), [3.0; 6]);
    });
}

#[test]
fn a_discarded_recipe_answers_with_an_error_and_metadata_stays() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    param.discard();
    let error = param.val(&ANON, &world).unwrap_err();
    assert!(matches!(
        error,
        Oops::Fault(lazyparam_core::Fault::Discarded)
    ));
    assert_eq!(&**param.shape(), [2, 3]);
}

#[test]
fn a_shared_recipe_is_not_discarded() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    let clone = param.share(&world);
    param.discard();
    assert_eq!(read(&clone, &world).len(), 6);
    drop(clone);
    param.discard();
    assert!(param.get().is_some(), "a value is never discarded");
}

#[test]
fn a_state_born_ready_has_no_recipe() {
    let world = World::default();
    let lazy = declared(HERE, Origin::Draw(1));
    let plan = lazy.state().plan().clone();
    let value = lazy.state().force(&ANON, &world).unwrap().clone();
    let ready = Lazy::ready(plan, value);
    assert!(ready.get().is_some() && ready.recipe().is_none() && ready.get_leaf().is_none());
}
