//! What a handle says of itself, and that it never changes what it shares.

use lazyparam_core::{Change, Device, Origin, Shape};

use crate::toy::{
    ANON, HERE, Kind, NUMPY, Oops, P, THERE, Toy, World, declared, of_kind, raising, read, step,
    transpose,
};

#[test]
fn a_declaration_is_answered_word_for_word() {
    let shape = Shape::from([4]);
    let param = P::declare(12, shape.clone(), Kind::Half, HERE, true, raising());
    assert_eq!(
        (param.id(), param.shape(), param.dtype()),
        (12, &shape, &Kind::Half)
    );
    assert_eq!((param.device(), param.requires_grad()), (&HERE, true));
    assert_eq!(
        (param.declared_shape(), param.stored_shape()),
        (&shape, &shape)
    );
    assert!(param.is_active() && param.is_tracked() && !param.is_initialized());
}

#[test]
fn a_param_of_ints_or_bools_is_never_active_whatever_is_wished() {
    for kind in [Kind::Int, Kind::Bool] {
        let param = of_kind(kind, HERE, raising());
        assert!(param.requires_grad() && !param.is_active() && !param.is_tracked());
    }
}

#[test]
fn a_value_given_at_birth_is_settled_like_any_other() {
    let world = World::default();
    let made = declared(HERE, Origin::Draw(1));
    let leaf = made.val(&ANON, &world).unwrap().clone();
    let (shape, place) = (Shape::from([2, 3]), HERE);
    let born =
        |value: Toy, kind, shape| P::initialized(1, value, shape, kind, place, false, &world);
    let param = born(leaf.clone(), Kind::Float, shape.clone()).unwrap();
    assert!(param.is_initialized());
    assert!(
        !param.val(&ANON, &world).unwrap().is_tracked(),
        "it was a leaf of another param"
    );
    let refused = born(leaf.clone(), Kind::Int, shape).err();
    assert_eq!(refused, Some(Oops::Unlike("dtype")));
    assert_eq!(
        born(leaf, Kind::Float, Shape::from([6])).err(),
        Some(Oops::Unlike("shape"))
    );
}

#[test]
fn every_verb_keeps_the_id_and_answers_with_a_new_handle() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    for each in [
        param.share(&world),
        param.valid(&world),
        param.train(&world),
        param.set_requires_grad(false, &world),
        param.to_device(&THERE, &ANON, &world).unwrap(),
        param.fork(&HERE, &ANON, &world).unwrap(),
        param
            .map(step(Ok), Change::default(), &ANON, &world)
            .unwrap(),
    ] {
        assert_eq!(each.id(), param.id());
    }
    assert_eq!((param.device(), param.requires_grad()), (&HERE, true));
    assert!(param.device().is_autodiff() && !param.is_initialized());
}

/// Shape and dtype of a mapped param are known before it is made, and hold.
#[test]
fn a_map_that_says_how_shape_and_dtype_change_is_answered_before_and_held_to_after() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    let change = || Change {
        shape: Some(Shape::from([3, 2])),
        dtype: Some(Kind::Int),
    };
    let floor = step(|toy| {
        let data = toy.data.iter().map(|x| x.floor()).collect();
        transpose()(Toy {
            data,
            kind: Kind::Int,
            ..toy
        })
    });
    let mapped = param.map(floor, change(), &ANON, &world).unwrap();
    assert_eq!(
        (&**mapped.shape(), *mapped.dtype()),
        (&[3, 2][..], Kind::Int)
    );
    assert_eq!(mapped.declared_shape(), param.shape());
    let value = mapped.val(&ANON, &world).unwrap();
    assert_eq!((&*value.shape, value.kind), (&[3, 2][..], Kind::Int));
    let lazy = declared(HERE, Origin::Draw(1));
    let liar = lazy.map(step(Ok), change(), &ANON, &world).unwrap();
    assert_eq!(liar.val(&ANON, &world).unwrap_err(), Oops::Unlike("shape"));
    // The source is ready by now, so the lie comes out at once.
    let liar = lazy.map(step(Ok), change(), &ANON, &world).err();
    assert_eq!(liar, Some(Oops::Unlike("shape")));
}

#[test]
fn a_value_in_being_is_handed_out_as_this_handle_reads_it() {
    let world = World::default();
    let param = declared(HERE, Origin::Draw(1));
    let valid = param.valid(&world);
    assert!(param.get().is_none() && valid.get().is_none());
    read(&valid, &world);
    assert!(!valid.get().unwrap().is_tracked());
    assert!(
        param.get().is_none(),
        "the value is there, its leaf is not yet"
    );
    read(&param, &world);
    assert!(param.get().unwrap().is_tracked());
}

#[test]
fn a_verb_never_changes_the_handle_it_is_asked_of_nor_its_clones() {
    let world = World::default();
    let param = declared(NUMPY, Origin::Draw(1));
    let clone = param.share(&world);
    let before = read(&param, &world);
    let negative = step(|toy: Toy| {
        Ok(Toy {
            data: toy.data.iter().map(|x| -x).collect(),
            ..toy
        })
    });
    let mapped = param
        .map(negative, Change::default(), &ANON, &world)
        .unwrap();
    assert_ne!(read(&mapped, &world), before);
    assert_eq!(read(&param, &world), before);
    assert_eq!(read(&clone, &world), before);
}
