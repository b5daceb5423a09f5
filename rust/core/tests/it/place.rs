//! Where a recipe runs: decided when a value is read, not when it is moved (the first departure
//! from Burn, which makes a shared value at the move).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use lazyparam_core::{Change, Lazy, Origin};

use crate::toy::{
    ANON, HERE, NUMPY, Oops, P, Place, THERE, Toy, World, call, declared, fresh, raising, read,
    step, tracking, twice,
};
use crate::watchdog::{crowd, take_a_while, watched};

const ELSEWHERE: Place = tracking("elsewhere");

fn moved(param: &P, place: Place, world: &World) -> P {
    param.to_device(&place, &ANON, world).unwrap()
}

fn doubled(param: &P, world: &World) -> P {
    param.map(twice(), Change::default(), &ANON, world).unwrap()
}

#[test]
fn a_moved_lazy_param_stays_lazy() {
    let world = World::default();
    let param = declared(HERE, raising());
    let away = moved(&param, THERE, &world);
    assert!(!away.is_initialized() && !param.is_initialized());
    assert_eq!((away.device(), param.device()), (&THERE, &HERE));
    assert_eq!(away.state().plan().device, THERE);
}

#[test]
fn a_call_that_nobody_else_holds_runs_on_the_target() {
    let world = World::default();
    let (_, origin) = fresh();
    let away = moved(&declared(HERE, origin), THERE, &world);
    assert_eq!(away.val(&ANON, &world).unwrap().place, THERE);
    assert_eq!(world.diary(), ["call on there"]);
}

#[test]
fn a_call_that_nobody_else_holds_runs_on_the_target_through_fifty_thousand_mappers() {
    let world = World::default();
    let one = step(|toy: Toy| {
        Ok(Toy {
            data: toy.data.iter().map(|x| x + 1.0).collect(),
            ..toy
        })
    });
    let mut param = declared(HERE, call(|plan| Ok(Toy::planned(plan, |_| 0.0))));
    for _ in 0..50_000 {
        param = param
            .map(one.clone(), Change::default(), &ANON, &world)
            .unwrap();
    }
    let away = moved(&param, THERE, &world);
    drop(param);
    assert_eq!(read(&away, &world), [50_000.0; 6]);
    assert_eq!(world.diary(), ["call on there"]);
}

/// B32
#[test]
fn a_shared_call_runs_once_at_home_and_is_moved_once_whoever_is_read_first() {
    for away_first in [true, false] {
        let world = World::default();
        let (runs, origin) = fresh();
        let home = declared(HERE, origin);
        let away = moved(&home, THERE, &world);
        let order = if away_first {
            [&away, &home]
        } else {
            [&home, &away]
        };
        let [first, second] = order.map(|param| read(param, &world));
        assert_eq!(first, second);
        assert_eq!(runs.load(SeqCst), 1);
        assert_eq!(world.diary(), ["call on here", "move from here to there"]);
    }
}

#[test]
fn two_params_moved_from_one_call_share_it_even_when_home_is_gone() {
    let world = World::default();
    let (runs, origin) = fresh();
    let home = declared(HERE, origin);
    let (there, elsewhere) = (moved(&home, THERE, &world), moved(&home, ELSEWHERE, &world));
    drop(home);
    assert_eq!(read(&there, &world), read(&elsewhere, &world));
    assert_eq!(runs.load(SeqCst), 1);
    let one_call = [
        "call on here",
        "move from here to there",
        "move from here to elsewhere",
    ];
    assert_eq!(world.diary(), one_call);
}

#[test]
fn the_last_of_two_moved_params_takes_the_call_along() {
    let world = World::default();
    let (_, origin) = fresh();
    let home = declared(HERE, origin);
    let (there, elsewhere) = (moved(&home, THERE, &world), moved(&home, ELSEWHERE, &world));
    drop((home, elsewhere));
    read(&there, &world);
    assert_eq!(world.diary(), ["call on there"]);
}

