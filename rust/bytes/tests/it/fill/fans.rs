//! Fans and gains, against the conventions of other libraries.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{
    Arg, Compat, Distribution, Fans, Init, Layout, Mode, Nonlinearity, Number, Plan, Spread,
};

use super::support::key;

fn by(layout: &str, groups: usize) -> Fans {
    Fans {
        groups,
        ..Fans::by(Layout::new(layout).unwrap())
    }
}

/// pytorch/pytorch#129834, #130122, #19376, tracel-ai/burn#398, tensorflow/tensorflow#31192,
/// #23854, #24315, keras-team/keras#11773, Lasagne/Lasagne#49, PaddlePaddle/Paddle#40547: fans of
/// the wrong axes.
#[test]
fn fans_follow_the_layout() {
    type Row<'a> = (&'a str, &'a str, usize, &'a [usize], (u64, u64));
    let table: [Row<'_>; 14] = [
        ("linear of PyTorch", "OI", 1, &[5, 7], (7, 5)),
        ("linear of JAX", "IO", 1, &[7, 5], (7, 5)),
        ("convolution", "OIW", 1, &[8, 3, 5], (15, 40)),
        ("convolution", "OIHW", 1, &[8, 3, 3, 3], (27, 72)),
        ("convolution", "OIDHW", 1, &[8, 3, 2, 3, 3], (54, 144)),
        ("convolution of JAX", "HWIO", 1, &[3, 3, 3, 8], (27, 72)),
        ("grouped convolution", "OIHW", 2, &[8, 3, 3, 3], (27, 36)),
        (
            "grouped convolution of JAX",
            "HWIO",
            2,
            &[3, 3, 3, 8],
            (27, 36),
        ),
        ("depthwise convolution", "OIHW", 16, &[16, 1, 3, 3], (9, 9)),
        (
            "depthwise convolution of JAX",
            "HWIO",
            16,
            &[3, 3, 1, 16],
            (9, 9),
        ),
        (
            "transposed convolution",
            "IOHW",
            1,
            &[16, 4, 3, 3],
            (144, 36),
        ),
        (
            "grouped transposed convolution",
            "IOHW",
            4,
            &[16, 4, 3, 3],
            (36, 36),
        ),
        ("experts", "EIO", 1, &[8, 64, 128], (64, 128)),
        (
            "stacked convolutions",
            "EOIHW",
            2,
            &[6, 8, 3, 3, 3],
            (27, 36),
        ),
    ];
    for (what, layout, groups, shape, fans) in table {
        assert_eq!(
            by(layout, groups).count(shape).unwrap(),
            fans,
            "{what} {layout}"
        );
    }
}

#[test]
fn compat_torch_counts_as_pytorch_does() {
    let torch = Fans {
        compat: Compat::Torch,
        ..Fans::default()
    };
    let table: [(&[usize], (u64, u64)); 6] = [
        (&[5, 7], (7, 5)),
        (&[8, 3, 3, 3], (27, 72)),
        // Transposed: swapped.
        (&[16, 4, 3, 3], (36, 144)),
        // Depthwise: the groups are not seen.
        (&[16, 1, 3, 3], (9, 144)),
        // Experts: taken for a convolution.
        (&[8, 64, 128], (8192, 1024)),
        (&[4, 2, 0], (0, 0)),
    ];
    for (shape, fans) in table {
        assert_eq!(torch.count(shape).unwrap(), fans, "{shape:?}");
    }
    assert!(torch.count(&[5]).is_err());
}

#[test]
fn two_dimensions_need_no_layout_and_more_are_never_guessed() {
    assert_eq!(Fans::default().count(&[5, 7]).unwrap(), (7, 5));
    let error = Fans::default().count(&[8, 64, 128]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the fans of this shape are not known: expected a layout, for more than two dimensions, found 3 \
         dimensions, (8, 64, 128). Say what the axes are: layout=\"OIHW\", \"HWIO\", \"EIO\" ..., or \
         compat=\"torch\"."
    );
    let error = Fans::default().count(&[8]).unwrap_err();
    assert!(error.remedy().unwrap().contains("the fan_in of its weight"));
    assert!(Fans::default().count(&[]).is_err());
    assert_eq!(Fans::given(12).count(&[8]).unwrap(), (12, 12));
}

#[test]
fn layouts_that_make_no_sense_are_refused() {
    for text in ["", "O", "I", "OO", "OII", "oi", "O I", "OIHH", "ΩOI"] {
        assert!(Layout::new(text).is_err(), "{text}");
    }
    assert_eq!(Layout::new("OIHW").unwrap().as_str(), "OIHW");
    assert!(by("OIHW", 1).count(&[3, 4]).is_err());
    assert!(by("OIHW", 3).count(&[8, 3, 3, 3]).is_err());
    assert!(by("OIHW", 0).count(&[8, 3, 3, 3]).is_err());
}

#[test]
fn gains_are_those_of_pytorch() {
    let gain = |name, slope| Nonlinearity::from_name(name, slope).unwrap().gain();
    assert_eq!(gain("linear", None), 1.0);
    assert_eq!(gain("conv2d", None), 1.0);
    assert_eq!(gain("sigmoid", None), 1.0);
    assert_eq!(gain("tanh", None), 5.0 / 3.0);
    assert_eq!(gain("relu", None), 2_f64.sqrt());
    assert_eq!(gain("leaky_relu", None), (2_f64 / (1.0 + 1e-4)).sqrt());
    assert_eq!(
        gain("leaky_relu", Some(5_f64.sqrt())),
        (2_f64 / (1.0 + 5_f64.sqrt() * 5_f64.sqrt())).sqrt()
    );
    assert_eq!(gain("selu", None), 0.75);
    assert!(Nonlinearity::from_name("gelu", None).is_err());
}

