//! Random sequences of verbs, each also carried out on a model that makes everything at once.
//!
//! The model knows nothing of laziness, sharing of work or places of recipes: only what each
//! handle's value and metadata have to be, and which draws somebody has asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lazyparam_core::{Change, Device, Lazy, Memo, Origin, Plan, Shape};
use proptest::prelude::*;

use crate::toy::{
    ANON, HERE, Kind, NUMPY, Oops, P, Place, THERE, Toy, World, call, drawn_element, each, step,
};

const SIZE: usize = 2;

#[derive(Clone, Debug)]
enum Verb {
    Draw(Kind, usize, bool),
    Call(Kind, usize, bool, usize),
    Share(usize),
    Independent(usize),
    Map(usize),
    Cast(usize, Kind),
    Move(usize, usize),
    Fork(usize, usize),
    Valid(usize),
    Train(usize),
    Wish(usize, bool),
    Load(usize, Option<u64>, bool),
    Read(usize),
    Drop(usize),
}

fn verb() -> impl Strategy<Value = Verb> {
    use Verb::*;
    let kind = || prop_oneof![4 => Just(Kind::Float), 1 => Just(Kind::Half), 1 => Just(Kind::Int), 1 => Just(Kind::Bool)];
    let (one, place) = (|| any::<usize>(), || 0..PLACES.len());
    prop_oneof![
        2 => (kind(), place(), any::<bool>()).prop_map(|(k, p, w)| Draw(k, p, w)),
        3 => (kind(), place(), any::<bool>(), 0..3usize).prop_map(|(k, p, w, f)| Call(k, p, w, f)),
        3 => one().prop_map(Share),
        3 => one().prop_map(Independent),
        4 => one().prop_map(Map),
        1 => (one(), kind()).prop_map(|(h, k)| Cast(h, k)),
        4 => (one(), place()).prop_map(|(h, p)| Move(h, p)),
        2 => (one(), place()).prop_map(|(h, p)| Fork(h, p)),
        2 => one().prop_map(Valid),
        2 => one().prop_map(Train),
        2 => (one(), any::<bool>()).prop_map(|(h, w)| Wish(h, w)),
        2 => (one(), any::<Option<u64>>(), any::<bool>()).prop_map(|(h, i, l)| Load(h, i, l)),
        5 => one().prop_map(Read),
        5 => one().prop_map(Drop),
    ]
}

const PLACES: [Place; 4] = [HERE, THERE, NUMPY, crate::toy::untracked("here")];

/// A handle, and all that has to be true of it.
struct Pair {
    real: P,
    id: u64,
    /// Which handles are clones of each other, and so share a leaf.
    state: usize,
    draw: usize,
    values: Vec<f32>,
    kind: Kind,
    place: Place,
    wish: bool,
}

/// One coming-into-being, and whether anybody has seen it.
struct Draw {
    call: Option<usize>,
    seen: bool,
}

struct Counted {
    attempts: Arc<AtomicUsize>,
    failures: usize,
    failed: usize,
}

#[derive(Default)]
struct Model {
    world: World,
    pairs: Vec<Pair>,
    draws: Vec<Draw>,
    calls: Vec<Counted>,
    states: usize,
    leaves: HashMap<usize, Arc<()>>,
}

impl Model {
    fn state(&mut self) -> usize {
        self.states += 1;
        self.states
    }

    fn draw(&mut self, call: Option<usize>) -> usize {
        self.draws.push(Draw { call, seen: false });
        self.draws.len() - 1
    }

    fn declare(&mut self, kind: Kind, place: usize, wish: bool, failures: Option<usize>) {
        let (id, place) = (self.states as u64, PLACES[place]);
        let (origin, call): (Origin<Toy>, _) = match failures {
            None => (Origin::Draw(id), None),
            Some(failures) => {
                let attempts = Arc::new(AtomicUsize::new(0));
                self.calls.push(Counted {
                    attempts: attempts.clone(),
                    failures,
                    failed: 0,
                });
                let origin = call(move |plan| match attempts.fetch_add(1, SeqCst) < failures {
                    true => Err(Oops::Raised("not yet")),
                    false => Ok(Toy::planned(plan, |index| drawn_element(id, index))),
                });
                (origin, Some(self.calls.len() - 1))
            }
        };
        let values = (0..SIZE)
            .map(|index| kind.round(drawn_element(id, index)))
            .collect();
        let real = P::declare(id, Shape::from([SIZE]), kind, place, wish, origin);
        let (state, draw) = (self.state(), self.draw(call));
        self.pairs.push(Pair {
            real,
            id,
            state,
            draw,
            values,
            kind,
            place,
            wish,
        });
    }

