//! What is free to ask stays free: no question but a read ever runs an initialiser or waits.

use std::sync::{Arc, Mutex};
use std::thread;

use lazyparam_core::{Change, Lazy, Memo, Origin, Recipe};

use crate::toy::{
    ANON, HERE, Kind, NUMPY, P, THERE, Toy, World, call, declared, of_kind, raising, read, twice,
};
use crate::watchdog::{gate, watched};

/// Everything that can be asked for nothing.
fn ask_everything(param: &P) -> String {
    format!(
        "{} {:?} {:?} {:?} {} {} {} {} {:?} {:?} {} {:?}",
        param.id(),
        param.shape(),
        param.dtype(),
        param.device(),
        param.requires_grad(),
        param.is_active(),
        param.is_tracked(),
        param.is_initialized(),
        param.stored_shape(),
        param.declared_shape(),
        param.get().is_some(),
        param.state().plan(),
    )
}

/// B23, B34, B35
#[test]
fn no_question_and_no_verb_but_a_read_runs_an_initialiser() {
    let world = World::default();
    for (kind, place) in [(Kind::Float, HERE), (Kind::Int, HERE), (Kind::Bool, NUMPY)] {
        let param = of_kind(kind, place, raising());
        let loaded_with = of_kind(kind, THERE, Origin::Read(vec![1.0; 6]))
            .state()
            .clone();
        let verbs = [
            param.share(&world),
            param.independent(&mut Memo::new(), &world).unwrap(),
            param
                .map(twice(), Change::default(), &ANON, &world)
                .unwrap(),
            param.to_device(&place, &ANON, &world).unwrap(),
            param.to_device(&THERE, &ANON, &world).unwrap(),
            param.fork(&THERE, &ANON, &world).unwrap(),
            param.valid(&world),
            param.train(&world),
            param.set_requires_grad(false, &world),
            param.with_mappers(
                param.mappers().share(&world).and_load(twice(), None),
                &world,
            ),
            param
                .transform_for_load(None, loaded_with, vec![], None, &ANON, &world)
                .unwrap(),
        ];
        for each in verbs.iter().chain([&param]) {
            ask_everything(each);
            assert!(!each.is_initialized());
        }
        assert_eq!(param.shape().iter().product::<usize>(), 6);
        assert_eq!(world.diary(), [""; 0]);
    }
}

/// B34
#[test]
fn the_intent_of_a_lazy_param_is_answered_without_initialising_it() {
    let world = World::default();
    let wanted = declared(NUMPY, raising());
    let unwanted = wanted.set_requires_grad(false, &world);
    assert!(wanted.requires_grad() && !unwanted.requires_grad());
    assert!(!wanted.is_tracked(), "this place records no gradients");
}

/// B11: one device, asked of lazy params of every kind and of a ready one.
#[test]
fn the_devices_of_lazy_and_ready_params_are_told_without_initialising_any() {
    let world = World::default();
    let ready = declared(HERE, Origin::Draw(1));
    read(&ready, &world);
    let lazy = [Kind::Float, Kind::Int, Kind::Bool].map(|kind| of_kind(kind, HERE, raising()));
    let clones: Vec<_> = lazy.iter().map(|param| param.share(&world)).collect();
    for params in [
        lazy.iter().chain([&ready]).collect::<Vec<_>>(),
        clones.iter().collect(),
    ] {
        let mut devices: Vec<_> = params.iter().map(|param| param.device()).collect();
        devices.dedup();
        assert_eq!(devices, [&HERE]);
    }
    assert!(
        lazy.iter()
            .chain(&clones)
            .all(|param| !param.is_initialized())
    );
}

/// B13
#[test]
fn moving_to_the_device_a_lazy_param_is_on_shares_it_and_leaves_it_lazy() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    let moved = param.to_device(&HERE.clone(), &ANON, &world).unwrap();
    assert!(Arc::ptr_eq(param.state(), moved.state()));
    assert!(!param.is_initialized());
    assert!(moved.val(&ANON, &world).unwrap().is_tracked());
    assert!(param.is_initialized());
}

/// B49
#[test]
fn every_question_is_answered_while_an_initialiser_runs_on_another_thread() {
    watched(|| {
        let world = World::default();
        let (started, has_started) = gate();
        let (finish, finished) = gate();
        let (started, finished) = (Mutex::new(started), Mutex::new(finished));
        let param = declared(
            HERE,
            call(move |plan| {
                started.lock().unwrap().send(()).unwrap();
                finished.lock().unwrap().recv().unwrap();
                Ok(Toy::planned(plan, |_| 1.0))
            }),
        );
        let idle = ask_everything(&param);
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(&param, &world));
            has_started.recv().unwrap();
            // If any of these waited for the initialiser, nobody would tell it to finish.
            assert_eq!(ask_everything(&param), idle);
            let moved = param.to_device(&THERE, &ANON, &world).unwrap();
            let mapped = param
                .map(twice(), Change::default(), &ANON, &world)
                .unwrap();
            let own = param.independent(&mut Memo::new(), &world).unwrap();
            let off = param.set_requires_grad(false, &world).valid(&world);
            for each in [&moved, &mapped, &own, &off] {
                assert!(!each.is_initialized());
            }
            let mut shown = 0;
            let mut count = |_: lazyparam_core::Part<'_, Toy>| -> Result<(), ()> {
                shown += 1;
                Ok(())
            };
            assert_eq!(param.visit_owned(&mut count), Ok(()));
            assert_eq!(shown, 0, "others can reach all of it");
            finish.send(()).unwrap();
            assert_eq!(reader.join().unwrap(), [1.0; 6]);
        });
        assert!(param.is_initialized());
    });
}

#[test]
fn the_recipe_of_a_lazy_state_can_be_looked_at() {
    let world = World::default();
    let source = declared(HERE, Origin::Draw(9));
    assert!(matches!(
        &*source.state().recipe().unwrap(),
        Recipe::Origin(Origin::Draw(9))
    ));
    let derived = source
        .map(twice(), Change::default(), &ANON, &world)
        .unwrap();
    let recipe = derived.state().recipe().unwrap();
    let Recipe::Derive { source: of, steps } = &*recipe else {
        panic!("it is derived")
    };
    assert!(Arc::ptr_eq(of, source.state()) && steps.len() == 1);
    assert_eq!(Lazy::key(source.state()), of.key());
    assert_ne!(derived.state().key(), of.key());
}
