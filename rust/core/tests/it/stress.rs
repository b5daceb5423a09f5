//! Many threads, many params, random orders: the counts come out right, and nobody hangs.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock};

use lazyparam_core::{Block, Change, Cycle, OnceCell, Part};

use crate::toy::{
    ANON, HERE, NUMPY, Oops, P, THERE, Toy, World, call, declared, drawn_element, each, fresh,
    read, twice,
};
use crate::watchdog::{crowd, watched};

/// Pseudorandom numbers, the same ones every time.
struct Dice {
    seed: u64,
    rolls: usize,
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self { seed, rolls: 0 }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.rolls += 1;
        drawn_element(self.seed, self.rolls)
            .fract()
            .mul_add(limit as f32, 0.0) as usize
            % limit
    }

    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<_> = (0..count).collect();
        (1..count)
            .rev()
            .for_each(|last| order.swap(last, self.below(last + 1)));
        order
    }
}

/// B01, B02
#[test]
fn eight_threads_read_one_lazy_param_and_what_is_derived_from_it_five_hundred_times() {
    watched(|| {
        let world = World::default();
        let rounds: Vec<_> = (0..500)
            .map(|round| {
                let (runs, origin) = fresh();
                let param = declared(HERE, origin);
                let doubled = param
                    .map(twice(), Change::default(), &ANON, &world)
                    .unwrap();
                let away = doubled.to_device(&THERE, &ANON, &world).unwrap();
                let valid = param.valid(&world);
                // In every other round nobody holds the source but what is derived from it.
                let source = if round % 2 == 0 {
                    param
                } else {
                    doubled.share(&world)
                };
                let valid = if round % 4 == 1 {
                    doubled.valid(&world)
                } else {
                    valid
                };
                (runs, [source, doubled, away, valid])
            })
            .collect();
        let start = Barrier::new(8);
        crowd(8, |number| {
            for (round, (_, handles)) in rounds.iter().enumerate() {
                start.wait();
                let first = handles[(number + round) % 4].val(&ANON, &World::default());
                assert!(matches!(first.unwrap().data[0], 10.0 | 20.0));
            }
        });
        for (runs, [_, doubled, away, _]) in &rounds {
            assert_eq!(runs.load(SeqCst), 1);
            assert_eq!(read(doubled, &world), read(away, &world));
        }
    });
}

/// B32: the moment at which the last handle on a source goes is the one that matters.
#[test]
fn a_source_that_is_read_and_dropped_while_what_is_derived_from_it_is_read_runs_once() {
    watched(|| {
        let world = World::default();
        let (runs, homes, away): (Vec<_>, Vec<_>, Vec<_>) = (0..1000)
            .map(|_| {
                let (runs, origin) = fresh();
                let home = declared(HERE, origin);
                let away = home.to_device(&THERE, &ANON, &world).unwrap();
                (runs, Mutex::new(Some(home)), away)
            })
            .collect();
        let start = Barrier::new(2);
        let seen = crowd(2, |number| {
            let read_one = |(home, away): (&Mutex<Option<P>>, &P)| {
                let home = if number == 0 {
                    home.lock().unwrap().take()
                } else {
                    None
                };
                start.wait();
                read(home.as_ref().unwrap_or(away), &World::default())
            };
            homes.iter().zip(&away).map(read_one).collect::<Vec<_>>()
        });
        assert_eq!(seen[0], seen[1]);
        assert!(runs.iter().all(|runs| runs.load(SeqCst) == 1));
    });
}

/// B01
#[test]
fn verbs_and_reads_on_one_param_by_many_threads_at_once_agree() {
    watched(|| {
        for seed in 0..100 {
            let (runs, origin) = fresh();
            let param = declared(HERE, origin);
            crowd(4, |number| {
                let (world, mut dice) =
                    (World::default(), Dice::new(7000 + 4 * seed + number as u64));
                let mut mine = vec![(param.share(&world), 10.0)];
                for _ in 0..20 {
                    let (one, value) = &mine[dice.below(mine.len())];
                    let made = match dice.below(6) {
                        0 => (one.share(&world), *value),
                        1 => (one.valid(&world), *value),
                        2 => (one.fork(&THERE, &ANON, &world).unwrap(), *value),
                        3 => {
                            let doubled = one.map(twice(), Change::default(), &ANON, &world);
                            (doubled.unwrap(), 2.0 * value)
                        }
                        4 => {
                            let mut count = |_: Part<'_, Toy>| -> Result<(), ()> { Ok(()) };
                            assert_eq!(one.visit_owned(&mut count), Ok(()));
                            continue;
                        }
                        _ => {
                            assert_eq!(one.val(&ANON, &world).unwrap().data[0], *value);
                            continue;
                        }
                    };
                    mine.push(made);
                }
            });
            assert_eq!(read(&param, &World::default())[0], 10.0);
            assert_eq!(runs.load(SeqCst), 1);
        }
    });
}

