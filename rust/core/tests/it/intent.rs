//! The wish to be trained: each handle's own, kept through everything, effective where it can be.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use lazyparam_core::{Change, Device, Memo, Origin, Shape};

use crate::toy::{
    ANON, HERE, Kind, NUMPY, P, Place, THERE, Toy, World, call, declared, fresh, of_kind, raising,
    read, step, twice,
};

fn tracked(param: &P, world: &World) -> bool {
    let tracked = param.val(&ANON, world).unwrap().is_tracked();
    assert_eq!(tracked, param.is_tracked(), "what is said beforehand holds");
    tracked
}

/// Tracked when read? And wished for?
fn both(param: &P, world: &World) -> (bool, bool) {
    (tracked(param, world), param.requires_grad())
}

fn ready(place: Place, wish: bool, world: &World) -> P {
    let made = declared(place, Origin::Draw(2));
    let value = made.state().force(&ANON, world).unwrap().clone();
    P::initialized(
        77,
        value,
        Shape::from([2, 3]),
        Kind::Float,
        place,
        wish,
        world,
    )
    .unwrap()
}

fn identity(param: &P, world: &World) -> P {
    param
        .map(step(Ok), Change::default(), &ANON, world)
        .unwrap()
}

/// B07
#[test]
fn switching_one_clone_off_leaves_the_other_on_whether_before_or_after_init() {
    for read_first in [false, true] {
        let world = World::default();
        let (runs, origin) = fresh();
        let kept = declared(HERE, origin);
        let clone = kept.share(&world);
        if read_first {
            read(&kept, &world);
        }
        let switched = clone.set_requires_grad(false, &world);
        assert_eq!(switched.is_initialized(), read_first);
        assert_eq!(both(&switched, &world), (false, false));
        assert_eq!(both(&kept, &world), (true, true));
        assert_eq!(both(&clone, &world), (true, true));
        assert_eq!(read(&switched, &world), read(&kept, &world));
        assert_eq!(runs.load(SeqCst), 1);
    }
}

/// B14
#[test]
fn a_lazy_param_switched_off_stays_lazy_and_is_read_untracked() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1)).set_requires_grad(false, &world);
    assert!(!param.is_initialized() && !param.requires_grad());
    assert_eq!(both(&param, &world), (false, false));
    assert_eq!(
        both(&param.valid(&world).train(&world), &world),
        (false, false)
    );
}

/// B15
#[test]
fn a_wish_on_a_ready_value_where_nothing_is_tracked_waits_for_training() {
    let world = World::default();
    let param = ready(HERE.inner(), false, &world).set_requires_grad(true, &world);
    assert_eq!(both(&param, &world), (false, true));
    assert_eq!(both(&param.train(&world), &world), (true, true));
    let param = ready(NUMPY, false, &world).set_requires_grad(true, &world);
    assert_eq!(both(&param.train(&world), &world), (false, true));
}

/// B16
#[test]
fn a_param_made_of_a_tensor_where_nothing_is_tracked_wishes_and_is_tracked_in_training() {
    let world = World::default();
    let param = ready(HERE.inner(), true, &world);
    assert!(param.is_initialized());
    assert_eq!(both(&param, &world), (false, true));
    assert_eq!(both(&param.train(&world), &world), (true, true));
}

/// B17
#[test]
fn a_lazy_param_switched_on_where_nothing_is_tracked_stays_lazy_until_it_is_read() {
    let world = World::default();
    let off = declared(HERE.inner(), Origin::Draw(1)).set_requires_grad(false, &world);
    let param = off.set_requires_grad(true, &world);
    assert!(!param.is_initialized() && param.requires_grad());
    assert_eq!(both(&param, &world), (false, true));
    assert_eq!(both(&param.train(&world), &world), (true, true));
}

/// B18, B19
#[test]
fn a_map_during_validation_keeps_the_wish_lazy_or_ready() {
    for read_first in [false, true] {
        let world = World::default();
        let param = declared(HERE, Origin::Draw(1));
        if read_first {
            read(&param, &world);
        }
        let mapped = identity(&param.valid(&world), &world);
        assert_eq!(mapped.is_initialized(), read_first);
        assert_eq!(both(&mapped, &world), (false, true));
        assert_eq!(both(&mapped.train(&world), &world), (true, true));
    }
}

/// B20
#[test]
fn a_load_during_validation_keeps_the_wish() {
    for read_first in [false, true] {
        let world = World::default();
        let param = declared(HERE, Origin::Draw(1));
        if read_first {
            read(&param, &world);
        }
        let zeros = declared(NUMPY, Origin::Read(vec![0.0; 6])).state().clone();
        let valid = param.valid(&world);
        let loaded = valid
            .transform_for_load(None, zeros, vec![], None, &ANON, &world)
            .unwrap();
        assert_eq!(both(&loaded, &world), (false, true));
        assert_eq!(read(&loaded, &world), [0.0; 6]);
        assert_eq!(both(&loaded.train(&world), &world), (true, true));
    }
}