#[test]
fn a_slope_is_refused_where_it_would_be_ignored() {
    for name in ["relu", "tanh", "linear", "gelu"] {
        let error = Nonlinearity::from_name(name, Some(0.2)).unwrap_err();
        assert!(
            error
                .remedy()
                .unwrap()
                .contains("nonlinearity=\"leaky_relu\"")
        );
    }
    let word = |name: &str| Arg::Text(name.to_owned());
    let number = |value| Arg::Number(Number::Float(value));
    let parts = Nonlinearity::from_parts;
    assert_eq!(
        parts(&word("leaky_relu"), &number(0.2)),
        Ok(Nonlinearity::LeakyRelu(0.2))
    );
    assert_eq!(parts(&word("relu"), &Arg::Nothing), Ok(Nonlinearity::Relu));
    for (name, slope) in [
        (word("relu"), number(0.2)),
        (word("leaky_relu"), word("0.2")),
        (number(1.0), Arg::Nothing),
        (Arg::Nothing, Arg::Nothing),
    ] {
        assert!(parts(&name, &slope).is_err(), "{name:?} {slope:?}");
    }
}

#[test]
fn scales_follow_from_fans_as_their_papers_say() {
    let fans = || Fans::default();
    let shape = [30, 120];
    let resolved = |init: Result<Init, _>| init.unwrap().resolve(&shape).unwrap();
    let uniform = |high: f64| Distribution::Uniform { low: -high, high };
    let normal = |std: f64| Distribution::Normal { mean: 0.0, std };
    let relu = Nonlinearity::Relu.gain();
    assert_eq!(
        resolved(Init::kaiming_uniform(relu, Mode::FanIn, fans())),
        uniform(relu * (3_f64 / 120.0).sqrt())
    );
    assert_eq!(
        resolved(Init::kaiming_normal(relu, Mode::FanOut, fans())),
        normal(relu / 30_f64.sqrt())
    );
    assert_eq!(
        resolved(Init::xavier_uniform(2.0, fans())),
        uniform(2.0 * (6_f64 / 150.0).sqrt())
    );
    assert_eq!(
        resolved(Init::xavier_normal(2.0, fans())),
        normal(2.0 * (2_f64 / 150.0).sqrt())
    );
    assert_eq!(
        resolved(Init::lecun_uniform(fans())),
        uniform((3_f64 / 120.0).sqrt())
    );
    let std = (1_f64 / 120.0).sqrt() / 0.879_625_661_034_239_8;
    assert_eq!(
        resolved(Init::lecun_normal(fans())),
        Distribution::TruncNormal {
            mean: 0.0,
            std,
            low: -2.0 * std,
            high: 2.0 * std
        }
    );
    for (mode, fan) in [
        (Mode::FanIn, 120.0),
        (Mode::FanOut, 30.0),
        (Mode::FanAverage, 75.0),
        (Mode::FanGeometric, 60.0),
    ] {
        assert_eq!(
            resolved(Init::variance_scaling(2.0, mode, Spread::Normal, fans())),
            normal((2.0_f64 / fan).sqrt())
        );
    }
    // PyTorch's default for linear layers: U(±1/√fan_in).
    let leaky = Nonlinearity::LeakyRelu(5_f64.sqrt()).gain();
    let Distribution::Uniform { high, .. } =
        resolved(Init::kaiming_uniform(leaky, Mode::FanIn, fans()))
    else {
        panic!();
    };
    assert!((high - 1.0 / 120_f64.sqrt()).abs() < 1e-15);
}

/// NVIDIA-NeMo/Megatron-Bridge#5843: fans of the local shard.
#[test]
fn fans_come_from_the_global_shape_and_leave_batch_axes_out() {
    let init = Init::xavier_normal(1.0, Fans::default()).unwrap();
    assert!(init.check(&[8, 64, 128], Dtype::F32, &[]).is_err());
    assert!(init.check(&[8, 64, 128], Dtype::F32, &[0]).is_ok());
    // The layout may name the batch axis or leave it out.
    for layout in ["EOI", "OI"] {
        let init = Init::orthogonal(1.0, Some(Layout::new(layout).unwrap())).unwrap();
        assert!(init.check(&[8, 64, 128], Dtype::F32, &[0]).is_ok());
        assert!(init.check(&[8, 64, 128], Dtype::F32, &[]).is_err());
    }
    assert_eq!(by("EIO", 1).count(&[64, 128]).unwrap(), (64, 128));
}

#[test]
fn plans_say_whether_fresh_memory_will_do() {
    let zeros = |init: Init| {
        Plan::new(&init, &key(0), &[3], Dtype::F32)
            .unwrap()
            .is_zeros()
    };
    assert!(zeros(Init::zeros()));
    assert!(zeros(Init::constant(Number::Float(0.0))));
    assert!(!zeros(Init::constant(Number::Float(-0.0))));
    assert!(!zeros(Init::ones()));
}

#[test]
fn a_fan_of_zero_is_an_error_only_where_there_is_something_to_scale() {
    assert!(Init::lecun_normal(Fans::given(0)).is_err());
    let init = Init::kaiming_normal(1.0, Mode::FanIn, Fans::default()).unwrap();
    assert!(init.check(&[0, 5], Dtype::F32, &[]).is_ok());
    assert!(init.check(&[5, 0], Dtype::F32, &[]).is_ok());
}
