//! Copies: a share is tied to its original, an independent one owns its draw and its data.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use lazyparam_core::{Change, Memo, Origin, Recipe};

use crate::toy::{
    ANON, HERE, NUMPY, Oops, P, THERE, Toy, World, call, declared, fresh, read, twice,
};

fn independent(param: &P, world: &World) -> P {
    param.independent(&mut Memo::new(), world).unwrap()
}

fn doubled(param: &P, world: &World) -> P {
    param.map(twice(), Change::default(), &ANON, world).unwrap()
}

/// B33
#[test]
fn an_independent_copy_of_a_lazy_param_stays_lazy_and_owns_its_draw() {
    let world = World::default();
    let (runs, origin) = fresh();
    let original = declared(HERE, origin);
    let copy = independent(&original, &world);
    assert!(!copy.is_initialized());
    let value = read(&original, &world);
    assert!(!copy.is_initialized(), "reading one leaves the other lazy");
    let own = read(&copy, &world);
    assert_ne!(own, value);
    assert_eq!((read(&original, &world), read(&copy, &world)), (value, own));
    assert_eq!(runs.load(SeqCst), 2);
}

/// B33: the initialisation of one does not wait for the other's.
#[test]
fn an_independent_copy_is_not_touched_by_the_failure_of_its_original() {
    let world = World::default();
    let first = std::sync::atomic::AtomicBool::new(true);
    let original = declared(
        HERE,
        call(move |plan| {
            if first.swap(false, SeqCst) {
                return Err(Oops::Raised("first"));
            }
            Ok(Toy::planned(plan, |_| 1.0))
        }),
    );
    let copy = independent(&original, &world);
    assert!(original.val(&ANON, &world).is_err());
    assert_eq!(read(&copy, &world), [1.0; 6]);
    assert!(!original.is_initialized());
}

#[test]
fn an_independent_copy_of_a_draw_has_the_same_values() {
    let world = World::default();
    let original = declared(HERE, Origin::Draw(6));
    let copy = independent(&original, &world);
    assert!(!Arc::ptr_eq(original.state(), copy.state()));
    assert_eq!(read(&copy, &world), read(&original, &world));
}

/// B33
#[test]
fn an_independent_copy_of_a_ready_param_has_memory_of_its_own() {
    let world = World::default();
    let original = declared(NUMPY, Origin::Draw(6));
    read(&original, &world);
    let copy = independent(&original, &world);
    assert!(copy.is_initialized());
    let [one, other] = [&original, &copy].map(|param| param.val(&ANON, &world).unwrap());
    assert_eq!(one.data, other.data);
    assert!(!Arc::ptr_eq(&one.data, &other.data));
}

/// B43
#[test]
fn an_independent_copy_keeps_id_wish_device_and_mappers() {
    let world = World::default();
    let original = declared(HERE, Origin::Draw(6))
        .set_requires_grad(false, &world)
        .valid(&world);
    let mappers = original.mappers().share(&world).and_save(twice(), None);
    let original = original.with_mappers(mappers, &world);
    let copy = independent(&original, &world);
    assert_eq!((copy.id(), copy.requires_grad()), (original.id(), false));
    assert_eq!(copy.device().name, "here");
    assert_eq!(copy.is_tracked(), original.is_tracked());
    assert_eq!(copy.mappers().save().len(), 1);
}

/// B52
#[test]
fn params_tied_before_a_deep_copy_are_tied_in_the_copy() {
    for read_first in [false, true] {
        let world = World::default();
        let (runs, origin) = fresh();
        let encoder = declared(HERE, origin);
        let decoder = encoder.share(&world);
        if read_first {
            read(&decoder, &world);
        }
        let mut memo = Memo::new();
        let copies = [&encoder, &decoder].map(|each| each.independent(&mut memo, &world).unwrap());
        drop(memo);
        assert!(Arc::ptr_eq(copies[0].state(), copies[1].state()));
        assert!(!Arc::ptr_eq(copies[0].state(), encoder.state()));
        assert_eq!(read(&copies[0], &world), read(&copies[1], &world));
        assert_eq!(copies[0].id(), copies[1].id());
        read(&encoder, &world);
        assert_eq!(runs.load(SeqCst), if read_first { 1 } else { 2 });
    }
}

/// B52: a source that two derived params share is shared by their copies too.
#[test]
fn params_derived_from_one_source_share_one_draw_in_a_deep_copy() {
    let world = World::default();
    let (runs, origin) = fresh();
    let source = declared(HERE, origin);
    let derived = doubled(&source, &world);
    let away = source.to_device(&THERE, &ANON, &world).unwrap();
    let mut memo = Memo::new();
    // Derived ones first, so that the source is met on the way.
    let copies =
        [&derived, &away, &source].map(|each| each.independent(&mut memo, &world).unwrap());
    let values = copies.each_ref().map(|copy| read(copy, &world)[0]);
    assert_eq!(values, [20.0, 10.0, 10.0]);
    assert_eq!(read(&source, &world)[0], 20.0, "the second run");
    assert_eq!(runs.load(SeqCst), 2);
}

