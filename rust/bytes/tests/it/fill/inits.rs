//! Initialisers as values: parts, equality, and what is refused.

use std::collections::HashSet;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Arg, Compat, Fans, Init, Layout, Mode, Number, Spread};

fn all() -> Vec<Init> {
    let layout = || Some(Layout::new("OIHW").unwrap());
    let fans = || Fans {
        layout: layout(),
        groups: 2,
        compat: Compat::None,
        given: None,
    };
    let torch = Fans {
        compat: Compat::Torch,
        ..Fans::default()
    };
    [
        Ok(Init::zeros()),
        Ok(Init::ones()),
        Ok(Init::constant(Number::Float(f64::NAN))),
        Ok(Init::constant(Number::Int(-3))),
        Ok(Init::eye()),
        Init::dirac(layout(), 2),
        Init::uniform(-1.0, 2.0),
        Init::normal(0.5, 2.0),
        Init::trunc_normal(0.0, 1.0, -2.0, f64::INFINITY),
        Init::kaiming_uniform(1.5, Mode::FanOut, fans()),
        Init::kaiming_normal(1.5, Mode::FanIn, torch),
        Init::xavier_uniform(1.5, fans()),
        Init::xavier_normal(1.5, Fans::given(7)),
        Init::lecun_uniform(fans()),
        Init::lecun_normal(Fans::default()),
        Init::variance_scaling(2.0, Mode::FanGeometric, Spread::Truncated, fans()),
        Init::orthogonal(-1.0, layout()),
        Init::sparse(0.9, 0.01),
    ]
    .map(Result::unwrap)
    .into()
}

#[test]
fn an_initialiser_is_its_name_and_its_arguments() {
    for init in all() {
        let again = Init::from_parts(init.name(), &init.args()).unwrap();
        assert_eq!(again, init);
        assert_eq!(again.args(), init.args());
    }
    let distinct: HashSet<Init> = all().into_iter().chain(all()).collect();
    assert_eq!(distinct.len(), all().len());
}

#[test]
fn initialisers_that_differ_in_one_argument_differ() {
    let normal = |mean, std| Init::normal(mean, std).unwrap();
    assert_eq!(normal(0.0, 1.0), normal(0.0, 1.0));
    assert_eq!(normal(-0.0, 1.0), normal(0.0, 1.0));
    assert_ne!(normal(0.0, 1.0), normal(0.0, 2.0));
    assert_ne!(
        Init::constant(Number::Int(1)),
        Init::constant(Number::Float(1.0))
    );
    assert_ne!(Init::zeros(), Init::ones());
    assert_ne!(
        Init::lecun_normal(Fans::default()).unwrap(),
        Init::lecun_normal(Fans::by(Layout::new("OI").unwrap())).unwrap()
    );
}

