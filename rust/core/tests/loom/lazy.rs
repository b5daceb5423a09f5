//! The lazy state: its recipe is carried out once and let go of, whoever looks on meanwhile.

use std::sync::Arc;

use lazyparam_core::{Lazy, Memo, Part};
use loom::thread;

use crate::cell::Refusal;
use crate::explore::Search::{Complete, Interrupted};
use crate::explore::{beside, crowd, explore};
use crate::toy::{HERE, State, Toy, World, called, derived, drawn, force};

/// Each of so many threads forces a clone of its own of a state, and lets go of it.
fn force_together(threads: usize, failures: usize) -> Vec<Result<usize, Refusal>> {
    let world = World::default();
    let (call, state) = called(failures);
    let mut clones: Vec<State> = (1..threads).map(|_| state.clone()).collect();
    let others: Vec<_> = std::iter::from_fn(|| clones.pop())
        .map(|clone| {
            let world = world.clone();
            thread::spawn(move || force(&clone, &world))
        })
        .collect();
    let mut results = vec![force(&state, &world)];
    results.extend(others.into_iter().map(|other| other.join().unwrap()));
    assert!(state.recipe().is_none());
    assert_eq!(call.strong_count(), 0, "a spent call is let go");
    assert_eq!(world.deeds(), vec!["call here"; failures + 1]);
    results
}

#[test]
fn a_call_forced_through_two_clones_runs_once_and_is_let_go() {
    explore(Complete, || force_together(2, 0)).are([vec![Ok(10); 2]]);
}

#[test]
fn a_call_forced_through_three_clones_runs_once_and_is_let_go() {
    explore(Interrupted(4), || force_together(3, 0)).are([vec![Ok(10); 3]]);
}

#[test]
fn a_call_that_fails_on_one_thread_is_found_by_the_other_and_let_go_when_it_has_succeeded() {
    let ends = explore(Complete, || force_together(2, 1));
    let failed = Err(Refusal::Raised);
    ends.are([vec![failed, Ok(20)], vec![Ok(20), failed]]);
}

#[test]
fn two_who_want_gradients_get_one_leaf_of_one_value() {
    let ends = explore(Complete, || {
        let world = World::default();
        let (_, state) = called(0);
        let (other, cx) = (state.clone(), world.clone());
        let leaf = |state: &State, world: &World| {
            let leaf: *const Toy = state.force_leaf(&None, world).unwrap();
            leaf as usize
        };
        let leaves = beside(move || leaf(&other, &cx), || leaf(&state, &world));
        assert_eq!(leaves.0, leaves.1);
        world.deeds().join(", ")
    });
    ends.are(["call here, leaf here".to_owned()]);
}

/// What a collector is shown of `state`.
fn shown(state: &State) -> Vec<&'static str> {
    let mut shown = Vec::new();
    let mut note = |part: Part<'_, Toy>| -> Result<(), ()> {
        shown.push(match part {
            Part::Value(value) => {
                value.read();
                "value"
            }
            Part::Call(call) => {
                call.held.read();
                assert!(!call.is_running(), "whoever runs it owns it as well");
                "call"
            }
            Part::Step(_) => "step",
        });
        Ok(())
    };
    assert_eq!(Lazy::visit_owned(state, &mut note), Ok(()));
    shown
}

/// A collector looks at the one reference there is, which another thread is using.
#[test]
fn a_collector_is_shown_whole_things_each_once_while_they_come_into_being() {
    let ends = explore(Complete, || {
        let world = World::default();
        let (_, state) = called(0);
        let owner = Arc::new(state);
        let looked_at = owner.clone();
        let (shown, _) = beside(
            move || shown(&looked_at),
            move || force(&owner, &world).unwrap(),
        );
        shown
    });
    ends.are([vec![], vec!["call"], vec!["value"], vec!["value", "call"]]);
}

#[test]
fn what_two_clones_share_is_shown_by_the_last_of_them_alone() {
    let ends = explore(Complete, || {
        let (_, state) = called(0);
        let other = state.clone();
        beside(move || shown(&other), move || shown(&state))
    });
    let call = vec!["call"];
    ends.are([(vec![], vec![]), (call.clone(), vec![]), (vec![], call)]);
}

#[test]
fn a_collector_that_clears_one_clone_takes_nothing_from_another() {
    let ends = explore(Complete, || {
        let world = World::default();
        let (call, state) = called(0);
        let (garbage, cx) = (state.clone(), world.clone());
        let (_, result) = beside(
            move || {
                Lazy::discard(&garbage);
                drop(garbage);
            },
            move || force(&state, &cx),
        );
        assert_eq!(call.strong_count(), 0);
        result
    });
    ends.are([Ok(10)]);
}

#[test]
fn of_two_clones_that_are_cleared_the_last_takes_the_call_along() {
    let ends = explore(Complete, || {
        let (call, state) = called(0);
        let other = state.clone();
        beside(move || Lazy::discard(&other), move || Lazy::discard(&state));
        call.strong_count()
    });
    ends.are([0]);
}

#[test]
fn who_reads_the_recipe_meanwhile_finds_it_or_finds_the_value() {
    let ends = explore(Complete, || {
        let world = World::default();
        let (call, state) = called(0);
        let (other, cx) = (state.clone(), world.clone());
        let (found, _) = beside(
            move || match other.recipe() {
                Some(_) => "the recipe",
                None => {
                    other.get().map(Toy::read).unwrap();
                    "the value"
                }
            },
            || force(&state, &cx).unwrap(),
        );
        assert_eq!(call.strong_count(), 0);
        found
    });
    ends.are(["the recipe", "the value"]);
}

#[test]
fn a_deep_copy_taken_meanwhile_is_a_copy_of_the_value_or_calls_for_itself() {
    let ends = explore(Complete, || {
        let world = World::default();
        let (_, state) = called(0);
        let (other, cx) = (state.clone(), world.clone());
        let (copy, _) = beside(
            move || Lazy::independent(&other, &mut Memo::new(), &cx).unwrap(),
            || force(&state, &world).unwrap(),
        );
        (force(&copy, &world).unwrap(), world.deeds().join(", "))
    });
    ends.are([
        (10, "call here, copy here".to_owned()),
        (20, "call here, call here".to_owned()),
    ]);
}

#[test]
fn a_derived_state_dropped_while_its_source_is_forced_leaves_the_source_alone() {
    let ends = explore(Complete, || {
        let world = World::default();
        let (call, source) = called(0);
        let above = derived(&derived(&source, HERE, 1), HERE, 1);
        let cx = world.clone();
        let (result, ()) = beside(move || force(&source, &cx).unwrap(), move || drop(above));
        assert_eq!(call.strong_count(), 0);
        result
    });
    ends.are([10]);
}

#[test]
fn a_state_dropped_by_the_last_of_two_owners_frees_its_recipe_after_both_have_used_it() {
    let ends = explore(Complete, || {
        let (call, source) = called(0);
        let above = derived(&source, HERE, 1);
        drop(source);
        let other = above.clone();
        beside(move || drop(other.recipe()), move || drop(above.recipe()));
        call.strong_count()
    });
    ends.are([0]);
}

#[test]
fn a_draw_is_drawn_once_for_two_clones() {
    let ends = explore(Complete, || {
        let world = World::default();
        let state = drawn();
        let clones = [state.clone(), state].map(Arc::new);
        let cx = world.clone();
        let results = crowd(2, move |number| force(&clones[number], &cx).unwrap());
        assert_eq!(results, [7, 7]);
        world.deeds().join(", ")
    });
    ends.are(["draw here".to_owned()]);
}