#[test]
fn a_deep_copy_of_a_lazy_param_over_a_ready_source_does_not_draw_again() {
    let world = World::default();
    let (runs, origin) = fresh();
    let source = declared(HERE, origin);
    let derived = doubled(&source, &world);
    let value = read(&source, &world)[0];
    let copy = independent(&derived, &world);
    assert!(!copy.is_initialized());
    assert_eq!(read(&copy, &world)[0], 2.0 * value);
    assert_eq!(runs.load(SeqCst), 1);
}

#[test]
fn a_deep_copy_of_a_discarded_param_is_an_error() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    param.discard();
    assert!(param.independent(&mut Memo::new(), &world).is_err());
}

/// B36
#[test]
fn a_map_of_a_clone_gives_twice_the_originals_draw_and_leaves_the_original() {
    for clone_first in [true, false] {
        let world = World::default();
        let (runs, origin) = fresh();
        let original = declared(HERE, origin);
        let mapped = doubled(&original.share(&world), &world);
        let order = if clone_first {
            [&mapped, &original]
        } else {
            [&original, &mapped]
        };
        order.iter().for_each(|param| drop(read(param, &world)));
        let twice_as_much: Vec<_> = read(&original, &world).iter().map(|x| 2.0 * x).collect();
        assert_eq!(read(&mapped, &world), twice_as_much);
        assert_eq!(runs.load(SeqCst), 1);
    }
}

/// B27 without the adapter: dropping a clone takes nothing from what is derived from its state.
#[test]
fn a_derived_param_outlives_the_clones_it_came_from() {
    let world = World::default();
    let (_, origin) = fresh();
    let original = declared(HERE, origin);
    let clone = original.share(&world);
    let mapped = doubled(&original, &world);
    assert_eq!(read(&clone, &world)[0], 10.0);
    drop((original, clone));
    assert!(!mapped.is_initialized());
    assert_eq!(read(&mapped, &world)[0], 20.0);
}

/// B52
#[test]
fn clones_stay_tied_through_moves_and_loads_of_the_handle() {
    let world = World::default();
    let (runs, origin) = fresh();
    let one = declared(HERE, origin);
    let other = one.share(&world);
    assert!(Arc::ptr_eq(one.state(), other.state()));
    let same_place = other
        .to_device(&HERE, &ANON, &world)
        .unwrap()
        .valid(&world)
        .train(&world);
    assert!(Arc::ptr_eq(one.state(), same_place.state()));
    let values = read(&one, &world);
    let away =
        [&one, &other].map(|each| read(&each.to_device(&THERE, &ANON, &world).unwrap(), &world));
    assert_eq!(away, [values.clone(), values]);
    assert_eq!(runs.load(SeqCst), 1);
}

/// B55: what is derived from a value, or copied from it, never writes to it.
#[test]
fn no_transformation_reaches_the_value_of_a_clone() {
    let world = World::default();
    let (_, origin) = fresh();
    let param = declared(HERE, origin);
    let clone = param.share(&world);
    let before = read(&clone, &world);
    let copy = independent(&param, &world);
    for changed in [doubled(&param, &world), doubled(&copy, &world)] {
        assert_ne!(read(&changed, &world), before);
    }
    assert_eq!(read(&clone, &world), before);
    assert_eq!(read(&param, &world), before);
}

/// B58: recipes are data, so the same declaration elsewhere gives the same value.
#[test]
fn a_lazy_param_can_be_declared_again_from_its_recipe() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(7));
    let Some(recipe) = param.state().recipe() else {
        panic!("it is lazy")
    };
    let Recipe::Origin(Origin::Draw(draw)) = &*recipe else {
        panic!("it is drawn")
    };
    let again = declared(THERE, Origin::Draw(*draw));
    assert!(!param.is_initialized());
    assert_eq!(read(&again, &world), read(&param, &world));
}

/// What a record asks before it keeps a lazy parameter by repeating it.
#[test]
fn a_lazy_draw_or_read_repeats_and_what_a_function_has_a_part_in_does_not() {
    let world = World::default();
    let drawn = declared(HERE, Origin::Draw(1));
    let moved = drawn.fork(&THERE, &ANON, &world).unwrap();
    let (_, origin) = fresh();
    let called = declared(HERE, origin);
    for (param, repeats) in [
        (&drawn, true),
        (&declared(HERE, Origin::Read(vec![1.0; 6])), true),
        (&moved, true),
        (&called, false),
        (&doubled(&drawn, &world), false),
        (&called.fork(&THERE, &ANON, &world).unwrap(), false),
    ] {
        assert_eq!(param.state().repeats(), repeats);
        assert!(!param.is_initialized());
    }
    let twin = independent(&drawn, &world);
    assert_eq!(read(&drawn, &world), read(&twin, &world));
    assert!(!drawn.state().repeats(), "it is there");
    assert!(twin.get().is_some());
}