#[test]
fn missing_arguments_have_defaults_and_strangers_are_refused() {
    let parts = |name: &str, args: &[(&str, Arg)]| Init::from_parts(name, args);
    assert_eq!(
        parts("normal", &[]).unwrap(),
        Init::normal(0.0, 1.0).unwrap()
    );
    assert_eq!(
        parts("uniform", &[]).unwrap(),
        Init::uniform(0.0, 1.0).unwrap()
    );
    assert_eq!(
        parts("kaiming_uniform", &[]).unwrap(),
        Init::kaiming_uniform(2_f64.sqrt(), Mode::FanIn, Fans::default()).unwrap()
    );
    let two = Arg::Number(Number::Int(2));
    let word = Arg::Text("two".to_owned());
    assert_eq!(
        parts("normal", &[("std", two.clone())]).unwrap(),
        Init::normal(0.0, 2.0).unwrap()
    );
    for (name, args) in [
        ("gaussian", vec![]),
        ("normal", vec![("sdt", two.clone())]),
        ("zeros", vec![("value", two.clone())]),
        ("normal", vec![("std", word.clone())]),
        ("constant", vec![]),
        ("kaiming_normal", vec![("mode", word.clone())]),
        ("kaiming_normal", vec![("mode", two.clone())]),
        ("kaiming_normal", vec![("groups", word)]),
        ("kaiming_normal", vec![("layout", two)]),
        ("normal", vec![("std", Arg::Nothing)]),
        ("dirac", vec![("groups", Arg::Nothing)]),
        ("lecun_normal", vec![("groups", Arg::Nothing)]),
        ("variance_scaling", vec![("mode", Arg::Nothing)]),
        ("variance_scaling", vec![("distribution", Arg::Nothing)]),
    ] {
        assert!(parts(name, &args).is_err(), "{name} {args:?}");
    }
    let error = parts("normal", &[("sdt", Arg::Nothing)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "normal has no such argument: expected mean, std, found sdt."
    );
    assert_eq!(error.problem(), "normal has no such argument");
    assert_eq!(error.expected(), Some("mean, std"));
    assert_eq!(error.found(), Some("sdt"));
    assert_eq!(error.remedy(), None);
}

#[test]
fn wrong_arguments_fail_when_the_initialiser_is_made() {
    let fans = Fans::default;
    for (what, made) in [
        ("std 0", Init::normal(0.0, 0.0)),
        ("std < 0", Init::normal(0.0, -1.0)),
        ("std NaN", Init::normal(0.0, f64::NAN)),
        ("std infinite", Init::normal(0.0, f64::INFINITY)),
        ("mean NaN", Init::normal(f64::NAN, 1.0)),
        ("empty bounds", Init::uniform(1.0, 1.0)),
        ("swapped bounds", Init::uniform(1.0, 0.0)),
        ("NaN bounds", Init::uniform(f64::NAN, 1.0)),
        ("infinite bounds", Init::uniform(0.0, f64::INFINITY)),
        ("std of a cut", Init::trunc_normal(0.0, 0.0, -1.0, 1.0)),
        ("gain 0", Init::kaiming_normal(0.0, Mode::FanIn, fans())),
        ("gain NaN", Init::xavier_uniform(f64::NAN, fans())),
        (
            "scale < 0",
            Init::variance_scaling(-1.0, Mode::FanIn, Spread::Normal, fans()),
        ),
        (
            "groups 0",
            Init::lecun_normal(Fans {
                groups: 0,
                ..fans()
            }),
        ),
        ("gain infinite", Init::orthogonal(f64::INFINITY, None)),
        ("sparsity > 1", Init::sparse(1.1, 1.0)),
        ("sparsity NaN", Init::sparse(f64::NAN, 1.0)),
        ("sparse std", Init::sparse(0.5, 0.0)),
    ] {
        assert!(made.is_err(), "{what}");
    }
    assert_eq!(
        Init::normal(0.0, 0.0).unwrap_err().to_string(),
        "std has to be positive: expected a finite number above 0, found 0. For one value everywhere use \
         constant."
    );
}

#[test]
fn what_depends_on_shape_or_dtype_fails_at_the_declaration() {
    let check = |init: Result<Init, _>, dtype| Init::check(&init.unwrap(), &[4, 4], dtype, &[]);
    // The largest half is 65504, and a normal draw reaches 6.5556 standard deviations.
    assert!(check(Init::normal(0.0, 9990.0), Dtype::F16).is_ok());
    let error = check(Init::normal(0.0, 10_000.0), Dtype::F16).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the values would overflow: expected magnitudes up to 65504 for float16, found up to 65556. Use a \
         smaller scale or a wider dtype."
    );
    assert!(check(Init::normal(0.0, 10_000.0), Dtype::BF16).is_ok());
    assert!(check(Init::uniform(-1e5, 0.0), Dtype::F16).is_err());
    assert!(check(Init::uniform(-3e38, 3e38), Dtype::F32).is_err());
    assert!(check(Init::uniform(-1e308, 1e308), Dtype::F64).is_err());
    assert!(check(Init::normal(0.0, 1e38), Dtype::F32).is_err());
    assert!(check(Init::normal(0.0, 1e308), Dtype::F64).is_err());
    assert!(check(Init::trunc_normal(0.0, 1e5, -1e5, 1e5), Dtype::F16).is_err());
    assert!(check(Init::trunc_normal(0.0, 1.0, -1e5, 1e5), Dtype::F16).is_ok());
    assert!(check(Init::normal(0.0, 1e-50), Dtype::F32).is_err());
    assert!(check(Init::orthogonal(1e5, None), Dtype::F16).is_err());
    for dtype in [Dtype::I32, Dtype::Bool, Dtype::C64, Dtype::F8E4M3] {
        let error = check(Init::normal(0.0, 1.0), dtype).unwrap_err();
        assert!(error.to_string().contains(dtype.name()), "{error}");
        assert!(check(Init::orthogonal(1.0, None), dtype).is_err());
        assert!(check(Ok(Init::ones()), dtype).is_ok());
    }
}
