//! Nanoseconds per element of every kind of fill, by instruction set, beside the speed of writing.
//!
//! `cargo bench -p lazyparam-bytes` prints the table; `-- threads 2 million 16 rounds 5 only normal` changes
//! how. Rounds are interleaved, and the median and the minimum of each case are over rounds, so that cases that
//! are compared ran under the same conditions.

use std::hint::black_box;
use std::time::Instant;

use lazyparam_bytes::fill::{Fans, Fill, Init, Isa, Key, Mode, Number, Plan, Target};
use lazyparam_bytes::{Buffer, Dtype};

struct Case {
    name: String,
    plan: Option<Plan>,
    isa: Isa,
    threads: usize,
    times: Vec<f64>,
}

struct Options {
    threads: Vec<usize>,
    elements: usize,
    rounds: usize,
    only: Option<String>,
}

fn options() -> Options {
    let args: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let number = |name: &str, default| {
        after(name)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    Options {
        threads: after("threads").map_or(vec![1, 2], |text| {
            text.split(',')
                .filter_map(|count| count.parse().ok())
                .collect()
        }),
        elements: number("million", 16) << 20,
        rounds: number("rounds", 5),
        only: after("only"),
    }
}

fn inits() -> Vec<(&'static str, Init, &'static [Dtype])> {
    const DRAWN: &[Dtype] = &[Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::F64];
    let kaiming = Init::kaiming_uniform(1.0, Mode::FanIn, Fans::given(1024));
    [
        ("zeros", Ok(Init::zeros()), &[Dtype::F32][..]),
        (
            "constant",
            Ok(Init::constant(Number::Float(0.1))),
            &[Dtype::F32][..],
        ),
        ("uniform", kaiming, DRAWN),
        ("normal", Init::normal(0.0, 0.02), DRAWN),
        (
            "trunc 2 std",
            Init::trunc_normal(0.0, 1.0, -2.0, 2.0),
            DRAWN,
        ),
        (
            "trunc 3 std",
            Init::trunc_normal(0.0, 1.0, -3.0, 3.0),
            &[Dtype::F32],
        ),
        (
            "trunc [3, 5]",
            Init::trunc_normal(0.0, 1.0, 3.0, 5.0),
            &[Dtype::F32],
        ),
    ]
    .into_iter()
    .filter_map(|(name, init, dtypes)| Some((name, init.ok()?, dtypes)))
    .collect()
}

fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    let key = Key::new(42, ["weight".into()]);
    for &threads in &options.threads {
        cases.push(Case {
            name: "store".to_owned(),
            plan: None,
            isa: Isa::detect(),
            threads,
            times: vec![],
        });
        for (name, init, dtypes) in inits() {
            for &dtype in dtypes {
                for isa in Isa::available() {
                    let Ok(plan) = Plan::new(&init, &key, &[options.elements], dtype) else {
                        continue;
                    };
                    cases.push(Case {
                        name: format!("{name} {}", dtype.name()),
                        plan: Some(plan),
                        isa,
                        threads,
                        times: vec![],
                    });
                }
            }
        }
    }
    if let Some(only) = &options.only {
        cases.retain(|case| case.name == "store" || case.name.starts_with(only.as_str()));
    }
    cases
}

/// What no fill can beat: writing four-byte elements one after the other.
fn store(bytes: &mut [u8], threads: usize) {
    let part = bytes.len().div_ceil(threads).next_multiple_of(64);
    std::thread::scope(|scope| {
        for (number, part) in bytes.chunks_mut(part).enumerate() {
            let work = move || {
                for (index, element) in part.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    *element = (index as u32).to_le_bytes();
                }
                black_box(part);
            };
            if number == 0 && threads == 1 {
                work();
            } else {
                scope.spawn(work);
            }
        }
    });
}

fn main() {
    let options = options();
    let mut cases = cases(&options);
    let Ok(mut buffer) = Buffer::zeroed(options.elements * 8) else {
        return;
    };
    buffer.as_mut_slice().fill(1);
    for round in 0..=options.rounds {
        for case in &mut cases {
            let start = Instant::now();
            match &case.plan {
                None => store(
                    &mut buffer.as_mut_slice()[..options.elements * 4],
                    case.threads,
                ),
                Some(plan) => {
                    let bytes = &mut buffer.as_mut_slice()[..plan.bytes()];
                    if let Ok(fill) = Fill::with_isa(plan, Target::contiguous(bytes), case.isa) {
                        fill.run_on(case.threads);
                    }
                }
            }
            // The first round warms up.
            if round > 0 {
                case.times
                    .push(start.elapsed().as_secs_f64() * 1e9 / options.elements as f64);
            }
        }
    }
    println!("{} elements, {} rounds", options.elements, options.rounds);
    println!(
        "{:24} {:9} {:>7} {:>8} {:>8}",
        "ns per element", "isa", "threads", "median", "min"
    );
    for case in &mut cases {
        case.times.sort_by(f64::total_cmp);
        let median = case.times[case.times.len() / 2];
        let isa = if case.plan.is_some() {
            case.isa.name()
        } else {
            "-"
        };
        println!(
            "{:24} {isa:9} {:>7} {median:8.3} {:8.3}",
            case.name, case.threads, case.times[0]
        );
    }
}