    fn context(place: Place, of: Place) -> Place {
        if of.is_autodiff() {
            place.autodiff()
        } else {
            place.inner()
        }
    }

    /// The handle that `verb` makes of the one at `index`.
    fn made(&mut self, verb: &Verb, index: usize) -> Pair {
        let state = self.state();
        let (cx, old) = (&self.world, &self.pairs[index]);
        let with = |real| Pair {
            real,
            values: old.values.clone(),
            ..*old
        };
        let own = |real| Pair {
            state,
            ..with(real)
        };
        match *verb {
            Verb::Share(_) => with(old.real.share(cx)),
            Verb::Valid(_) => Pair {
                place: old.place.inner(),
                ..with(old.real.valid(cx))
            },
            Verb::Train(_) => Pair {
                place: old.place.autodiff(),
                ..with(old.real.train(cx))
            },
            Verb::Wish(_, wish) => Pair {
                wish,
                ..with(old.real.set_requires_grad(wish, cx))
            },
            Verb::Map(_) => {
                let real = old
                    .real
                    .map(each(|x| x * 2.0 + 1.0), Change::default(), &ANON, cx);
                let values = old
                    .values
                    .iter()
                    .map(|x| old.kind.round(x * 2.0 + 1.0))
                    .collect();
                Pair {
                    values,
                    ..own(real.unwrap())
                }
            }
            Verb::Cast(_, kind) => {
                let cast = step(move |toy| {
                    let data = toy.data.iter().map(|x| kind.round(*x)).collect();
                    Ok(Toy { data, kind, ..toy })
                });
                let change = Change {
                    dtype: Some(kind),
                    shape: None,
                };
                let real = old.real.map(cast, change, &ANON, cx).unwrap();
                let values = old.values.iter().map(|x| kind.round(*x)).collect();
                Pair {
                    values,
                    kind,
                    ..own(real)
                }
            }
            Verb::Move(_, place) => {
                let place = Self::context(PLACES[place], old.place);
                let real = old.real.to_device(&place, &ANON, cx).unwrap();
                if place == old.place {
                    with(real)
                } else {
                    Pair { place, ..own(real) }
                }
            }
            Verb::Fork(_, place) => {
                let real = old.real.fork(&PLACES[place], &ANON, cx).unwrap();
                Pair {
                    place: Self::context(PLACES[place], old.place),
                    ..own(real)
                }
            }
            Verb::Load(_, id, lazy) => {
                let plan = Plan {
                    shape: Shape::from([SIZE]),
                    dtype: old.kind,
                    device: NUMPY,
                    requires_grad: false,
                };
                let values: Vec<_> = (0..SIZE)
                    .map(|x| old.kind.round((state + x) as f32))
                    .collect();
                let read = Origin::Read(values.clone());
                let source = Lazy::new(plan, lazyparam_core::Recipe::Origin(read));
                if !lazy {
                    source.force(&ANON, cx).unwrap();
                }
                let real = old
                    .real
                    .transform_for_load(id, source, vec![], None, &ANON, cx);
                let pair = Pair {
                    values,
                    id: id.unwrap_or(old.id),
                    ..own(real.unwrap())
                };
                Pair {
                    draw: self.draw(None),
                    ..pair
                }
            }
            Verb::Independent(_) => {
                let pair = own(old.real.independent(&mut Memo::new(), cx).unwrap());
                let Draw { call, seen } = self.draws[pair.draw];
                if seen {
                    pair
                } else {
                    Pair {
                        draw: self.draw(call),
                        ..pair
                    }
                }
            }
            _ => unreachable!("not a verb that makes one handle of another"),
        }
    }

