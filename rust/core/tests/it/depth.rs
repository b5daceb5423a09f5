//! Depth is a loop, not a stack: a hundred thousand mappers read and dropped on a small stack.

use std::thread;

use lazyparam_core::{Change, Device, Memo, Origin, Part};

use crate::toy::{ANON, HERE, P, THERE, Toy, World, declared, each, read};
use crate::watchdog::watched;

const DEPTH: usize = 100_000;

/// Run `body` where recursion of any depth would overflow at once.
fn on_a_small_stack<T: Send + 'static>(body: impl FnOnce(&World) -> T + Send + 'static) -> T {
    watched(|| {
        let small = thread::Builder::new().stack_size(256 * 1024);
        let worker = small.spawn(|| body(&World::default())).unwrap();
        worker.join().unwrap()
    })
}

fn deep(world: &World, mut each_level: impl FnMut(&P)) -> P {
    let one = each(|x| x + 1.0);
    let mut param = declared(HERE, Origin::Read(vec![0.0; 6]));
    for _ in 0..DEPTH {
        param = param
            .map(one.clone(), Change::default(), &ANON, world)
            .unwrap();
        each_level(&param);
    }
    param
}

fn deep_alone(world: &World) -> P {
    deep(world, |_| ())
}

/// B59
#[test]
fn a_hundred_thousand_mappers_are_read_and_dropped_without_recursion() {
    on_a_small_stack(|world| {
        let param = deep_alone(world);
        assert_eq!(read(&param, world), [DEPTH as f32; 6]);
        assert!(param.state().recipe().is_none());
    });
}

/// B59
#[test]
fn a_hundred_thousand_mappers_are_dropped_unread_without_recursion() {
    on_a_small_stack(|world| drop(deep_alone(world)));
}

/// B59: with a handle on every level, and so a turn for every level.
#[test]
fn a_hundred_thousand_mappers_that_somebody_holds_are_all_made_and_dropped_in_either_order() {
    for reversed in [false, true] {
        on_a_small_stack(move |world| {
            let mut levels = Vec::new();
            let top = deep(world, |level| levels.push(level.share(world)));
            assert_eq!(read(&top, world), [DEPTH as f32; 6]);
            assert!(levels.iter().all(P::is_initialized));
            assert_eq!(read(&levels[999], world), [1000.0; 6]);
            if reversed {
                levels.reverse();
            }
            drop(top);
            drop(levels);
        });
    }
}

/// B59
#[test]
fn a_hundred_thousand_lazy_levels_held_from_outside_are_dropped_in_either_order() {
    for reversed in [false, true] {
        on_a_small_stack(move |world| {
            let mut levels = Vec::new();
            let top = deep(world, |level| levels.push(level.share(world)));
            if reversed {
                levels.reverse();
            }
            drop(top);
            drop(levels);
        });
    }
}

/// B59: places alternate, so nothing on the way is where it is needed.
#[test]
fn a_hundred_thousand_moves_are_read_without_recursion() {
    on_a_small_stack(|world| {
        let mut param = declared(HERE, Origin::Draw(1));
        for level in 0..DEPTH {
            let place = if level % 2 == 0 { THERE } else { HERE };
            param = param.fork(&place.inner(), &ANON, world).unwrap();
        }
        assert_eq!(read(&param, world).len(), 6);
        assert_eq!(world.diary(), ["draw on here"]);
    });
}

/// B59
#[test]
fn a_hundred_thousand_mappers_are_copied_shown_and_discarded_without_recursion() {
    on_a_small_stack(|world| {
        let param = deep_alone(world);
        let mut memo = Memo::<Toy>::new();
        let copy = param.independent(&mut memo, world).unwrap();
        assert_eq!(memo.len(), DEPTH + 1);
        drop(memo);
        let mut shown = 0;
        let mut count = |part: Part<'_, Toy>| -> Result<(), ()> {
            shown += usize::from(matches!(part, Part::Step(_)));
            Ok(())
        };
        assert_eq!(param.visit_owned(&mut count), Ok(()));
        assert_eq!(shown, DEPTH);
        param.discard();
        drop(param);
        assert_eq!(read(&copy, world), [DEPTH as f32; 6]);
    });
}

/// B59: a failure on the way up gives every turn back.
#[test]
fn a_failure_above_many_levels_leaves_them_all_to_be_read_again() {
    on_a_small_stack(|world| {
        let mut levels = Vec::new();
        let top = deep(world, |level| levels.push(level.share(world)));
        let fails = crate::toy::step(|_| Err(crate::toy::Oops::Raised("at the top")));
        let failing = top.map(fails, Change::default(), &ANON, world).unwrap();
        assert!(failing.val(&ANON, world).is_err());
        assert!(levels.iter().all(P::is_initialized) && !failing.is_initialized());
        assert_eq!(read(&top, world), [DEPTH as f32; 6]);
    });
}
