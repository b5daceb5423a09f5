//! What a garbage collector is shown: each reference once, and nothing that others can reach.

use std::sync::Arc;
use std::sync::Weak;

use lazyparam_core::{Change, Mappers, Origin, Param, Part};

use crate::toy::{ANON, Call, HERE, P, Step, THERE, Toy, World, declared, raising, read, twice};

/// The addresses of the values, calls and steps that are shown, in this order.
fn shown(param: &P) -> [Vec<usize>; 3] {
    let mut seen = [vec![], vec![], vec![]];
    let mut note = |part: Part<'_, Toy>| -> Result<(), ()> {
        match part {
            Part::Value(value) => seen[0].push(std::ptr::from_ref(value) as usize),
            Part::Call(call) => seen[1].push(std::ptr::from_ref::<Call>(call) as usize),
            Part::Step(step) => seen[2].push(std::ptr::from_ref::<Step>(step) as usize),
        }
        Ok(())
    };
    assert_eq!(param.visit_owned(&mut note), Ok(()));
    let mut once: Vec<_> = seen.iter().flatten().collect();
    once.sort_unstable();
    once.dedup();
    assert_eq!(
        once.len(),
        seen.iter().map(Vec::len).sum::<usize>(),
        "each of them once"
    );
    seen
}

fn counts(param: &P) -> [usize; 3] {
    shown(param).map(|parts| parts.len())
}

/// A call, and a way to see whether anybody still holds it.
fn held() -> (Weak<()>, Origin<Toy>) {
    let token = Arc::new(());
    let watch = Arc::downgrade(&token);
    let origin = crate::toy::call(move |plan| {
        let _ = &token;
        Ok(Toy::planned(plan, |_| 1.0))
    });
    (watch, origin)
}

/// B60
#[test]
fn a_lazy_param_shows_its_call_and_a_ready_one_its_value_and_leaf() {
    let world = World::default();
    let param = declared(HERE, held().1);
    assert_eq!(counts(&param), [0, 1, 0]);
    param.state().force(&ANON, &world).unwrap();
    assert_eq!(counts(&param), [1, 0, 0]);
    read(&param, &world);
    assert_eq!(counts(&param), [2, 0, 0], "the value and the leaf");
    assert_eq!(counts(&declared(HERE, Origin::Draw(1))), [0, 0, 0]);
}

/// B60
#[test]
fn a_derived_param_shows_its_steps_and_all_below_that_it_alone_owns() {
    let world = World::default();
    let mapped = |param: &P| {
        param
            .map(twice(), Change::default(), &ANON, &world)
            .unwrap()
    };
    let source = declared(HERE, held().1);
    let derived = mapped(&mapped(&source))
        .to_device(&THERE, &ANON, &world)
        .unwrap();
    assert_eq!(counts(&derived), [0, 0, 2], "the call is the source's too");
    assert_eq!(
        counts(&source),
        [0, 0, 0],
        "the source is the derived one's too"
    );
    drop(source);
    assert_eq!(counts(&derived), [0, 1, 2]);
    read(&derived, &world);
    assert_eq!(counts(&derived), [2, 0, 0]);
}

/// B60
#[test]
fn a_ready_source_is_shown_by_the_derived_param_that_alone_owns_it() {
    let world = World::default();
    let source = declared(HERE, held().1);
    let derived = source
        .map(twice(), Change::default(), &ANON, &world)
        .unwrap();
    read(&source, &world);
    assert_eq!(counts(&derived), [0, 0, 1]);
    drop(source);
    assert_eq!(counts(&derived), [2, 0, 1]);
}

/// B60
#[test]
fn nothing_of_a_shared_state_is_shown_by_any_handle_until_one_is_left() {
    let world = World::default();
    let (call, origin) = held();
    let one = declared(HERE, origin);
    let other = one.share(&world);
    for read_first in [false, true] {
        if read_first {
            read(&one, &world);
            assert_eq!(call.strong_count(), 0, "a spent call is let go");
        }
        assert_eq!(counts(&one), [0; 3]);
        assert_eq!(counts(&other), [0; 3]);
    }
    drop(other);
    assert_eq!(counts(&one), [2, 0, 0]);
}

/// B60
#[test]
fn a_call_held_by_a_shared_unread_state_is_gone_after_reading_any_handle() {
    let world = World::default();
    let (call, origin) = held();
    let source = declared(HERE, origin);
    let handles = [
        source.share(&world),
        source
            .map(twice(), Change::default(), &ANON, &world)
            .unwrap(),
        source.to_device(&THERE, &ANON, &world).unwrap(),
    ];
    assert!(
        handles
            .iter()
            .chain([&source])
            .all(|each| shown(each)[1].is_empty())
    );
    assert_eq!(call.strong_count(), 1);
    read(&handles[2], &world);
    assert_eq!(call.strong_count(), 0);
}

/// B60
#[test]
fn a_call_is_gone_once_the_one_param_that_can_reach_it_is_read_or_loaded_over() {
    let world = World::default();
    let (call, origin) = held();
    let derived = declared(HERE, origin)
        .map(twice(), Change::default(), &ANON, &world)
        .unwrap();
    assert_eq!(call.strong_count(), 1);
    read(&derived, &world);
    assert_eq!(call.strong_count(), 0);
    let (call, origin) = held();
    let mut param = declared(HERE, origin);
    let source = declared(HERE, Origin::Draw(1)).state().clone();
    param = param
        .transform_for_load(None, source, vec![], None, &ANON, &world)
        .unwrap();
    assert_eq!(call.strong_count(), 0);
    assert_eq!(read(&param, &world).len(), 6);
}

/// B60
#[test]
fn each_handle_shows_its_own_mappers_even_on_a_shared_state() {
    let world = World::default();
    let param = declared(HERE, raising());
    let mappers = Mappers::default()
        .and_load(twice(), None)
        .and_save(twice(), None);
    let one = param.with_mappers(mappers, &world);
    let other = one.share(&world);
    let (steps, others) = (shown(&one)[2].clone(), shown(&other)[2].clone());
    assert_eq!((steps.len(), others.len()), (2, 2));
    assert!(
        steps.iter().all(|step| !others.contains(step)),
        "each owns its references"
    );
    assert_eq!(counts(&param), [0; 3]);
}

/// B60
#[test]
fn a_recipe_that_somebody_looks_at_is_not_shown() {
    let param = declared(HERE, held().1);
    let recipe = param.state().recipe();
    assert_eq!(counts(&param), [0; 3]);
    drop(recipe);
    assert_eq!(counts(&param), [0, 1, 0]);
}

#[test]
fn a_visit_that_is_told_to_stop_stops() {
    let world = World::default();
    let param = declared(HERE, held().1);
    let param: Param<Toy> = param
        .map(twice(), Change::default(), &ANON, &world)
        .unwrap();
    let mut visits = 0;
    let mut stop = |_: Part<'_, Toy>| {
        visits += 1;
        Err("stop")
    };
    assert_eq!(param.visit_owned(&mut stop), Err("stop"));
    assert_eq!(visits, 1);
}

/// B60: what a collector clears.
#[test]
fn discarding_the_last_handles_recipe_lets_its_call_go() {
    let (call, origin) = held();
    let param = declared(HERE, origin);
    param.discard();
    assert_eq!(call.strong_count(), 0);
}