/// B32, B56: a draw and a read give the same wherever they run, so they run where needed.
#[test]
fn a_shared_draw_or_read_runs_on_the_target_and_nothing_is_moved() {
    for (origin, verb) in [
        (Origin::Draw(7), "draw"),
        (Origin::Read(vec![0.5; 6]), "read"),
    ] {
        let world = World::default();
        let home = declared(HERE, origin);
        let away = moved(&home, THERE, &world);
        let values = read(&away, &world);
        assert!(!home.is_initialized(), "nobody has asked at home");
        assert_eq!(world.diary(), [format!("{verb} on there")]);
        assert_eq!(read(&home, &world), values);
        assert_eq!(world.diary(), [format!("{verb} on here")]);
    }
}

#[test]
fn a_draw_that_is_there_already_is_moved_and_not_drawn_again() {
    let world = World::default();
    let home = declared(HERE, Origin::Draw(7));
    let lazily = moved(&home, THERE, &world);
    read(&home, &world);
    let eagerly = moved(&home, THERE, &world);
    assert!(eagerly.is_initialized() && !lazily.is_initialized());
    assert_eq!(read(&lazily, &world), read(&eagerly, &world));
    let moves = [
        "draw on here",
        "move from here to there",
        "move from here to there",
    ];
    assert_eq!(world.diary(), moves);
}

#[test]
fn a_param_moved_twice_runs_where_it_ended_up() {
    let world = World::default();
    let (_, origin) = fresh();
    let twice_moved = moved(
        &moved(&declared(HERE, origin), THERE, &world),
        ELSEWHERE,
        &world,
    );
    read(&twice_moved, &world);
    assert_eq!(world.diary(), ["call on elsewhere"]);
}

#[test]
fn a_stop_on_the_way_that_somebody_holds_is_made_there_and_moved_on() {
    let world = World::default();
    let (runs, origin) = fresh();
    let stop = moved(&declared(HERE, origin), THERE, &world);
    let end = moved(&stop, ELSEWHERE, &world);
    let values = read(&end, &world);
    assert!(stop.is_initialized());
    assert_eq!(
        world.diary(),
        ["call on there", "move from there to elsewhere"]
    );
    assert_eq!(read(&stop, &world), values);
    assert_eq!(runs.load(SeqCst), 1);
}

/// B56: what the moves of a draw give does not depend on the stops, so none of them is made.
#[test]
fn a_draw_or_read_that_was_moved_and_moved_on_runs_where_it_ended_up_though_all_stops_are_held() {
    for (origin, verb) in [
        (Origin::Draw(7), "draw"),
        (Origin::Read(vec![0.5; 6]), "read"),
    ] {
        let world = World::default();
        let home = declared(HERE, origin);
        let stop = moved(&home, THERE, &world);
        let end = moved(&stop, ELSEWHERE, &world);
        let values = read(&end, &world);
        assert!(!home.is_initialized() && !stop.is_initialized());
        assert_eq!(world.diary(), [format!("{verb} on elsewhere")]);
        assert_eq!(read(&stop, &world), values);
        assert_eq!(read(&home, &world), values);
    }
}

#[test]
fn what_is_there_already_is_moved_on_without_the_stop() {
    let world = World::default();
    let home = declared(HERE, Origin::Draw(7));
    let stop = moved(&home, THERE, &world);
    let end = moved(&stop, ELSEWHERE, &world);
    let values = read(&home, &world);
    assert_eq!(read(&end, &world), values);
    assert!(!stop.is_initialized());
    assert_eq!(
        world.diary(),
        ["draw on here", "move from here to elsewhere"]
    );
}

#[test]
fn a_mapped_draw_that_was_moved_on_keeps_to_its_stops() {
    let world = World::default();
    let mapped = doubled(&declared(HERE, Origin::Draw(7)), &world);
    let stop = moved(&mapped, THERE, &world);
    let end = moved(&stop, ELSEWHERE, &world);
    let values = read(&end, &world);
    assert!(mapped.is_initialized() && stop.is_initialized());
    assert_eq!(read(&mapped, &world), values);
}

