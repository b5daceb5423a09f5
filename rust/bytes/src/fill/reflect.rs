//! Products with blocks of Householder reflectors: the arithmetic of orthogonal matrices.
//!
//! Each sum has one order, whatever the instruction set and the number of lanes: only columns are computed side
//! by side, and products and sums are rounded separately. So the bits are the same everywhere.

use std::ops::{Add, Div, Mul, Sub};

use super::simd::{Simd, Task};

/// Columns of a panel. A matrix is stored as panels, each of them row after row.
pub(crate) const PANEL: usize = 32;
/// Reflectors in a block.
pub(crate) const BLOCK: usize = 64;
/// Terms that are added up in one go, before the sum goes to memory: shorter sums lose fewer bits.
const TERMS: usize = 256;
/// Rows that are computed at once.
const ROWS: usize = 4;

/// `f32` or `f64`.
pub(crate) trait Real:
    Copy
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// A vector of them.
    type Vector<S: Simd>: Copy
        + Add<Output = Self::Vector<S>>
        + Sub<Output = Self::Vector<S>>
        + Mul<Output = Self::Vector<S>>;
    const ONE: Self;
    fn splat<S: Simd>(s: S, value: Self) -> Self::Vector<S>;
    fn load<S: Simd>(s: S, from: &[Self]) -> Self::Vector<S>;
    fn save<S: Simd>(s: S, value: Self::Vector<S>, to: &mut [Self]);
    fn from_wide(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Real for f32 {
    type Vector<S: Simd> = S::F;
    const ONE: Self = 1.0;
    #[inline(always)]
    fn splat<S: Simd>(s: S, value: Self) -> S::F {
        s.f(value)
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[Self]) -> S::F {
        s.load_f(from)
    }
    #[inline(always)]
    fn save<S: Simd>(s: S, value: S::F, to: &mut [Self]) {
        s.save_f(value, to);
    }
    fn from_wide(value: f64) -> Self {
        value as Self
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    type Vector<S: Simd> = S::D;
    const ONE: Self = 1.0;
    #[inline(always)]
    fn splat<S: Simd>(s: S, value: Self) -> S::D {
        s.d(value)
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[Self]) -> S::D {
        s.load_d(from)
    }
    #[inline(always)]
    fn save<S: Simd>(s: S, value: S::D, to: &mut [Self]) {
        s.save_d(value, to);
    }
    fn from_wide(value: f64) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self
    }
}

/// A matrix in panels of [`PANEL`] columns.
pub(crate) struct Panels<R> {
    rows: usize,
    numbers: Vec<R>,
}

impl<R: Real> Panels<R> {
    /// Zeros; room for so many columns.
    pub(crate) fn new(rows: usize, cols: usize) -> Self {
        Self {
            rows,
            numbers: vec![R::default(); rows * cols.next_multiple_of(PANEL)],
        }
    }

    pub(crate) fn at(&mut self, row: usize, col: usize) -> &mut R {
        &mut self.numbers[(col / PANEL * self.rows + row) * PANEL + col % PANEL]
    }

    pub(crate) fn get(&self, row: usize, col: usize) -> R {
        self.numbers[(col / PANEL * self.rows + row) * PANEL + col % PANEL]
    }

    /// Panel after panel, the rows from `from` on.
    fn panels(&self, from: usize) -> impl Iterator<Item = &[R]> {
        let panels = self.numbers.chunks_exact(self.rows * PANEL);
        panels.map(move |panel| &panel[from * PANEL..])
    }
}

/// `target ← H₁ H₂ … H_b · target` for a block of reflectors Hᵢ = 1 − vᵢ vᵢᵀ, each vᵢ of length √2, on the rows
/// from `from` on.
///
/// With the vectors as the columns of V, the product is 1 − V T Vᵀ (R. Schreiber and C. Van Loan, *A
/// storage-efficient WY representation for products of Householder transformations*, 1989), where T⁻¹ is 1 on
/// the diagonal and above it that of VᵀV (C. Puglisi, *Modification of the Householder method*, 1992). So T is
/// never formed: it is applied by solving.
pub(crate) struct Reflect<'a, R> {
    /// V: as many rows as there are from `from` on, and [`BLOCK`] columns.
    pub(crate) vectors: &'a Panels<R>,
    pub(crate) from: usize,
    pub(crate) target: &'a mut Panels<R>,
}