/// B01, B56
#[test]
fn a_random_graph_of_derived_params_read_in_any_order_runs_each_call_once() {
    watched(|| {
        for seed in 0..60 {
            let (world, mut dice) = (World::default(), Dice::new(seed));
            let mut counters: Vec<Arc<AtomicUsize>> = Vec::new();
            // Each param with its value and the call it comes from.
            let mut nodes: Vec<(P, f32, usize)> = Vec::new();
            for index in 0..30 {
                let node = match (dice.below(4), nodes.len()) {
                    (0, _) | (_, 0) => {
                        let runs = Arc::new(AtomicUsize::new(0));
                        counters.push(runs.clone());
                        let origin = call(move |plan| {
                            runs.fetch_add(1, SeqCst);
                            std::thread::yield_now();
                            Ok(Toy::planned(plan, |_| index as f32))
                        });
                        (declared(HERE, origin), index as f32, counters.len() - 1)
                    }
                    (how, known) => {
                        let (source, value, call) = &nodes[dice.below(known)];
                        let (param, value) = match how {
                            1 => (
                                source.map(each(|x| x + 1.0), Change::default(), &ANON, &world),
                                value + 1.0,
                            ),
                            2 => (source.to_device(&NUMPY, &ANON, &world), *value),
                            _ => (source.fork(&THERE, &ANON, &world), *value),
                        };
                        (param.unwrap(), value, *call)
                    }
                };
                nodes.push(node);
            }
            // Some handles are gone before anybody reads.
            nodes.retain(|_| dice.below(3) > 0);
            crowd(4, |number| {
                let mut dice = Dice::new(1000 + 4 * seed + number as u64);
                for index in dice.shuffled(nodes.len()) {
                    let (param, value, _) = &nodes[index];
                    assert_eq!(read(param, &World::default()), [*value; 6]);
                }
            });
            for (index, runs) in counters.iter().enumerate() {
                let reached = nodes.iter().any(|(_, _, call)| *call == index);
                assert_eq!(runs.load(SeqCst), usize::from(reached));
            }
        }
    });
}

/// B47
#[test]
fn initialisers_that_fail_half_the_time_are_tried_until_one_succeeds() {
    watched(|| {
        for seed in 0..100 {
            let attempts = Arc::new(AtomicUsize::new(0));
            let counter = attempts.clone();
            let param = declared(
                HERE,
                call(move |plan| {
                    let attempt = counter.fetch_add(1, SeqCst);
                    std::thread::yield_now();
                    match Dice::new(seed * 1000 + attempt as u64).below(2) {
                        0 => Err(Oops::Raised("tails")),
                        _ => Ok(Toy::planned(plan, |_| attempt as f32)),
                    }
                }),
            );
            let seen = crowd(8, |_| {
                let (world, mut failures) = (World::default(), 0);
                loop {
                    match param.val(&ANON, &world) {
                        Ok(value) => return (failures, value.data[0]),
                        Err(error) => assert_eq!(error, Oops::Raised("tails")),
                    }
                    failures += 1;
                }
            });
            let failures: usize = seen.iter().map(|(failures, _)| failures).sum();
            assert_eq!(
                attempts.load(SeqCst),
                failures + 1,
                "each failure is one reader's"
            );
            assert!(seen.iter().all(|(_, value)| *value == failures as f32));
        }
    });
}

/// For each node, those it needs.
type Needs = Vec<Vec<usize>>;

fn random_needs(dice: &mut Dice, count: usize, acyclic: bool) -> Needs {
    let needs = |node: usize, dice: &mut Dice| {
        let others = if acyclic { node } else { count };
        let number = if others == 0 { 0 } else { dice.below(3) };
        (0..number).map(|_| dice.below(others)).collect()
    };
    (0..count).map(|node| needs(node, dice)).collect()
}

/// What each node comes to, or nothing where a cycle is in the way: by looking, round after round,
/// for nodes whose needs are known.
fn expected(needs: &Needs) -> Vec<Option<u64>> {
    let mut known: Vec<Option<u64>> = vec![None; needs.len()];
    for _ in needs {
        for (node, needed) in needs.iter().enumerate() {
            let sum = needed
                .iter()
                .try_fold(1, |sum: u64, one| Some(sum.wrapping_add(known[*one]?)));
            known[node] = known[node].or(sum);
        }
    }
    known
}

