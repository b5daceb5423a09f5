//! Loading: the recipe is replaced, what the target wants wins, and nothing is half done.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use lazyparam_core::{Change, Device, Fault, Lazy, Origin, Shape};

use crate::toy::{
    ANON, HERE, Kind, NUMPY, Oops, P, THERE, Toy, World, declared, fresh, of_kind, raising, read,
    step, transpose,
};

const STORED: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

/// A tensor in a file, or already fetched from it.
fn stored(shape: &[usize], lazy: bool) -> Arc<Lazy<Toy>> {
    let origin = Origin::Read(STORED.to_vec());
    let param = P::declare(0, Shape::from(shape), Kind::Float, NUMPY, false, origin);
    if !lazy {
        read(&param, &World::default());
    }
    param.state().clone()
}

fn load(target: &P, source: Arc<Lazy<Toy>>, world: &World) -> Result<P, Oops> {
    target.transform_for_load(None, source, vec![], None, &ANON, world)
}

/// B37
#[test]
fn loading_into_a_lazy_target_never_runs_its_initialiser() {
    for lazy in [true, false] {
        let world = World::default();
        let target = declared(HERE, raising());
        let loaded = load(&target, stored(&[2, 3], lazy), &world).unwrap();
        assert_eq!(loaded.is_initialized(), !lazy, "a lazy source loads lazily");
        assert_eq!(read(&loaded, &world), STORED);
        assert!(
            !target.is_initialized(),
            "what is loaded into is left as it was"
        );
    }
}

/// B37: the target's device and wish win, and the id is the record's if it has one.
#[test]
fn a_load_keeps_the_targets_device_and_wish_and_takes_the_id_of_the_record() {
    let world = World::default();
    for wish in [true, false] {
        let target = declared(HERE, raising()).set_requires_grad(wish, &world);
        let source = stored(&[2, 3], false);
        let with = |id| {
            target
                .transform_for_load(id, source.clone(), vec![], None, &ANON, &world)
                .unwrap()
        };
        assert_eq!(with(Some(99)).id(), 99);
        let loaded = with(None);
        assert_eq!((loaded.id(), loaded.requires_grad()), (target.id(), wish));
        let value = loaded.val(&ANON, &world).unwrap();
        assert_eq!((value.place, value.is_tracked()), (HERE, wish));
    }
}

/// B24
#[test]
fn a_lazy_param_moved_and_then_loaded_never_runs_its_initialiser() {
    let world = World::default();
    let target = declared(HERE, raising())
        .to_device(&THERE, &ANON, &world)
        .unwrap();
    let loaded = load(&target, stored(&[2, 3], true), &world).unwrap();
    assert_eq!(read(&loaded, &world), STORED);
    assert_eq!(loaded.val(&ANON, &world).unwrap().place, THERE);
}

#[test]
fn a_file_is_read_straight_onto_the_device_of_the_target_even_for_two_targets() {
    let world = World::default();
    let source = stored(&[2, 3], true);
    let here = load(&declared(HERE, raising()), source.clone(), &world).unwrap();
    let there = load(&declared(THERE, raising()), source, &world).unwrap();
    assert_eq!(read(&here, &world), read(&there, &world));
    assert_eq!(world.diary(), ["read on here", "read on there"]);
}

