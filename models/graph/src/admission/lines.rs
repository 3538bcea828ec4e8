//! Whether a network's shapes follow its batch in straight lines, `times * batch + plus`. Shapes are known for two batches; only on a
//! straight line do two points tell all others. A model that compares its batch with a number, or divides by it, may
//! be small for the batches we try and huge for the next, so such arithmetic on shapes is refused.

use crate::infer::literal::{Literal, as_number};
use crate::infer::{Context, Value, layout};
use crate::onnx::{NodeProto, data_type};
use crate::probes::{Probes, SIZES};

/// What depends on the batch in some other way.
pub(super) type Why = &'static str;

/// `times * batch + plus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) times: i64,
    pub(super) plus: i64,
}

impl Line {
    /// The line through what is known at both batches; `None` when its slope is no whole number.
    pub(super) fn through(small: i64, large: i64) -> Option<Self> {
        let (first, second) = (i64::try_from(SIZES.0).ok()?, i64::try_from(SIZES.1).ok()?);
        let (rise, run) = (large.checked_sub(small)?, second.checked_sub(first)?);
        let times = rise
            .checked_div(run)
            .filter(|times| times.checked_mul(run) == Some(rise))?;
        let plus = small.checked_sub(times.checked_mul(first)?)?;
        Some(Self { times, plus })
    }

    fn minus(self, other: Self) -> Option<Self> {
        Some(Self {
            times: self.times.checked_sub(other.times)?,
            plus: self.plus.checked_sub(other.plus)?,
        })
    }

    /// The sign of its values, where it is the same for every batch from 1 on.
    fn sign(self) -> Option<i64> {
        let first = self.times.checked_add(self.plus)?;
        let sign = first.signum();
        (self.times == 0 || (sign != 0 && sign == self.times.signum())).then_some(sign)
    }

    /// Whether some batch from 1 on makes it 0, though not all do.
    fn crosses_zero(self) -> bool {
        let root = self.plus.checked_neg().filter(|_| self.times != 0);
        root.is_some_and(|root| {
            root.checked_rem(self.times) == Some(0) && root.checked_div(self.times) >= Some(1)
        })
    }

    fn is_multiple_of(self, divisor: i64) -> bool {
        [self.times, self.plus]
            .iter()
            .all(|part| part.checked_rem(divisor) == Some(0))
    }
}

/// Both views of a value: at the smaller batch and at the larger.
type Pair<'a> = (&'a Value, &'a Value);

fn dims_differ((small, large): Pair<'_>) -> bool {
    small.dims != large.dims
}

fn literal_differs((small, large): Pair<'_>) -> bool {
    small.literal != large.literal
}

/// The axes of a value that depend on the batch.
fn open_axes((small, large): Pair<'_>) -> Vec<usize> {
    let (Some(small), Some(large)) = (&small.dims, &large.dims) else {
        return Vec::new();
    };
    let pairs = small.iter().zip(large).enumerate();
    pairs
        .filter(|(_, (small, large))| small != large)
        .map(|(axis, _)| axis)
        .collect()
}

/// A node whose outputs are known at both batches.
pub(super) struct Step<'a> {
    node: &'a NodeProto,
    operator: &'a str,
    small: Context<'a>,
    large: Context<'a>,
}

impl<'a> Step<'a> {
    pub(super) fn new(node: &'a NodeProto, probes: &'a Probes) -> Self {
        let (small, large) = probes.contexts(node);
        Self {
            node,
            operator: node.standard_operator().unwrap_or_default(),
            small,
            large,
        }
    }