#[test]
fn a_param_moved_there_and_back_is_made_at_home_without_a_move() {
    let world = World::default();
    let (_, origin) = fresh();
    let back = moved(&moved(&declared(HERE, origin), THERE, &world), HERE, &world);
    read(&back, &world);
    assert_eq!(world.diary(), ["call on here"]);
}

#[test]
fn steps_run_where_their_source_ends_up() {
    let world = World::default();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = seen.clone();
    let noting = step(move |toy: Toy| {
        note.lock().unwrap().push(toy.place.name);
        Ok(toy)
    });
    let param = declared(HERE, Origin::Draw(1));
    let mapped = param.map(noting, Change::default(), &ANON, &world).unwrap();
    drop(param);
    let away = moved(&mapped, THERE, &world);
    drop(mapped);
    assert_eq!(read(&away, &world).len(), 6);
    assert_eq!(
        (&*seen.lock().unwrap(), world.diary()),
        (&vec!["there"], vec!["draw on there".into()])
    );
}

#[test]
fn a_shared_mapped_draw_is_made_at_home_because_its_step_may_depend_on_the_place() {
    let world = World::default();
    let mapped = doubled(&declared(HERE, Origin::Draw(1)), &world);
    let away = moved(&mapped, THERE, &world);
    let values = read(&away, &world);
    assert_eq!(world.diary(), ["draw on here", "move from here to there"]);
    assert!(mapped.is_initialized());
    assert_eq!(read(&mapped, &world), values);
}

/// B24
#[test]
fn a_param_moved_and_loaded_never_runs_its_initialiser_and_the_load_lands_on_the_target() {
    let world = World::default();
    let away = moved(&declared(HERE, raising()), THERE, &world);
    let file = declared(NUMPY, Origin::Read(vec![4.0; 6])).state().clone();
    let loaded = away
        .transform_for_load(None, file, vec![], None, &ANON, &world)
        .unwrap();
    assert_eq!(read(&loaded, &world), [4.0; 6]);
    assert_eq!(world.diary(), ["read on there"]);
}

/// B47
#[test]
fn a_failure_on_the_target_is_tried_again_on_the_target() {
    let world = World::default();
    let first = AtomicBool::new(true);
    let flaky = call(move |plan| {
        if first.swap(false, SeqCst) {
            return Err(Oops::Raised("out of memory"));
        }
        Ok(Toy::planned(plan, |_| 1.0))
    });
    let away = moved(&doubled(&declared(HERE, flaky), &world), THERE, &world);
    assert_eq!(
        away.val(&ANON, &world).unwrap_err(),
        Oops::Raised("out of memory")
    );
    assert!(!away.is_initialized());
    assert_eq!(read(&away, &world), [2.0; 6]);
    assert_eq!(world.diary(), ["call on there", "call on there"]);
}

/// B32
#[test]
fn home_and_many_targets_read_at_once_by_many_threads_run_one_call() {
    watched(|| {
        for _ in 0..20 {
            let world = World::default();
            let runs = Arc::new(AtomicUsize::new(0));
            let counter = runs.clone();
            let home = declared(
                HERE,
                call(move |plan| {
                    take_a_while();
                    let run = counter.fetch_add(1, SeqCst);
                    Ok(Toy::planned(plan, |_| run as f32))
                }),
            );
            let places = [HERE, THERE, ELSEWHERE, NUMPY];
            let away: Vec<_> = places
                .iter()
                .map(|place| moved(&home, *place, &world))
                .collect();
            drop(home);
            let seen = crowd(8, |number| read(&away[number % 4], &world));
            assert!(seen.iter().all(|values| *values == [0.0; 6]));
            assert_eq!(runs.load(SeqCst), 1);
        }
    });
}

#[test]
fn a_state_reached_without_a_handle_is_made_like_any_other() {
    let world = World::default();
    let (_, origin) = fresh();
    let away = moved(&declared(HERE, origin), THERE, &world);
    let state: &Arc<Lazy<Toy>> = away.state();
    assert_eq!(state.force(&ANON, &world).unwrap().place, THERE);
    assert!(state.force_leaf(&ANON, &world).unwrap().is_tracked());
    assert!(away.get().is_some());
}