/// B21
#[test]
fn the_full_cycle_of_validation_and_training_keeps_the_wish() {
    for lazy in [true, false] {
        let world = World::default();
        let mut param = declared(HERE, Origin::Draw(1));
        let mut seen = Vec::new();
        let verbs: [fn(&P, &World) -> P; 6] = [
            |p, cx| p.share(cx),
            |p, cx| p.valid(cx),
            |p, cx| p.train(cx),
            |p, cx| p.set_requires_grad(false, cx),
            |p, cx| p.valid(cx),
            |p, cx| p.train(cx),
        ];
        let mut handles = Vec::new();
        for verb in verbs {
            param = verb(&param, &world);
            if !lazy {
                seen.push(both(&param, &world));
            }
            handles.push(param.share(&world));
        }
        if lazy {
            assert!(!param.is_initialized());
            seen = handles.iter().map(|handle| both(handle, &world)).collect();
        }
        let (on, off) = ((true, true), (false, false));
        assert_eq!(seen, [on, (false, true), on, off, off, off]);
    }
}

/// B22
#[test]
fn a_mapped_param_is_a_leaf_of_its_own_and_its_step_sees_an_untracked_value() {
    for read_first in [false, true] {
        let world = World::default();
        let source = declared(HERE, Origin::Draw(1));
        if read_first {
            read(&source, &world);
        }
        let seen = Arc::new(Mutex::new(None));
        let note = seen.clone();
        let doubling = step(move |toy| {
            *note.lock().unwrap() = Some(toy.is_tracked());
            Ok(Toy {
                data: toy.data.iter().map(|x| 2.0 * x).collect(),
                ..toy
            })
        });
        let mapped = source
            .map(doubling, Change::default(), &ANON, &world)
            .unwrap();
        let value = mapped.val(&ANON, &world).unwrap();
        let original = source.val(&ANON, &world).unwrap();
        assert_eq!(*seen.lock().unwrap(), Some(false));
        assert!(
            original
                .data
                .iter()
                .zip(&*value.data)
                .all(|(before, after)| 2.0 * before == *after)
        );
        let (leaf, of_source) = (
            value.leaf.as_ref().unwrap(),
            original.leaf.as_ref().unwrap(),
        );
        assert!(!Arc::ptr_eq(leaf, of_source));
    }
}

#[test]
fn all_tracked_handles_on_one_state_share_one_leaf() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    let handles = [
        param.share(&world),
        param.valid(&world).train(&world),
        param,
    ];
    let leaves = handles
        .each_ref()
        .map(|each| each.val(&ANON, &world).unwrap().leaf.clone().unwrap());
    assert!(leaves.iter().all(|leaf| Arc::ptr_eq(leaf, &leaves[0])));
    let forked = handles[0].fork(&HERE, &ANON, &world).unwrap();
    let leaf = forked.val(&ANON, &world).unwrap().leaf.clone().unwrap();
    assert!(
        !Arc::ptr_eq(&leaf, &leaves[0]),
        "a fork is a leaf of its own"
    );
}

/// B25
#[test]
fn a_moved_lazy_param_is_tracked_or_not_as_it_was_built() {
    let world = World::default();
    let untracked = declared(HERE.inner(), Origin::Draw(1));
    let moved = untracked.to_device(&THERE, &ANON, &world).unwrap();
    assert!(!moved.is_initialized() && !moved.device().is_autodiff());
    assert_eq!(
        (moved.device(), both(&moved, &world)),
        (&THERE, (false, true))
    );
    let built_tracked = declared(HERE, Origin::Draw(1));
    let forked = built_tracked.fork(&THERE.inner(), &ANON, &world).unwrap();
    assert!(!forked.is_initialized() && forked.device().is_autodiff());
    assert_eq!(
        (forked.device(), both(&forked, &world)),
        (&THERE, (true, true))
    );
}

/// B28, B29
#[test]
fn a_lazy_int_or_bool_param_moves_without_its_initialiser_and_stays_untracked() {
    let world = World::default();
    for kind in [Kind::Int, Kind::Bool] {
        let param = of_kind(kind, HERE, raising());
        for moved in [
            param.to_device(&THERE, &ANON, &world).unwrap(),
            param.fork(&THERE.inner(), &ANON, &world).unwrap(),
        ] {
            assert!(!moved.is_initialized() && !param.is_initialized());
            assert!(!moved.is_tracked() && !moved.is_active());
            assert_eq!(moved.device().is_autodiff(), param.device().is_autodiff());
        }
    }
}