impl<R: Real> Task for Reflect<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            vectors,
            from,
            target,
        } = self;
        let mut gram = [R::default(); BLOCK * BLOCK];
        for (number, panel) in vectors.panels(0).enumerate() {
            let mut products = [R::default(); BLOCK * PANEL];
            transposed_product(s, vectors, panel, &mut products);
            for (row, products) in products.as_chunks::<PANEL>().0.iter().enumerate() {
                gram[row * BLOCK + number * PANEL..][..PANEL].copy_from_slice(products);
            }
        }
        let rows = target.rows;
        for panel in target.numbers.chunks_exact_mut(rows * PANEL) {
            let panel = &mut panel[from * PANEL..];
            let mut w = [R::default(); BLOCK * PANEL];
            transposed_product(s, vectors, panel, &mut w);
            solve(s, &gram, &mut w);
            subtract_product(s, vectors, &w, panel);
        }
    }
}

/// `to ← Vᵀ · panel`
#[inline(always)]
fn transposed_product<S: Simd, R: Real>(
    s: S,
    vectors: &Panels<R>,
    panel: &[R],
    to: &mut [R; BLOCK * PANEL],
) {
    let width = 2 * S::LANES;
    for (number, vectors) in vectors.panels(0).enumerate() {
        for (vectors, panel) in vectors
            .chunks(TERMS * PANEL)
            .zip(panel.chunks(TERMS * PANEL))
        {
            let mut row = 0;
            while row < PANEL {
                let mut col = 0;
                while col < PANEL {
                    let mut sums = [[R::splat(s, R::default()); 2]; ROWS];
                    let lines = vectors
                        .as_chunks::<PANEL>()
                        .0
                        .iter()
                        .zip(panel.as_chunks::<PANEL>().0);
                    for (v, p) in lines {
                        let p = [R::load(s, &p[col..]), R::load(s, &p[col + S::LANES..])];
                        for r in 0..ROWS {
                            let v = R::splat(s, v[row + r]);
                            sums[r][0] = sums[r][0] + v * p[0];
                            sums[r][1] = sums[r][1] + v * p[1];
                        }
                    }
                    for (r, sums) in sums.into_iter().enumerate() {
                        let at = (number * PANEL + row + r) * PANEL + col;
                        for (half, sum) in sums.into_iter().enumerate() {
                            let to = &mut to[at + half * S::LANES..];
                            R::save(s, R::load(s, to) + sum, to);
                        }
                    }
                    col += width;
                }
                row += ROWS;
            }
        }
    }
}

/// `w ← T · w`, from the last row up: what each row needs of the others lies below it.
#[inline(always)]
fn solve<S: Simd, R: Real>(s: S, gram: &[R; BLOCK * BLOCK], w: &mut [R; BLOCK * PANEL]) {
    for row in (0..BLOCK).rev() {
        let (above, below) = w.split_at_mut((row + 1) * PANEL);
        let mut col = 0;
        while col < PANEL {
            let this = &mut above[row * PANEL + col..];
            let mut sum = R::load(s, this);
            let factors = &gram[row * BLOCK + row + 1..(row + 1) * BLOCK];
            for (&factor, other) in factors.iter().zip(below.as_chunks::<PANEL>().0) {
                sum = sum - R::splat(s, factor) * R::load(s, &other[col..]);
            }
            R::save(s, sum, this);
            col += S::LANES;
        }
    }
}

/// `panel ← panel − V · w`
#[inline(always)]
fn subtract_product<S: Simd, R: Real>(
    s: S,
    vectors: &Panels<R>,
    w: &[R; BLOCK * PANEL],
    panel: &mut [R],
) {
    let width = 2 * S::LANES;
    for (vectors, w) in vectors.panels(0).zip(w.as_chunks::<{ PANEL * PANEL }>().0) {
        let (vectors, panel) = (
            vectors.as_chunks::<PANEL>().0,
            panel.as_chunks_mut::<PANEL>().0,
        );
        for (vectors, panel) in vectors.chunks(ROWS).zip(panel.chunks_mut(ROWS)) {
            let mut col = 0;
            while col < PANEL {
                let mut sums = [[R::splat(s, R::default()); 2]; ROWS];
                for (term, w) in w.as_chunks::<PANEL>().0.iter().enumerate() {
                    let w = [R::load(s, &w[col..]), R::load(s, &w[col + S::LANES..])];
                    for (sums, v) in sums.iter_mut().zip(vectors) {
                        let v = R::splat(s, v[term]);
                        sums[0] = sums[0] + v * w[0];
                        sums[1] = sums[1] + v * w[1];
                    }
                }
                for (panel, sums) in panel.iter_mut().zip(sums) {
                    for (half, sum) in sums.into_iter().enumerate() {
                        let to = &mut panel[col + half * S::LANES..];
                        R::save(s, R::load(s, to) - sum, to);
                    }
                }
                col += width;
            }
        }
    }
}