    fn input(&self, slot: usize) -> Pair<'a> {
        let value = |context: &Context<'a>| context.input(slot).unwrap_or(&Value::UNKNOWN);
        (value(&self.small), value(&self.large))
    }

    /// Checks that the outputs follow the batch in straight lines when the inputs do.
    pub(super) fn check(&self, probes: &'a Probes) -> Result<(), Why> {
        self.check_scales()?;
        let slots = || 0..self.node.input.len();
        if slots().all(|slot| !dims_differ(self.input(slot)) && !literal_differs(self.input(slot))) {
            return Ok(());
        }
        self.check_sizes()?;
        self.check_axes()?;
        for (slot, name) in self.node.output.iter().enumerate() {
            let output = probes.both(name);
            check_dims(output)?;
            if slot == 0 && (output.0.literal.is_some() || output.1.literal.is_some()) {
                self.check_integers(output)?;
            }
        }
        Ok(())
    }

    /// Inputs that say how large the result is, or where it is cut.
    fn check_sizes(&self) -> Result<(), Why> {
        let fixed = |slots: &[usize]| {
            let moving = slots.iter().any(|&slot| literal_differs(self.input(slot)));
            if moving {
                Err("takes places or axes that depend on the batch")
            } else {
                Ok(())
            }
        };
        match self.operator {
            "Slice" => fixed(&[1, 2, 3, 4]),
            "Squeeze" | "Unsqueeze" | "Split" => fixed(&[1]),
            "Pad" => fixed(&[3]),
            "Resize" | "Upsample" => fixed(&[1, 2]),
            "Range" => self.check_range(),
            "Tile" => self.check_tile(),
            _ if self.operator.starts_with("Reduce") => fixed(&[1]),
            _ => Ok(()),
        }
    }

    /// From a fixed start in steps of 1 to an end that is never before it.
    fn check_range(&self) -> Result<(), Why> {
        let why = "counts to an end that depends on the batch, not in steps of 1 from a fixed start";
        if literal_differs(self.input(0)) || self.only(2) != Some(1) {
            return Err(why);
        }
        let span = self
            .line(1)
            .zip(self.line(0))
            .and_then(|(limit, start)| limit.minus(start));
        match span.and_then(Line::sign) {
            Some(sign) if sign >= 0 => Ok(()),
            _ => Err(why),
        }
    }

    /// The only integer an input holds, the same at both batches.
    fn only(&self, slot: usize) -> Option<i64> {
        let line = self.line(slot)?;
        (line.times == 0).then_some(line.plus)
    }

    fn line(&self, slot: usize) -> Option<Line> {
        let (small, large) = self.input(slot);
        let one = |value: &Value| match value.literal.as_ref()?.integers()? {
            [only] => Some(*only),
            _ => None,
        };
        Line::through(one(small)?, one(large)?)
    }

    fn check_tile(&self) -> Result<(), Why> {
        let (small, large) = self.input(1);
        let integers = |value: &Value| {
            value
                .literal
                .as_ref()
                .and_then(Literal::integers)
                .map(<[i64]>::to_vec)
        };
        let (Some(small), Some(large)) = (integers(small), integers(large)) else {
            return Ok(());
        };
        let open = open_axes(self.input(0));
        let both = open.iter().any(|&axis| small.get(axis) != large.get(axis));
        if both {
            Err("repeats the batch as often as the batch")
        } else {
            Ok(())
        }
    }

    /// Scales stretch no batch, and no axis to a size that an engine, which computes with fewer digits, could round to another.
    fn check_scales(&self) -> Result<(), Why> {
        const DIGITS: f64 = 1e-3;
        if !matches!(self.operator, "Resize" | "Upsample") {
            return Ok(());
        }
        let (Some(dims), Some(scales)) = (&self.input(0).0.dims, layout::scales(&self.small)) else {
            return Ok(());
        };
        let open = open_axes(self.input(0));
        let safe = |(axis, (&dim, scale)): (usize, (&usize, f64))| {
            let part = as_number(i64::try_from(dim).unwrap_or(i64::MAX)) * scale;
            let rest = part - part.floor();
            (!open.contains(&axis) || scale.to_bits() == 1_f64.to_bits())
                && (scale.fract() == 0.0 || rest == 0.0 || (DIGITS..1.0 - DIGITS).contains(&rest))
        };
        if dims.iter().zip(scales).enumerate().all(safe) {
            Ok(())
        } else {
            Err("scales to a size that engines round one way or the other, or scales the batch")
        }
    }

    /// The axes along the batch are only moved, joined and computed upon one by one.
    fn check_axes(&self) -> Result<(), Why> {
        let open = open_axes(self.input(0));
        let why = "cuts or slides along an axis that depends on the batch";
        let bad = match self.operator {
            "Slice" => !self.keeps_whole(&open),
            "Split" => open.contains(&self.axis(0)),
            "Squeeze" => {
                !open.is_empty() && self.node.ints("axes").is_none() && self.node.input_name(1).is_none()
            }
            "Conv" | "ConvTranspose" => open.iter().any(|&axis| axis > 0) || dims_differ(self.input(1)),
            "MaxPool" | "AveragePool" | "LpPool" | "DepthToSpace" | "SpaceToDepth" | "Resize"
            | "Upsample" => open.iter().any(|&axis| axis > 0),
            _ => false,
        };
        if bad { Err(why) } else { Ok(()) }
    }

    fn axis(&self, default: i64) -> usize {
        let rank = self.input(0).0.dims.as_ref().map_or(0, Vec::len);
        crate::infer::axis_of(self.node.int("axis").unwrap_or(default), rank).unwrap_or(usize::MAX)
    }

    /// Whether a `Slice` leaves the axes along the batch as they are.
    fn keeps_whole(&self, open: &[usize]) -> bool {
        [&self.small, &self.large].into_iter().all(|context| {
            let (Ok(cuts), Ok(dims)) = (layout::slice_cuts(context), context.dims(0)) else {
                return open.is_empty();
            };
            let whole =
                |cut: &layout::Cut| cut.start == 0 && cut.step == 1 && dims.get(cut.axis) == Some(&cut.count);
            cuts.iter().all(|cut| !open.contains(&cut.axis) || whole(cut))
        })
    }

    /// Integers that the node computes from integers along the batch.
    fn check_integers(&self, output: Pair<'_>) -> Result<(), Why> {
        let moving: Vec<usize> = (0..self.node.input.len())
            .filter(|&slot| literal_differs(self.input(slot)))
            .collect();
        let known = match self.operator {
            "Shape" | "Size" => true,
            "Identity" | "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Gather" | "Slice"
            | "Transpose" | "Expand" => moving.iter().all(|&slot| slot == 0),
            "Concat" | "Add" | "Sub" | "Neg" | "ReduceSum" => true,
            "Cast" => matches!(output.0.data_type, data_type::INT64 | data_type::INT32),
            "Where" => !moving.contains(&0),
            "Mul" => moving.len() <= 1,
            "ReduceProd" => self.moving_elements(0).is_some_and(|moving| moving <= 1),
            "Div" => moving == [0] && self.divides(|line, divisor| line.is_multiple_of(divisor)),
            "Mod" => {
                moving == [0] && self.divides(|line, divisor| line.times.checked_rem(divisor) == Some(0))
            }
            "Equal" => self.compares(|difference| !difference.crosses_zero()),
            "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Min" | "Max" => {
                self.compares(|difference| difference.sign().is_some())
            }
            _ => moving.is_empty(),
        };
        if known && check_elements(output) {
            Ok(())
        } else {
            Err("computes sizes from the batch other than as a multiple of it and a fixed number")
        }
    }

    /// How many integers of an input depend on the batch.
    fn moving_elements(&self, slot: usize) -> Option<usize> {
        let lines = self.lines(slot)?;
        Some(lines.iter().filter(|line| line.times != 0).count())
    }

    /// The integers of an input as lines.
    fn lines(&self, slot: usize) -> Option<Vec<Line>> {
        let (small, large) = self.input(slot);
        lines(small.literal.as_ref()?, large.literal.as_ref()?)
    }

    /// Whether `fits` holds for each element of the first input with each of the second, which are fixed.
    fn divides(&self, fits: impl Fn(Line, i64) -> bool) -> bool {
        let (Some(left), Some(right)) = (self.lines(0), self.lines(1)) else {
            return false;
        };
        left.iter()
            .all(|&line| right.iter().all(|divisor| fits(line, divisor.plus)))
    }

    /// Whether `fits` holds for the difference of each pair of elements.
    fn compares(&self, fits: impl Fn(Line) -> bool) -> bool {
        let (Some(left), Some(right)) = (self.lines(0), self.lines(1)) else {
            return false;
        };
        if left.len() != right.len() && left.len() != 1 && right.len() != 1 {
            return false;
        }
        let count = left.len().max(right.len());
        let mut pairs = left.iter().cycle().zip(right.iter().cycle()).take(count);
        pairs.all(|(left, right)| left.minus(*right).is_some_and(&fits))
    }
}

