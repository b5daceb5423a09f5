//! Another draw at the far end of a state: what a seed does to a model.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use lazyparam_core::{Change, Memo, Origin};

use crate::toy::{ANON, HERE, P, Toy, World, declared, fresh, read, twice};

fn redrawn(param: &P, memo: &mut Memo<Toy>, draw: u64, world: &World) -> P {
    param.redrawn(memo, world, |_| draw).unwrap()
}

fn doubled(param: &P, world: &World) -> P {
    param.map(twice(), Change::default(), &ANON, world).unwrap()
}

/// B56: nothing comes into being, and the old parameter stays what it was.
#[test]
fn a_lazy_draw_is_drawn_anew_and_the_old_one_is_left_alone() {
    let world = World::default();
    let old = declared(HERE, Origin::Draw(1));
    let new = redrawn(&old, &mut Memo::new(), 2, &world);
    assert!(!old.is_initialized() && !new.is_initialized());
    assert_eq!(new.id(), old.id());
    assert_eq!(
        read(&new, &world),
        read(&declared(HERE, Origin::Draw(2)), &world)
    );
    assert_eq!(
        read(&old, &world),
        read(&declared(HERE, Origin::Draw(1)), &world)
    );
}

/// B56
#[test]
fn ties_and_derivations_stay_within_one_memo() {
    let world = World::default();
    let source = declared(HERE, Origin::Draw(1));
    let (clone, derived) = (source.share(&world), doubled(&source, &world));
    let mut memo = Memo::new();
    let new_derived = redrawn(&derived, &mut memo, 2, &world);
    let [new_source, new_clone] = [&source, &clone].map(|it| redrawn(it, &mut memo, 3, &world));
    assert!(Arc::ptr_eq(new_source.state(), new_clone.state()));
    // Whoever comes first decides, also for what it is derived from.
    let value = read(&new_source, &world);
    assert_eq!(value, read(&declared(HERE, Origin::Draw(2)), &world));
    let twice: Vec<f32> = value.iter().map(|x| 2.0 * x).collect();
    assert_eq!(read(&new_derived, &world), twice);
}

#[test]
fn what_is_there_or_comes_from_a_function_stays() {
    let world = World::default();
    let ready = declared(HERE, Origin::Draw(1));
    read(&ready, &world);
    let (runs, origin) = fresh();
    let called = declared(HERE, origin);
    for param in [
        &ready,
        &called,
        &doubled(&ready, &world),
        &doubled(&called, &world),
    ] {
        let new = redrawn(param, &mut Memo::new(), 2, &world);
        assert!(Arc::ptr_eq(new.state(), param.state()));
    }
    assert_eq!(runs.load(SeqCst), 0);
}

#[test]
fn a_long_chain_over_a_draw_is_rebuilt_without_recursion() {
    let world = World::default();
    let mut param = declared(HERE, Origin::Draw(1));
    let mut held = Vec::new();
    for _ in 0..10_000 {
        held.push(param.share(&world));
        param = param
            .map(crate::toy::each(|x| x), Change::default(), &ANON, &world)
            .unwrap();
    }
    let new = redrawn(&param, &mut Memo::new(), 2, &world);
    assert_eq!(
        read(&new, &world),
        read(&declared(HERE, Origin::Draw(2)), &world)
    );
    assert!(!param.is_initialized());
}