    fn read(&mut self, index: usize) {
        let pair = &self.pairs[index];
        let draw = &mut self.draws[pair.draw];
        let value = pair.real.val(&ANON, &self.world);
        if let Some(call) = draw.call.filter(|_| !draw.seen) {
            let call = &mut self.calls[call];
            if call.failed < call.failures {
                call.failed += 1;
                assert_eq!(value.unwrap_err(), Oops::Raised("not yet"));
                assert!(!pair.real.is_initialized());
                return;
            }
        }
        draw.seen = true;
        let value = value.unwrap();
        assert_eq!((&value.data[..], value.kind), (&pair.values[..], pair.kind));
        assert_eq!(
            (value.place, value.is_tracked()),
            (pair.place, pair.real.is_tracked())
        );
        if let Some(leaf) = &value.leaf {
            let known = self
                .leaves
                .entry(pair.state)
                .or_insert_with(|| leaf.clone());
            assert!(Arc::ptr_eq(known, leaf), "one leaf for all clones");
            let same = self
                .leaves
                .values()
                .filter(|other| Arc::ptr_eq(other, leaf));
            assert_eq!(same.count(), 1, "and no other's");
        }
        let clones = self.pairs.iter().filter(|other| other.state == pair.state);
        clones.for_each(|clone| assert!(clone.real.is_initialized()));
    }

    fn act(&mut self, verb: &Verb) {
        use Verb::*;
        let count = self.pairs.len();
        match *verb {
            Draw(kind, place, wish) => self.declare(kind, place, wish, None),
            Call(kind, place, wish, failures) => self.declare(kind, place, wish, Some(failures)),
            _ if count == 0 => {}
            Read(handle) => self.read(handle % count),
            Drop(handle) => drop(self.pairs.swap_remove(handle % count)),
            Share(handle)
            | Independent(handle)
            | Map(handle)
            | Cast(handle, _)
            | Move(handle, _)
            | Fork(handle, _)
            | Valid(handle)
            | Train(handle)
            | Wish(handle, _)
            | Load(handle, ..) => {
                let made = self.made(verb, handle % count);
                self.pairs.push(made);
            }
        }
    }

    /// Compare all that can be asked for nothing.
    fn check(&self) {
        for pair in &self.pairs {
            let (real, able) = (&pair.real, matches!(pair.kind, Kind::Float | Kind::Half));
            let before = real.is_initialized();
            assert_eq!((real.id(), *real.dtype()), (pair.id, pair.kind));
            assert_eq!((&**real.shape(), *real.device()), (&[SIZE][..], pair.place));
            assert_eq!(real.device().is_autodiff(), pair.place.is_autodiff());
            assert_eq!(
                (real.requires_grad(), real.is_active()),
                (pair.wish, pair.wish && able)
            );
            assert_eq!(
                real.is_tracked(),
                pair.wish && able && pair.place.is_autodiff()
            );
            assert_eq!(real.state().plan().device, pair.place);
            let file = self.draws[pair.draw].call.is_none();
            assert!(
                self.draws[pair.draw].seen || file || !before,
                "nobody has asked for it"
            );
            assert_eq!(real.is_initialized(), before);
        }
        for (index, call) in self.calls.iter().enumerate() {
            let seen = |draw: &&Draw| draw.call == Some(index) && draw.seen;
            let expected = call.failed + self.draws.iter().filter(seen).count();
            assert_eq!(
                call.attempts.load(SeqCst),
                expected,
                "one run for each draw seen"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The rows of one parameter at large, in any order; each has a test of its own elsewhere.
    #[test]
    fn any_sequence_of_verbs_agrees_with_a_model_that_makes_everything_at_once(
        verbs in prop::collection::vec(verb(), 1..48)
    ) {
        let mut model = Model::default();
        for verb in &verbs {
            model.act(verb);
            model.check();
        }
        for index in 0..model.pairs.len() {
            while !model.pairs[index].real.is_initialized() {
                model.read(index);
            }
            model.read(index);
            model.check();
        }
    }
}