/// B41: transposing mappers, stored as three by two, live as two by three.
#[test]
fn a_param_stored_in_another_shape_round_trips_and_loads_twice_in_a_row() {
    for (lazy_target, lazy_source) in [(true, true), (true, false), (false, true), (false, false)] {
        let world = World::default();
        let declared_as = |shape: [usize; 2], origin| {
            P::declare(1, Shape::from(shape), Kind::Float, HERE, true, origin)
        };
        // Declared in its stored shape and transposed by a map, as a column-major layer is.
        let base = declared_as([3, 2], Origin::Draw(4));
        let live = Change {
            shape: Some(Shape::from([2, 3])),
            dtype: None,
        };
        let mapped = base.map(transpose(), live, &ANON, &world).unwrap();
        let mappers = mapped.mappers().share(&world);
        let mappers = mappers
            .and_load(transpose(), None)
            .and_save(transpose(), None);
        let by_map = mapped.with_mappers(mappers, &world);
        // Declared in its live shape, with a word about the stored one.
        let plain = declared_as([2, 3], Origin::Draw(4));
        let mappers = plain.mappers().share(&world);
        let mappers = mappers.and_load(transpose(), Some(Shape::from([3, 2])));
        let by_word = plain.with_mappers(mappers.and_save(transpose(), None), &world);
        for mut param in [by_map, by_word] {
            if !lazy_target {
                read(&param, &world);
            }
            for _ in 0..2 {
                assert_eq!(
                    (&**param.shape(), &**param.stored_shape()),
                    (&[2, 3][..], &[3, 2][..])
                );
                let found = load(&param, stored(&[2, 3], lazy_source), &world).err();
                let (expected, offered) = (Shape::from([3, 2]), Shape::from([2, 3]));
                let fault = Fault::StoredShape {
                    expected,
                    found: offered,
                };
                assert_eq!(found, Some(Oops::Fault(fault)));
                param = load(&param, stored(&[3, 2], lazy_source), &world).unwrap();
                if !lazy_target {
                    assert_eq!(read(&param, &world), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
                }
            }
            assert_eq!(read(&param, &world), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
            let saved = param.transform_for_save(&ANON, &world).unwrap();
            assert_eq!((&*saved.shape, &*saved.data), (&[3, 2][..], &STORED[..]));
        }
    }
}

/// B20, B41: what is loaded during validation is saved as it was.
#[test]
fn mappers_survive_validation_moves_and_copies() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    let mappers = param
        .mappers()
        .share(&world)
        .and_load(transpose(), Some(Shape::from([3, 2])));
    let param = param.with_mappers(mappers.and_save(transpose(), None), &world);
    for each in [
        param.valid(&world),
        param.to_device(&THERE, &ANON, &world).unwrap(),
        param.set_requires_grad(false, &world),
        param
            .independent(&mut lazyparam_core::Memo::new(), &world)
            .unwrap(),
        param
            .map(step(Ok), Change::default(), &ANON, &world)
            .unwrap(),
        load(&param, stored(&[3, 2], true), &world).unwrap(),
    ] {
        assert_eq!(&**each.stored_shape(), [3, 2]);
        let saved = each.transform_for_save(&ANON, &world).unwrap();
        let again = load(&each, Lazy::ready(plan_of(&saved), saved), &world).unwrap();
        assert_eq!(read(&again, &world), read(&each, &world));
    }
}

fn plan_of(value: &Toy) -> lazyparam_core::Plan<Toy> {
    lazyparam_core::Plan {
        shape: value.shape.clone(),
        dtype: value.kind,
        device: value.place.inner(),
        requires_grad: false,
    }
}

/// B40: a value of another dtype needs a word, a cast or the record's own dtype.
#[test]
fn a_load_of_another_dtype_is_cast_or_adopted_but_never_silent() {
    let world = World::default();
    let target = of_kind(Kind::Half, HERE, raising());
    let source = || stored(&[2, 3], true);
    let silent = load(&target, source(), &world).unwrap();
    assert_eq!(
        silent.val(&ANON, &world).unwrap_err(),
        Oops::Unlike("dtype")
    );
    let cast = || {
        step(|toy| {
            Ok(Toy {
                kind: Kind::Half,
                ..toy
            })
        })
    };
    let to_target = target.transform_for_load(None, source(), vec![cast()], None, &ANON, &world);
    assert_eq!(
        to_target.unwrap().val(&ANON, &world).unwrap().kind,
        Kind::Half
    );
    let adopted = target
        .transform_for_load(None, source(), vec![], Some(Kind::Float), &ANON, &world)
        .unwrap();
    assert_eq!(adopted.dtype(), &Kind::Float);
    assert_eq!(adopted.val(&ANON, &world).unwrap().kind, Kind::Float);
}

/// B47
#[test]
fn a_load_cures_a_param_whose_initialiser_fails() {
    let world = World::default();
    let broken = declared(HERE, raising());
    assert_eq!(
        broken.val(&ANON, &world).unwrap_err(),
        Oops::Raised("it was run")
    );
    let cured = load(&broken, stored(&[2, 3], false), &world).unwrap();
    assert_eq!(read(&cured, &world), STORED);
}

/// B53
#[test]
fn a_load_that_fails_leaves_the_target_lazy_with_its_own_recipe() {
    let world = World::default();
    let (runs, origin) = fresh();
    let target = declared(HERE, origin);
    let failing = || vec![step(|_| Err(Oops::Raised("cast")))];
    let source = stored(&[2, 3], false);
    let at_once = target.transform_for_load(None, source, failing(), None, &ANON, &world);
    assert_eq!(at_once.err(), Some(Oops::Raised("cast")));
    let source = stored(&[2, 3], true);
    let later = target
        .transform_for_load(None, source, failing(), None, &ANON, &world)
        .unwrap();
    assert_eq!(later.val(&ANON, &world).unwrap_err(), Oops::Raised("cast"));
    assert!(!target.is_initialized());
    assert_eq!(runs.load(SeqCst), 0);
    assert_eq!(read(&target, &world)[0], 10.0);
    assert_eq!(runs.load(SeqCst), 1);
}

/// B52
#[test]
fn clones_of_a_loaded_param_are_tied() {
    let world = World::default();
    let loaded = load(&declared(HERE, raising()), stored(&[2, 3], true), &world).unwrap();
    let clone = loaded.share(&world);
    assert_eq!(read(&clone, &world), STORED);
    assert!(loaded.is_initialized());
    assert_eq!(world.diary(), ["read on here"]);
}

/// B39: a shape that is not the stored one is refused, whatever else, and the target keeps its value.
#[test]
fn a_load_of_another_shape_is_refused_and_the_target_keeps_its_value() {
    let world = World::default();
    let (runs, origin) = fresh();
    let target = declared(HERE, origin);
    for ready in [false, true] {
        if ready {
            assert_eq!(read(&target, &world)[0], 10.0);
        }
        let refused = load(&target, stored(&[3, 2], false), &world);
        assert!(matches!(
            refused,
            Err(Oops::Fault(Fault::StoredShape { .. }))
        ));
        assert_eq!(target.is_initialized(), ready);
    }
    assert_eq!(read(&target, &world)[0], 10.0);
    assert_eq!(runs.load(SeqCst), 1);
}
