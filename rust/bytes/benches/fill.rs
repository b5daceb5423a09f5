//! Nanoseconds per element of every kind of fill, by instruction set, beside the speed of writing.
//!
//! `cargo bench -p lazyparam-bytes` prints the table; `-- threads 2 million 16 rounds 5 only normal` changes
//! how. Rounds are interleaved, and the median and the minimum of each case are over rounds, so that cases that
//! are compared ran under the same conditions.

use std::hint::black_box;
use std::time::Instant;

use lazyparam_bytes::fill::{Fans, Fill, Init, Isa, Key, Mode, Number, Plan, Region, Target, fill};
use lazyparam_bytes::{Buffer, Dtype};

struct Case {
    name: String,
    /// `None` measures writing.
    plan: Option<Plan>,
    /// Into memory that nobody has touched yet.
    fresh: bool,
    /// Strides of the target, where it is not contiguous.
    strides: Option<Vec<isize>>,
    isa: Isa,
    threads: usize,
    /// Nanoseconds per element, one for each round.
    times: Vec<f64>,
}

impl Case {
    fn new(name: String, plan: Option<Plan>, isa: Isa, threads: usize) -> Self {
        Self {
            name,
            plan,
            fresh: false,
            strides: None,
            isa,
            threads,
            times: vec![],
        }
    }
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
        cases.push(Case::new("store".to_owned(), None, Isa::detect(), threads));
        for (name, init, dtypes) in inits() {
            for &dtype in dtypes {
                for isa in Isa::available() {
                    let Ok(plan) = Plan::new(&init, &key, &[options.elements], dtype) else {
                        continue;
                    };
                    let name = format!("{name} {}", dtype.name());
                    cases.push(Case::new(name, Some(plan), isa, threads));
                }
            }
        }
        cases.extend(odd_cases(&key, threads, options.elements));
    }
    if let Some(only) = &options.only {
        cases.retain(|case| case.name == "store" || case.name.starts_with(only.as_str()));
    }
    cases
}

/// Boxes and targets that are not one long row, and matrices.
fn odd_cases(key: &Key, threads: usize, elements: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let isa = Isa::detect();
    let Ok(normal) = Init::normal(0.0, 1.0) else {
        return cases;
    };
    for (name, init) in [
        ("zeros", &Init::zeros()),
        ("ones", &Init::ones()),
        ("normal", &normal),
    ] {
        if let Ok(plan) = Plan::new(init, key, &[elements], Dtype::F32) {
            cases.push(Case {
                fresh: true,
                ..Case::new(format!("{name}, fresh memory"), Some(plan), isa, threads)
            });
        }
    }
    for width in [1, 4, 8, 16, 32, 100] {
        let shape = [elements / width, 1024];
        let region = Region::new([0, 3], [elements / width, width]);
        if let Ok(plan) = Plan::of_region(&normal, key, &shape, Dtype::F32, &[], &region) {
            cases.push(Case::new(
                format!("normal, {width} columns"),
                Some(plan),
                isa,
                threads,
            ));
        }
    }
    for cols in [256, 4096, 1 << 16] {
        let shape = [elements / cols, cols];
        if let Ok(plan) = Plan::new(&normal, key, &shape, Dtype::F32) {
            cases.push(Case {
                strides: Some(vec![1, shape[0] as isize]),
                ..Case::new(
                    format!("normal, Fortran, {cols} wide"),
                    Some(plan),
                    isa,
                    threads,
                )
            });
        }
    }
    for n in [256, 1024, 2048] {
        for (name, init) in [
            ("orthogonal", Init::orthogonal(1.0, None)),
            ("sparse", Init::sparse(0.9, 1.0)),
        ] {
            if let Ok(init) = init
                && let Ok(plan) = Plan::new(&init, key, &[n, n], Dtype::F32)
            {
                cases.push(Case::new(format!("{name} {n}"), Some(plan), isa, threads));
            }
        }
    }
    for n in [64, 1024, 16384] {
        if let Ok(plan) = Plan::new(&normal, key, &[n], Dtype::F32) {
            cases.push(Case::new(
                format!("normal, {n} elements"),
                Some(plan),
                isa,
                threads,
            ));
        }
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
            let elements = match &case.plan {
                None => {
                    store(
                        &mut buffer.as_mut_slice()[..options.elements * 4],
                        case.threads,
                    );
                    options.elements
                }
                Some(plan) if case.fresh => {
                    black_box(fill(plan, case.threads).is_ok());
                    plan.bytes() / plan.dtype().size()
                }
                Some(plan) => {
                    let bytes = &mut buffer.as_mut_slice()[..plan.bytes()];
                    let target = match &case.strides {
                        None => Target::contiguous(bytes),
                        Some(strides) => Target::strided(bytes, 0, strides),
                    };
                    if let Ok(fill) = Fill::with_isa(plan, target, case.isa) {
                        fill.run_on(case.threads);
                    }
                    plan.bytes() / plan.dtype().size()
                }
            };
            // The first round warms up.
            if round > 0 {
                case.times
                    .push(start.elapsed().as_secs_f64() * 1e9 / elements as f64);
            }
        }
    }
    println!("{} elements, {} rounds", options.elements, options.rounds);
    println!(
        "{:26} {:9} {:>7} {:>9} {:>9}",
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
            "{:26} {isa:9} {:>7} {median:9.3} {:9.3}",
            case.name, case.threads, case.times[0]
        );
    }
}