fn lines(small: &Literal, large: &Literal) -> Option<Vec<Line>> {
    let (small, large) = (small.integers()?, large.integers()?);
    if small.len() != large.len() {
        return None;
    }
    small
        .iter()
        .zip(large)
        .map(|(&small, &large)| Line::through(small, large))
        .collect()
}

/// Whether all elements are integers on straight lines.
fn check_elements((small, large): Pair<'_>) -> bool {
    match (&small.literal, &large.literal) {
        (Some(small), Some(large)) => small == large || lines(small, large).is_some(),
        _ => false,
    }
}

/// One axis at most depends on the batch, it grows with it, and it is there for a batch of one.
fn check_dims(value: Pair<'_>) -> Result<(), Why> {
    let (Some(small), Some(large)) = (&value.0.dims, &value.1.dims) else {
        return Ok(());
    };
    if small.len() != large.len() {
        return Err("has more axes for one batch than for another");
    }
    let open = open_axes(value);
    if open.len() > 1 {
        return Err("makes something that grows with the square of the batch");
    }
    let grows = |axis: &usize| {
        let size = |dims: &[usize]| dims.get(*axis).and_then(|&size| i64::try_from(size).ok());
        let line = Line::through(size(small)?, size(large)?)?;
        (line.times > 0 && line.times.checked_add(line.plus)? >= 0).then_some(())
    };
    if open.iter().all(|axis| grows(axis).is_some()) {
        Ok(())
    } else {
        Err("makes something whose size does not grow evenly with the batch")
    }
}