fn force(cells: &[OnceCell<u64>], needs: &Needs, node: usize) -> Result<u64, Cycle> {
    let init = || {
        std::thread::yield_now();
        needs[node].iter().try_fold(1, |sum: u64, one| {
            Ok(sum.wrapping_add(force(cells, needs, *one)?))
        })
    };
    cells[node]
        .get_or_try_init(&ANON, &mut Block, init)
        .copied()
}

/// Force random graphs from four threads; who is not behind a cycle must get a value, and who is
/// must get an error.
fn force_graphs(graphs: u64, acyclic: bool) -> usize {
    let mut refusals = 0;
    for seed in 0..graphs {
        let needs = random_needs(&mut Dice::new(seed), 12, acyclic);
        let expected = expected(&needs);
        let cells: Vec<OnceCell<u64>> = needs.iter().map(|_| OnceCell::new()).collect();
        crowd(4, |number| {
            for node in Dice::new(5000 + 4 * seed + number as u64).shuffled(needs.len()) {
                assert_eq!(force(&cells, &needs, node).ok(), expected[node]);
            }
        });
        refusals += expected.iter().filter(|value| value.is_none()).count();
    }
    refusals
}

/// B48
#[test]
fn random_acyclic_initialisers_never_report_a_cycle() {
    watched(|| assert_eq!(force_graphs(300, true), 0));
}

/// B48
#[test]
fn random_cyclic_initialisers_never_hang_and_refuse_only_those_behind_a_cycle() {
    watched(|| assert!(force_graphs(300, false) > 300));
}

/// B48: the same with params, some of them derived from others.
#[test]
fn random_params_whose_initialisers_read_each_other_never_hang() {
    watched(|| {
        for seed in 0..150 {
            let (world, mut dice) = (World::default(), Dice::new(seed));
            let mut needs = random_needs(&mut dice, 10, false);
            let all: Arc<OnceLock<Vec<P>>> = Arc::default();
            let mut params: Vec<P> = Vec::new();
            for node in 0..needs.len() {
                if node > 0 && dice.below(3) == 0 {
                    let source = dice.below(node);
                    needs[node] = vec![source];
                    let plus_one = each(|x| x + 1.0);
                    let param = params[source].map(plus_one, Change::default(), &ANON, &world);
                    params.push(param.unwrap());
                    continue;
                }
                let (all, needs) = (all.clone(), needs[node].clone());
                params.push(declared(
                    HERE,
                    call(move |plan| {
                        std::thread::yield_now();
                        let mut sum = 1.0;
                        for one in &needs {
                            let other = &all.get().unwrap()[*one];
                            sum += other.val(&ANON, &World::default())?.data[0];
                        }
                        Ok(Toy::planned(plan, |_| sum))
                    }),
                ));
            }
            assert!(all.set(params).is_ok());
            let (params, expected) = (all.get().unwrap(), expected(&needs));
            crowd(4, |number| {
                for node in Dice::new(9000 + 4 * seed + number as u64).shuffled(needs.len()) {
                    let value = params[node].val(&ANON, &World::default());
                    match expected[node] {
                        Some(sum) => assert_eq!(value.unwrap().data[0], sum as f32),
                        None => assert!(matches!(value, Err(Oops::Cycle(_)))),
                    }
                }
            });
        }
    });
}

/// B57
#[test]
fn sixteen_threads_declare_and_read_params_of_their_own_and_params_that_others_declared() {
    watched(|| {
        let exchange = Mutex::new(Vec::new());
        let start = Barrier::new(16);
        crowd(16, |_| {
            let world = World::default();
            for _ in 0..50 {
                let (runs, origin) = fresh();
                let param = declared(HERE, origin);
                exchange.lock().unwrap().push((runs, param.share(&world)));
                let doubled = param
                    .map(twice(), Change::default(), &ANON, &world)
                    .unwrap();
                assert_eq!(read(&doubled, &world)[0], 2.0 * read(&param, &world)[0]);
            }
            start.wait();
            // Whoever declared it may be gone by now.
            while let Some((runs, param)) = { exchange.lock().unwrap().pop() } {
                assert!(param.is_initialized());
                assert_eq!(read(&param, &world)[0], 10.0);
                assert_eq!(runs.load(SeqCst), 1);
            }
        });
    });
}
