//! Load and save mappers: each pair that is added together undoes itself.

use std::sync::Arc;

use lazyparam_core::{Change, Lazy, Mappers, Origin, Plan, Shape};

use crate::toy::{
    ANON, HERE, Kind, NUMPY, P, Step, Toy, World, declared, each, raising, read, transpose,
};

fn plus(number: f32) -> Step {
    each(move |x| x + number)
}

fn times(number: f32) -> Step {
    each(move |x| x * number)
}

fn constant(shape: &[usize], number: f32) -> Arc<Lazy<Toy>> {
    let plan = Plan {
        shape: Shape::from(shape),
        dtype: Kind::Float,
        device: NUMPY,
        requires_grad: false,
    };
    let value = Toy::planned(&plan, |_| number);
    Lazy::ready(plan, value)
}

fn loaded(mappers: Mappers<Toy>, number: f32, world: &World) -> P {
    let target = declared(HERE, raising()).with_mappers(mappers, world);
    target
        .transform_for_load(None, constant(&[2, 3], number), vec![], None, &ANON, world)
        .unwrap()
}

fn saved(param: &P, world: &World) -> f32 {
    param.transform_for_save(&ANON, world).unwrap().data[0]
}

#[test]
fn load_mappers_are_applied_in_the_order_they_were_added() {
    let world = World::default();
    let mappers = Mappers::default()
        .and_load(plus(1.0), None)
        .and_load(times(10.0), None);
    assert_eq!(read(&loaded(mappers, 2.0, &world), &world), [30.0; 6]);
}

#[test]
fn save_mappers_are_applied_in_the_opposite_order() {
    let world = World::default();
    let mappers = Mappers::default()
        .and_save(plus(1.0), None)
        .and_save(times(10.0), None);
    assert_eq!(saved(&loaded(mappers, 2.0, &world), &world), 21.0);
}

#[test]
fn pairs_added_layer_by_layer_undo_each_other() {
    let world = World::default();
    let mappers = Mappers::default()
        .and_load(plus(1.0), None)
        .and_save(plus(-1.0), None)
        .and_load(times(4.0), None)
        .and_save(times(0.25), None)
        .and_load(plus(-3.0), None)
        .and_save(plus(3.0), None);
    let param = loaded(mappers, 5.0, &world);
    assert_eq!(read(&param, &world), [21.0; 6]);
    assert_eq!(saved(&param, &world), 5.0);
    assert_eq!(saved(&param, &world), 5.0, "saving twice maps once each");
    assert_eq!(read(&param, &world), [21.0; 6]);
}

#[test]
fn the_last_word_of_a_load_comes_after_the_mappers() {
    let world = World::default();
    let mappers = Mappers::default().and_load(plus(1.0), None);
    let target = declared(HERE, raising()).with_mappers(mappers, &world);
    let source = constant(&[2, 3], 2.0);
    let param = target.transform_for_load(None, source, vec![times(7.0)], None, &ANON, &world);
    assert_eq!(read(&param.unwrap(), &world), [21.0; 6]);
}

#[test]
fn an_only_mapper_replaces_the_others_of_its_direction() {
    let world = World::default();
    let both = || {
        Mappers::default()
            .and_load(plus(1.0), None)
            .and_save(plus(2.0), None)
    };
    let param = loaded(both().only_load(Some(times(3.0)), None), 2.0, &world);
    assert_eq!((read(&param, &world)[0], saved(&param, &world)), (6.0, 8.0));
    let param = loaded(both().only_save(Some(times(3.0)), None), 2.0, &world);
    assert_eq!((read(&param, &world)[0], saved(&param, &world)), (3.0, 9.0));
    let param = loaded(
        both().only_load(None, None).only_save(None, None),
        2.0,
        &world,
    );
    assert_eq!((read(&param, &world)[0], saved(&param, &world)), (2.0, 2.0));
    assert!(param.mappers().is_empty());
}

#[test]
fn saving_brings_a_lazy_param_into_being_and_leaves_it_in_place() {
    let world = World::default();
    let param = declared(HERE, Origin::Read(vec![2.0; 6]));
    let mappers = Mappers::default().and_save(times(3.0), None);
    let param = param.with_mappers(mappers, &world);
    let file = param.transform_for_save(&ANON, &world).unwrap();
    assert!(!file.is_tracked() && param.is_initialized());
    assert_eq!(
        (&file.data[..], read(&param, &world)),
        (&[6.0; 6][..], vec![2.0; 6])
    );
}

/// B41
#[test]
fn the_stored_shape_is_the_one_given_last_or_declared_or_live() {
    let world = World::default();
    let three_by_two = || Some(Shape::from([3, 2]));
    let param = declared(HERE, raising());
    assert_eq!(param.stored_shape(), param.shape());
    let given = Mappers::default()
        .and_load(transpose(), three_by_two())
        .and_save(transpose(), None);
    assert_eq!(&**param.with_mappers(given, &world).stored_shape(), [3, 2]);
    let again = Mappers::default()
        .and_load(transpose(), three_by_two())
        .and_load(transpose(), Some(Shape::from([2, 3])));
    assert_eq!(&**param.with_mappers(again, &world).stored_shape(), [2, 3]);
    // Mapped to another shape: without mappers that is what is stored, with them it is not.
    let live = Change {
        shape: three_by_two(),
        dtype: None,
    };
    let mapped = param.map(transpose(), live, &ANON, &world).unwrap();
    assert_eq!(&**mapped.stored_shape(), [3, 2]);
    let silent = Mappers::default()
        .and_load(transpose(), None)
        .and_save(transpose(), None);
    assert_eq!(
        &**mapped.with_mappers(silent, &world).stored_shape(),
        [2, 3]
    );
}

/// B41
#[test]
fn a_param_whose_mappers_are_taken_away_is_stored_as_it_lives() {
    let world = World::default();
    let transposing = Mappers::default()
        .and_load(transpose(), Some(Shape::from([3, 2])))
        .and_save(transpose(), None);
    let bare = transposing.only_load(None, None).only_save(None, None);
    let param = declared(HERE, Origin::Draw(1)).with_mappers(bare, &world);
    let file = param.transform_for_save(&ANON, &world).unwrap();
    assert_eq!(param.stored_shape(), &file.shape);
    let source = constant(&[2, 3], 8.0);
    let again = param
        .transform_for_load(None, source, vec![], None, &ANON, &world)
        .unwrap();
    assert_eq!(read(&again, &world), [8.0; 6]);
}

#[test]
fn mappers_belong_to_the_handle_and_not_to_its_clones() {
    let world = World::default();
    let param = declared(HERE, Origin::Read(vec![2.0; 6]));
    let mapped = param.with_mappers(Mappers::default().and_save(times(5.0), None), &world);
    assert_eq!((saved(&param, &world), saved(&mapped, &world)), (2.0, 10.0));
    assert!(param.mappers().is_empty() && mapped.mappers().save().len() == 1);
    assert!(mapped.mappers().load().is_empty() && mapped.mappers().stored.is_none());
}