/// B30
#[test]
fn a_lazy_param_forked_to_the_plain_spelling_of_its_device_is_still_tracked() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    let forked = param.fork(&HERE.inner(), &ANON, &world).unwrap();
    assert!(!forked.is_initialized());
    assert_eq!(both(&forked, &world), (true, true));
    assert_eq!(read(&forked, &world), read(&param, &world));
    assert_eq!(world.diary(), ["draw on here"]);
}

/// B31
#[test]
fn a_mapped_lazy_param_forked_stays_lazy_and_is_tracked_where_it_goes() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    let mapped = param
        .map(twice(), Change::default(), &ANON, &world)
        .unwrap();
    let forked = mapped.fork(&THERE.inner(), &ANON, &world).unwrap();
    assert!(!forked.is_initialized());
    let value = forked.val(&ANON, &world).unwrap();
    assert!(value.is_tracked() && value.place == THERE && value.place.is_autodiff());
    assert_eq!(value.data, mapped.val(&ANON, &world).unwrap().data);
}

/// B43
#[test]
fn the_wish_survives_moves_copies_and_loads() {
    let world = World::default();
    for wish in [true, false] {
        let param = declared(HERE, Origin::Draw(1)).set_requires_grad(wish, &world);
        let source = declared(NUMPY, Origin::Draw(3)).state().clone();
        for each in [
            param.to_device(&THERE, &ANON, &world).unwrap(),
            param.fork(&HERE, &ANON, &world).unwrap(),
            param.independent(&mut Memo::new(), &world).unwrap(),
            param
                .transform_for_load(None, source, vec![], None, &ANON, &world)
                .unwrap(),
            identity(&param, &world),
        ] {
            assert_eq!(both(&each, &world), (wish, wish));
        }
    }
}

/// Of plans: are gradients wanted, and does the device record them?
type Notes = Arc<Mutex<Vec<(bool, bool)>>>;

/// An initialiser that notes what its plan says.
fn noting() -> (Notes, Origin<Toy>) {
    let notes = Notes::default();
    let pen = notes.clone();
    let origin = call(move |plan| {
        pen.lock()
            .unwrap()
            .push((plan.requires_grad, plan.device.is_autodiff()));
        Ok(Toy::planned(plan, |_| 1.0))
    });
    (notes, origin)
}

#[test]
fn the_plan_says_whether_the_wish_takes_effect() {
    let world = World::default();
    let cases = [
        (HERE, Kind::Half, true),
        (NUMPY, Kind::Float, false),
        (HERE, Kind::Int, false),
    ];
    for (place, kind, effective) in cases {
        let (notes, origin) = noting();
        read(&of_kind(kind, place, origin), &world);
        assert_eq!(*notes.lock().unwrap(), [(effective, place.is_autodiff())]);
    }
}

/// A recipe that runs on the target of a move is told about the target, not about home.
#[test]
fn no_plan_asks_for_gradients_where_none_are_recorded() {
    let world = World::default();
    let verbs: [fn(&P, &World) -> P; 3] = [
        |p, cx| p.to_device(&NUMPY, &ANON, cx).unwrap(),
        |p, cx| identity(&p.valid(cx), cx),
        |p, cx| p.valid(cx).fork(&THERE, &ANON, cx).unwrap(),
    ];
    for verb in verbs {
        let (notes, origin) = noting();
        let param = verb(&declared(HERE, origin), &world);
        read(&param, &world);
        assert_eq!(*notes.lock().unwrap(), [(false, false)]);
        assert!(!param.state().plan().requires_grad);
    }
}

/// A derived plan follows the wish of the handle it is derived from, moved or mapped.
#[test]
fn the_plan_of_a_derived_param_follows_the_handle_not_the_state_it_shares() {
    let world = World::default();
    let off = P::declare(
        1,
        Shape::from([1]),
        Kind::Float,
        HERE,
        false,
        Origin::Draw(1),
    );
    let on = off.set_requires_grad(true, &world);
    for (param, wish) in [(&on, true), (&off, false)] {
        let plan = |derived: P| derived.state().plan().requires_grad;
        assert_eq!(plan(identity(param, &world)), wish);
        assert_eq!(plan(param.fork(&HERE, &ANON, &world).unwrap()), wish);
        assert_eq!(plan(param.to_device(&THERE, &ANON, &world).unwrap()), wish);
    }
}

#[test]
fn a_param_that_visited_a_plain_place_can_be_trained_at_home_again() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    let away = param.to_device(&NUMPY, &ANON, &world).unwrap();
    assert_eq!(both(&away, &world), (false, true));
    let back = away.to_device(&HERE, &ANON, &world).unwrap().train(&world);
    assert_eq!(both(&back, &world), (true, true));
}
