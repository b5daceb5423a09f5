//! Where a recipe runs is decided when it is read: nobody runs a call twice, whatever the timing.

use loom::thread;

use crate::cell::Refusal;
use crate::explore::Search::{Complete, Interrupted};
use crate::explore::{beside, explore};
use crate::toy::{ELSEWHERE, HERE, State, THERE, World, called, derived, drawn, force};

/// Force every one of `states` on a thread of its own, which lets go of it afterwards.
fn force_each<const N: usize>(states: [State; N], world: &World) -> Vec<Result<usize, Refusal>> {
    let mut states = Vec::from(states);
    let mine = states.remove(0);
    let others: Vec<_> = states
        .into_iter()
        .map(|state| {
            let world = world.clone();
            thread::spawn(move || force(&state, &world))
        })
        .collect();
    let mut results = vec![force(&mine, world)];
    drop(mine);
    results.extend(others.into_iter().map(|other| other.join().unwrap()));
    results
}

/// What was done to give every one of `states` the number `expected`.
fn deeds_for<const N: usize>(states: [State; N], expected: usize, world: &World) -> String {
    let results = force_each(states, world);
    assert_eq!(results, vec![Ok(expected); N]);
    world.deeds().join(", ")
}

#[test]
fn a_call_that_one_moved_state_owns_runs_on_the_target_whoever_forces_that() {
    let ends = explore(Complete, || {
        let (_, home) = called(0);
        let away = derived(&home, THERE, 0);
        drop(home);
        deeds_for([away.clone(), away], 10, &World::default())
    });
    ends.are(["call there".to_owned()]);
}

#[test]
fn a_call_that_two_moved_states_share_runs_once_at_home() {
    let ends = explore(Interrupted(5), || {
        let (call, home) = called(0);
        let away = [THERE, ELSEWHERE].map(|place| derived(&home, place, 0));
        drop(home);
        let deeds = deeds_for(away, 10, &World::default());
        assert_eq!(call.strong_count(), 0, "a spent call is let go");
        deeds
    });
    ends.are(["call here, move here to elsewhere, move here to there".to_owned()]);
}

#[test]
fn a_call_that_home_and_a_moved_state_share_runs_once_at_home() {
    let ends = explore(Complete, || {
        let (_, home) = called(0);
        let away = derived(&home, THERE, 0);
        deeds_for([away, home], 10, &World::default())
    });
    ends.are(["call here, move here to there".to_owned()]);
}

#[test]
fn a_call_that_three_threads_want_in_three_places_runs_once_at_home() {
    let ends = explore(Interrupted(3), || {
        let (_, home) = called(0);
        let away = [THERE, ELSEWHERE].map(|place| derived(&home, place, 0));
        let [there, elsewhere] = away;
        deeds_for([home, there, elsewhere], 10, &World::default())
    });
    ends.are(["call here, move here to elsewhere, move here to there".to_owned()]);
}

#[test]
fn a_call_whose_other_owner_goes_meanwhile_runs_at_home_or_on_the_target_and_once() {
    let ends = explore(Complete, || {
        let world = World::default();
        let (call, home) = called(0);
        let away = derived(&home, THERE, 0);
        let cx = world.clone();
        let ((), result) = beside(move || drop(home), move || force(&away, &cx));
        assert_eq!((result, call.strong_count()), (Ok(10), 0));
        world.deeds().join(", ")
    });
    ends.are([
        "call here, move here to there".to_owned(),
        "call there".to_owned(),
    ]);
}

#[test]
fn a_call_that_fails_for_one_moved_state_is_found_by_the_other() {
    let ends = explore(Interrupted(5), || {
        let world = World::default();
        let (_, home) = called(1);
        let away = [THERE, ELSEWHERE].map(|place| derived(&home, place, 0));
        drop(home);
        force_each(away, &world)
    });
    let failed = Err(Refusal::Raised);
    ends.are([vec![failed, Ok(20)], vec![Ok(20), failed]]);
}

#[test]
fn a_draw_is_made_where_it_is_needed_or_moved_from_where_it_is() {
    let ends = explore(Complete, || {
        let home = drawn();
        let away = derived(&home, THERE, 0);
        deeds_for([away, home], 7, &World::default())
    });
    ends.are([
        "draw here, draw there".to_owned(),
        "draw here, move here to there".to_owned(),
    ]);
}

#[test]
fn a_draw_wanted_in_three_places_is_made_at_most_once_in_each() {
    let ends = explore(Interrupted(3), || {
        let home = drawn();
        let [there, elsewhere] = [THERE, ELSEWHERE].map(|place| derived(&home, place, 0));
        deeds_for([home, there, elsewhere], 7, &World::default())
    });
    ends.are([
        "draw elsewhere, draw here, draw there".to_owned(),
        "draw elsewhere, draw here, move here to there".to_owned(),
        "draw here, draw there, move here to elsewhere".to_owned(),
        "draw here, move here to elsewhere, move here to there".to_owned(),
    ]);
}

#[test]
fn a_step_that_two_moved_states_share_is_taken_once_at_home() {
    let ends = explore(Interrupted(5), || {
        let (_, home) = called(0);
        let mapped = derived(&home, HERE, 1);
        drop(home);
        let away = [THERE, ELSEWHERE].map(|place| derived(&mapped, place, 0));
        drop(mapped);
        deeds_for(away, 11, &World::default())
    });
    let once = "call here, move here to elsewhere, move here to there, step here";
    ends.are([once.to_owned()]);
}

#[test]
fn a_mapped_and_moved_state_forced_with_its_source_takes_its_step_on_the_target() {
    let ends = explore(Complete, || {
        let (_, home) = called(0);
        let away = derived(&derived(&home, HERE, 1), THERE, 0);
        let world = World::default();
        let results = force_each([away, home], &world);
        assert_eq!(results, [Ok(11), Ok(10)]);
        world.deeds().join(", ")
    });
    ends.are(["call here, move here to there, step there".to_owned()]);
}
