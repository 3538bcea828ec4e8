//! Matrix products, reductions, and operators that make tensors out of shapes and attributes.

use super::elementwise::broadcast_dims;
use super::literal::{Literal, MOST_ELEMENTS};
use super::{Context, Ruled, Stop, Value, axis_of, mismatch, product};
use crate::onnx::data_type;

fn signed(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// `Gemm`: two matrices, each possibly transposed, and a third that broadcasts onto their product.
pub(crate) fn gemm(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let matrix = |slot, flag: &str| match (context.dims(slot)?, context.node.int(flag).unwrap_or(0)) {
        (&[rows, columns], 0) => Ok((rows, columns)),
        (&[rows, columns], _) => Ok((columns, rows)),
        (dims, _) => mismatch(format!("{dims:?} is no matrix")),
    };
    let ((rows, depth), (other, columns)) = (matrix(0, "transA")?, matrix(1, "transB")?);
    if depth != other {
        return mismatch(format!("{rows}x{depth} times {other}x{columns}"));
    }
    let dims = vec![rows, columns];
    if context.node.input_name(2).is_some() && broadcast_dims(&dims, context.dims(2)?)? != dims {
        return mismatch(format!("{:?} does not add onto {dims:?}", context.dims(2)?));
    }
    Ok(vec![Value::of(context.data_type(0), dims)])
}

/// `MatMul`, as NumPy's: leading axes broadcast, a vector is a matrix with one row or column that is dropped again.
pub(crate) fn matmul(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let (left, right) = (context.dims(0)?, context.dims(1)?);
    let (left_lead, rows, depth) = match left {
        [depth] => (&[][..], None, *depth),
        [lead @ .., rows, depth] => (lead, Some(*rows), *depth),
        [] => return mismatch("a scalar is no matrix"),
    };
    let (right_lead, other, columns) = match right {
        [other] => (&[][..], *other, None),
        [lead @ .., other, columns] => (lead, *other, Some(*columns)),
        [] => return mismatch("a scalar is no matrix"),
    };
    if depth != other {
        return mismatch(format!("{left:?} times {right:?}"));
    }
    let mut dims = broadcast_dims(left_lead, right_lead)?;
    dims.extend(rows.into_iter().chain(columns));
    Ok(vec![Value::of(context.data_type(0), dims)])
}

/// The axes a reduction takes; `None` stands for all of them.
pub(crate) fn reduced_axes(context: &Context<'_>, rank: usize) -> Ruled<Vec<usize>> {
    let axes = context.attribute_or_input("axes", 1)?;
    match axes {
        None | Some([]) if context.node.int("noop_with_empty_axes") == Some(1) => Ok(Vec::new()),
        None | Some([]) => Ok((0..rank).collect()),
        Some(axes) => axes.iter().map(|&axis| axis_of(axis, rank)).collect(),
    }
}

fn without(dims: &[usize], axes: &[usize], keep: bool) -> Vec<usize> {
    let kept = dims
        .iter()
        .enumerate()
        .filter_map(|(axis, &dim)| match axes.contains(&axis) {
            true => keep.then_some(1),
            false => Some(dim),
        });
    kept.collect()
}

/// `ReduceMean`, `ReduceSum`, and the like.
pub(crate) fn reduce(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let axes = reduced_axes(context, dims.len())?;
    let keep = context.node.int("keepdims").unwrap_or(1) != 0;
    Ok(vec![Value::of(context.data_type(0), without(dims, &axes, keep))])
}

pub(crate) fn arg_extreme(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let axis = axis_of(context.node.int("axis").unwrap_or(0), dims.len())?;
    let keep = context.node.int("keepdims").unwrap_or(1) != 0;
    Ok(vec![Value::of(data_type::INT64, without(dims, &[axis], keep))])
}

/// `OneHot`: a new axis of `depth` classes.
pub(crate) fn one_hot(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let mut dims = context.dims(0)?.to_vec();
    let depth = context
        .integers(1)?
        .and_then(|depth| depth.first())
        .copied()
        .ok_or(Stop::Unknown)?;
    let axis = axis_of(context.node.int("axis").unwrap_or(-1), dims.len() + 1)?;
    dims.insert(
        axis,
        usize::try_from(depth).or_else(|_| mismatch("a negative depth"))?,
    );
    Ok(vec![Value::of(context.data_type(2), dims)])
}

pub(crate) fn top_k(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let mut dims = context.dims(0)?.to_vec();
    let axis = axis_of(context.node.int("axis").unwrap_or(-1), dims.len())?;
    let count = context.integers(1)?.and_then(|count| count.first()).copied();
    let count = count
        .or(context.node.int("k"))
        .and_then(|count| usize::try_from(count).ok())
        .ok_or(Stop::Unknown)?;
    if let Some(dim) = dims.get_mut(axis) {
        *dim = count;
    }
    Ok(vec![
        Value::of(context.data_type(0), dims.clone()),
        Value::of(data_type::INT64, dims),
    ])
}

pub(crate) fn constant(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let node = context.node;
    let known = |data_type, dims, literal| {
        Ok(vec![Value {
            data_type,
            dims: Some(dims),
            literal: Some(literal),
        }])
    };
    if let Some(tensor) = node.tensor("value") {
        return Value::constant(tensor)
            .map(|value| vec![value])
            .or_else(|error| mismatch(error.to_string()));
    }
    if let Some(value) = node.int("value_int") {
        return known(data_type::INT64, vec![], Literal::Integers(vec![value]));
    }
    if let Some(values) = node.ints("value_ints") {
        return known(
            data_type::INT64,
            vec![values.len()],
            Literal::Integers(values.to_vec()),
        );
    }
    if let Some(value) = node.float("value_float") {
        return known(data_type::FLOAT, vec![], Literal::Numbers(vec![value.into()]));
    }
    if let Some(values) = node.attribute("value_floats").map(|attribute| &attribute.floats) {
        let numbers = values.iter().map(|&value| value.into()).collect();
        return known(data_type::FLOAT, vec![values.len()], Literal::Numbers(numbers));
    }
    Err(Stop::Unknown)
}

pub(crate) fn range(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let number = |slot| {
        context
            .integers(slot)?
            .and_then(|values| values.first())
            .copied()
            .ok_or(Stop::Unknown)
    };
    let (start, limit, delta): (i64, i64, i64) = (number(0)?, number(1)?, number(2)?);
    if delta == 0 {
        return mismatch("a step of 0");
    }
    let span = i128::from(limit) - i128::from(start);
    let steps = (span + i128::from(delta) - i128::from(delta.signum())) / i128::from(delta);
    let count = usize::try_from(steps.max(0)).or_else(|_| mismatch("too many elements"))?;
    let literal = (count <= MOST_ELEMENTS).then(|| {
        let values = (0..signed(count)).map(|step| start.saturating_add(step.saturating_mul(delta)));
        Literal::Integers(values.collect())
    });
    Ok(vec![Value {
        data_type: context.data_type(0),
        dims: Some(vec![count]),
        literal,
    }])
}

/// The axes `Shape` reports: since operator set 15 a part of them can be asked for.
pub(crate) fn shape(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?;
    let rank = signed(dims.len());
    let place = |value: i64| {
        let from_start = if value < 0 {
            value.saturating_add(rank)
        } else {
            value
        };
        usize::try_from(from_start.clamp(0, rank)).unwrap_or_default()
    };
    let start = place(context.node.int("start").unwrap_or(0));
    let end = place(context.node.int("end").unwrap_or(rank)).max(start);
    let values: Vec<i64> = dims
        .get(start..end)
        .unwrap_or_default()
        .iter()
        .map(|&dim| signed(dim))
        .collect();
    let (dims, literal) = (Some(vec![values.len()]), Some(Literal::Integers(values)));
    Ok(vec![Value {
        data_type: data_type::INT64,
        dims,
        literal,
    }])
}

pub(crate) fn size(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let count = signed(product(context.dims(0)?)?);
    let literal = Some(Literal::Integers(vec![count]));
    Ok(vec![Value {
        data_type: data_type::INT64,
        dims: Some(vec![]),
        literal,
    }])
}

pub(crate) fn constant_of_shape(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.integers(0)?.ok_or(Stop::Unknown)?;
    let dims: Option<Vec<usize>> = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let data_type = context
        .node
        .tensor("value")
        .map_or(data_type::FLOAT, |value| value.data_type);
    Ok(vec![Value {
        data_type,
        dims: Some(dims.map_or_else(|| mismatch("a negative size"), Ok)?),
        literal: None,
    }])
}
